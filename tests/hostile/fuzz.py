"""Hostile inputs by the thousand over every reader and command: each must end in one sentence or in a result.

    python fuzz.py COUNT [SEED] [NAME ...]

COUNT damaged or invented files, and from a thousand on every bomb once. Each command runs in a process that is split
off this one, which has imported everything. Printed last, as JSON: what ended in a traceback, took more than 10 seconds
or more memory than it may, said more than it should, or put something on the terminal that a terminal obeys. Names
choose worlds.

Seconds are those of the clock, less those in which other programs had the processor. Memory is the peak above that of
the same command over the honest file; a bomb's, above the least that its command takes over any honest file.
"""

import contextlib
import importlib.util
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

MIB, GIB = 1 << 20, 1 << 30
SECONDS, PATIENCE, LONG = 10, 120, 1000
# So that a mistake does not take the machine with it.
MOST = 12 * GIB
# What is imported once, for all.
IMPORTED = (
    "hardsight.cli", "hardsight.training", "hardsight.engines", "hardsight.cleaning.auditing", "hardsight.alignment",
    "hardsight.report", "hardsight.report.alignment_page", "hardsight.domains", "hardsight.dynamics.detector",
    "hardsight.alignment.tables", "sklearn.datasets", "scipy.io", "scipy.stats", "torch._dynamo", "matplotlib.figure",
    "jinja2", "rich.table", "rich.console", "rich.progress", "tomllib", "pyarrow.csv", "pyarrow.dataset",
    "hardsight.cleaning.reading", "hardsight.demo", "hardsight.benchmark",
    "hardsight_studies.engine.command", "hardsight_studies.engine.study", "hardsight_studies.engine.tables",
    "hardsight_studies.engine.figures", "hardsight_studies.engine.running", "hardsight_studies.engine.pages",
    "hardsight.engines.images", "hardsight.models", "torch.utils.data", "PIL.ImageOps", "PIL.PngImagePlugin",
    "PIL.JpegImagePlugin", "PIL.TiffImagePlugin", "PIL.WebPImagePlugin", "PIL.GifImagePlugin",
)  # fmt: skip


