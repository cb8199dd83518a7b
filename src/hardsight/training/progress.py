"""What a person sees while it trains: a bar on a terminal, one plain line an epoch in a pipe, trackers on request."""

import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from hardsight.names import visible


class Progress:
    """Shows steps and epochs. `wanted` None: a bar on a terminal and lines elsewhere; False: nothing."""

    # A terminal shows one bar; of several trainings at once the others write lines.
    _shown: ClassVar[bool] = False

    def __init__(self, name: str, epochs: int, steps: int, wanted: bool | None = None, done: int = 0) -> None:
        self.name, self.epochs, self.steps, self.done = visible(name), epochs, steps, done
        self.wanted = wanted
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if self.wanted is not False and sys.stderr.isatty() and not Progress._shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar
            from rich.table import Column

            # Without markup: a run may be called what rich takes for a tag.
            name = TextColumn("{task.description}", markup=False)
            columns = (name, BarColumn(16), MofNCompleteColumn(), TimeRemainingColumn())
            # The numbers get what is left of the line: else they push out the bar, and all but a letter of the name.
            latest = TextColumn("{task.fields[latest]}", table_column=Column(ratio=1, no_wrap=True))
            self._bar = Bar(*columns, latest, console=Console(stderr=True), expand=True)
            self._task = self._bar.add_task(self.name, total=self.epochs * self.steps, completed=self.done, latest="")
            self._bar.start()
            Progress._shown = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            Progress._shown = False

    def advance(self) -> None:
        """One step is done."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def epoch(self, row: Mapping[str, float | int]) -> None:
        """One epoch is done, with these numbers."""
        line = ", ".join(_said(name, row[name]) for name in _SHOWN if name in row)
        if self._bar is not None:
            self._bar.update(self._task, latest=line)
        elif self.wanted is not False:
            print(f"{self.name}: epoch {row['epoch']:g}/{self.epochs}, {line}, {row['seconds']:.1f} s", file=sys.stderr)

    def note(self, sentence: str) -> None:
        """Something that a person should know now."""
        line = visible(f"{self.name}: {sentence}")
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        elif self.wanted is not False:
            print(line, file=sys.stderr)


_SHOWN = ("train_loss", "train_accuracy", "test_accuracy", "corrupted_accuracy", "intact_accuracy")


def _said(name: str, value: float) -> str:
    words = name.replace("_", " ")
    return f"{words} {100 * value:.2f} %" if name.endswith("accuracy") else f"{words} {value:.4f}"
