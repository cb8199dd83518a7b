"""Ctrl-C and SIGTERM end a command with one sentence that says how to go on, and with exit code 130 or 143."""

import atexit
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from hardsight.names import visible

# A terminal and a launcher such as torchrun both pass on one Ctrl-C: for so many seconds it is the same one.
_SAME = 1.0
_ANSWERED = b"\0"
# So long may the main thread be busy outside Python before a signal ends the process without it.
_PATIENCE = 10.0
_START_AGAIN = "nothing half-written is left: run the same command again"


class _Said(SystemExit):
    """The end of a process that has said why."""


class _Received:
    """The signal that ends this process, and when it came."""

    signal: int | None = None
    at = 0.0
    # Where the system writes each signal as it comes, and the handler that it was answered.
    line: socket.socket | None = None


@contextlib.contextmanager
def signals_raised() -> Iterator[None]:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt inside the block, so that what is under way can put things right.

    Only where they would end the process: a signal that is ignored (nohup) or that a host such as a notebook handles
    stays as it is, and threads other than the main one cannot change what a signal does.
    """
    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    changed: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number, handler in usual.items():
                if signal.getsignal(number) is handler:
                    changed[number] = signal.signal(number, _raise)
        with _answered_in_time() if changed else contextlib.nullcontext():
            yield
    finally:
        for number, handler in changed.items():
            signal.signal(number, handler)
        if changed:
            _Received.signal = None


@contextlib.contextmanager
def stop_said() -> Iterator[None]:
    """Turn an interruption into one sentence on stderr and the exit code of its signal."""
    try:
        yield
    except BaseException as end:
        number = _Received.signal or (signal.SIGINT if isinstance(end, KeyboardInterrupt) else None)
        # An interruption may come out as another error, as where it hits an import.
        if number is None or isinstance(end, _Said):
            raise
        _say(number, [*getattr(end, "__notes__", ())])
        # What comes now would only disturb the interpreter while it is taken down.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        raise _Said(128 + number) from None


@contextlib.contextmanager
def _answered_in_time() -> Iterator[None]:
    """End the process where its main thread cannot answer a signal, as while it waits for another process in C++."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    _Received.line = writer
    threading.Thread(target=_watch, args=(reader,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        _Received.line = None
        writer.close()


def _watch(line: socket.socket) -> None:
    with line:
        while received := line.recv(1):
            number = received[0]
            if number not in (signal.SIGINT, signal.SIGTERM):
                continue
            line.settimeout(_PATIENCE)
            try:
                while received and received != _ANSWERED:
                    received = line.recv(1)
            except TimeoutError:
                # Whoever handles it since, as a server does, answers in a way of its own.
                if signal.getsignal(number) is _raise:
                    _say(number, [])
                    os._exit(128 + number)
            line.settimeout(None)


def _leave_line() -> None:
    """A forked child must not answer for its parent, nor pass on its own signals as its parent's."""
    if _Received.line is not None:
        _Received.line = None
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_line)


def _raise(number: int, frame: FrameType | None) -> None:
    if _Received.line is not None:
        with contextlib.suppress(OSError):
            _Received.line.send(_ANSWERED)
    now = time.monotonic()
    if _Received.signal is None or now - _Received.at > _SAME:
        _Received.signal, _Received.at = number, now
        raise KeyboardInterrupt(number)


def _say(number: int, notes: list[str]) -> None:
    if os.environ.get("RANK", "0") not in ("", "0"):
        return  # one of several processes speaks for all
    what = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    # The terminal has written ^C into this line.
    begin = "\n" if sys.stderr.isatty() else ""
    # Who reads it may be gone too.
    with contextlib.suppress(OSError):
        how = visible(notes[-1]) if notes else _START_AGAIN
        print(f"{begin}hardsight: {what}: {how}", file=sys.stderr, flush=True)
