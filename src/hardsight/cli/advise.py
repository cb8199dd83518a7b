"""`hardsight advise`: what to do about the labels of a run or an audit, by what was measured."""

from pathlib import Path
from typing import Annotated

import typer

from hardsight.cli.printing import AsJson, one_sentence, say, say_json


def advise(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="An audit's folder, a run's, or a Parquet table of scores with labels."),
    ],
    as_json: AsJson = False,
) -> None:
    """Estimate the noise and its kind, and name the loss and the number of labels to look at that studies measured.

    Example: hardsight advise runs/demo
    """
    from hardsight.cleaning import advise as advice_on

    with one_sentence():
        advice = advice_on(source)
    if as_json:
        say_json(advice.facts())
        return
    for name, line in advice.lines():
        say(f"{name:10} {line}")