def beside(path: Path) -> ModuleType:
    """The module of a file, which is no part of a package."""
    spec = importlib.util.spec_from_file_location(f"hostile_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def ended(command: list[str], folder: Path, lib: Callable[[str], None]) -> dict[str, Any]:
    """Run a command in a process split off this one."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _run(command, folder, lib)
    began, status, usage = time.monotonic(), 0, None
    while usage is None:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            usage = used
        elif time.monotonic() - began > PATIENCE or _seconds(child) > 2 * SECONDS:
            os.kill(child, signal.SIGKILL)
            _, status, usage = os.wait4(child, 0)
        else:
            time.sleep(0.002)
    took, told = time.monotonic() - began, folder.with_name("told")
    # One that was killed tells nothing.
    peak, waited = json.loads(told.read_text()) if told.exists() else (usage.ru_maxrss * 1024, 0)
    return {
        "code": os.waitstatus_to_exitcode(status),
        "said": folder.with_name("said").read_bytes().decode(errors="backslashreplace"),
        "seconds": took - waited,
        "memory": peak - int(folder.with_name("before").read_text()),
    }


def _seconds(child: int) -> float:
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _run(command: list[str], folder: Path, lib: Callable[[str], None]) -> None:
    code = 70
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        folder.with_name("before").write_text(str(memory("VmRSS")))
        space = memory("VmSize") + MOST
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        said = os.open(folder.with_name("said"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.chdir(folder)
        sys.path.insert(0, "")
        sys.argv = ["hardsight", *command]
        code = _code(command, lib)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
            # Nanoseconds on a processor, and in wait for one.
            waited = int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
            folder.with_name("told").write_text(json.dumps([memory("VmHWM"), waited]))
        os._exit(code)


def _code(command: list[str], lib: Callable[[str], None]) -> int:
    from hardsight.cli import main
    from hardsight.cli.printing import one_sentence

    try:
        if command[0] == "lib":
            import typer

            try:
                with one_sentence():
                    lib(command[1])
            except typer.Exit as end:
                return end.exit_code
            return 0
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def wrong(done: dict[str, Any]) -> list[str]:
    """What is wrong with how a command ended."""
    found = []
    if done["code"] not in (0, 1, 2) or "Traceback" in done["said"] or "Error:" in done["said"]:
        found.append(f"ended with {done['code']}")
    if done["code"] == 2 and len(done["said"].splitlines()) > 1:
        found.append("more than one sentence")
    # A table that is printed has its ids whole, however long they are.
    if done["code"] and len(done["said"]) > 20_000:
        found.append(f"{len(done['said']):,} letters")
    if re.search("[^\n\t -~\u00a1-\u200d\u2010-\u2027\u202f-\u2065\u206a-\U0010ffff]", done["said"]):
        found.append("commands the terminal")
    if done["seconds"] > SECONDS:
        found.append(f"{done['seconds']:.0f} seconds")
    if done["memory"] > GIB:
        found.append(f"{done['memory'] // MIB:,} MiB")
    return found


def main() -> None:
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    here = Path(__file__).parent
    names = ("worlds", "written", "damage", "inventions", "bombs")
    worlds, written, harm, inventions, bombs = (beside(here / f"{name}.py") for name in names)
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    layouts = worlds.layouts(beside(here.parent / "datasets" / "conftest.py").BUILDERS)
    known = worlds.WORLDS | layouts
    known |= {
        name: worlds.World(build, commands, ends=ends, weight=weight)
        for name, (build, commands, ends, weight) in written.WRITTEN.items()
    }
    wanted = sys.argv[3:]
    known = {name: world for name, world in known.items() if not wanted or name in wanted}
    failures, ran, held, honestly, least = [], {}, {}, {}, {}
    with tempfile.TemporaryDirectory() as place:
        honest = {}
        for name, world in known.items():
            honest[name] = Path(place) / "honest" / name
            honest[name].mkdir(parents=True)
            world.build(honest[name])
            for command in world.commands:
                done = ended(command, _copied(place, honest[name]), worlds.read_in_library)
                honestly[name, *command] = done["memory"]
                least[command[0]] = min(least.get(command[0], MOST), done["memory"])
                if done["code"] not in world.ends:
                    failures.append({"input": f"{name}, honest", "command": command, "wrong": ["refused"], **done})
        for name, build in bombs.BOMBS.items():
            if name not in wanted and (wanted or count < LONG):
                continue
            folder = _fresh(place)
            command = build(folder)
            done = ended(command, folder, worlds.read_in_library)
            done["memory"] -= least.get(command[0], 0)
            problems = wrong(done)
            ran[f"bomb: {name}"] = [round(done["seconds"], 1), done["memory"] // MIB, done["code"]]
            if problems:
                failures.append({"input": name, "command": command, "wrong": problems, "said": done["said"][-1500:]})
                print(json.dumps(failures[-1]), file=sys.stderr, flush=True)
        # Who stops it is told what was found.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            for number in range(count if known else 0):
                chance = random.Random(f"{seed} {number}")
                name, command = worlds.chosen(known, chance)
                folder = _copied(place, honest[name])
                files = worlds.files_of(folder)
                invented = chance.random() < 0.4 and inventions.invent(files, chance)
                for _ in range(0 if invented and chance.random() < 0.8 else chance.choice((1, 1, 1, 2, 5))):
                    # What was invented may have taken the place of every file.
                    there = [file for file in files if file.is_file()]
                    if there:
                        (harm.rename if chance.random() < 0.05 else harm.damage)(chance.choice(there), chance)
                done = ended(command, folder, worlds.read_in_library)
                done["memory"] -= honestly[name, *command]
                problems = wrong(done)
                key = f"{name}: exit {done['code']}"
                ran[key] = ran.get(key, 0) + 1
                held[name] = max(held.get(name, 0), done["memory"] // MIB)
                if problems:
                    failures.append(
                        {
                            "input": f"{name} {seed} {number}",
                            "command": command,
                            "wrong": problems,
                            "said": done["said"][-1500:],
                        }
                    )
                    print(json.dumps(failures[-1]), file=sys.stderr, flush=True)
                if number % 100 == 99:
                    print(f"{number + 1} of {count}, {len(failures)} wrong", file=sys.stderr, flush=True)
    print(json.dumps({"ran": ran, "most MiB": held, "wrong": failures}))
    sys.exit(bool(failures))


def _copied(place: str, honest: Path) -> Path:
    folder = _fresh(place)
    shutil.copytree(honest, folder, dirs_exist_ok=True)
    return folder


def _fresh(place: str) -> Path:
    folder = Path(place) / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("told", "said", "before"):
        folder.with_name(name).unlink(missing_ok=True)
    return folder


if __name__ == "__main__":
    main()
