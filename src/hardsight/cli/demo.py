"""`hardsight demo`: the main job on embedded data, told so that a person likes to read it."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from hardsight.cli.errors import one_sentence
from hardsight.cli.pages import left_out
from hardsight.cli.printing import say_json
from hardsight.names import visible

if TYPE_CHECKING:
    from rich.console import Console

    from hardsight.demo import DemoResult


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the run record.")] = Path("runs/demo"),
    noise: Annotated[float, typer.Option(help="Share of the training labels to flip.")] = 0.2,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 20,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Train on digits with wrong labels among them, find these labels, and write a page about it.

    Example: `hardsight demo --noise 0.3 --output runs/demo30`
    """
    from hardsight.demo import run_demo

    with one_sentence("epochs", "seed", rate="--noise", folder="--output"):
        say = (lambda line: None) if as_json else print
        result = run_demo(
            output, noise_rate=noise, epochs=epochs, seed=seed, progress=False if as_json else None, say=say
        )
    if as_json:
        say_json(_as_dict(result))
    else:
        _show(result)


def _as_dict(result: "DemoResult") -> dict:
    return {
        "report": str(result.report) if result.report else None,
        "samples": result.samples,
        "flipped": result.flipped,
        "test_accuracy": result.test_accuracy,
        "ranked_by": result.ranked_by,
        "estimated": result.estimated,
        "found": result.found,
        "scores": {
            one.score: {"auroc": one.auroc, "average_precision": one.average_precision} for one in result.detections
        },
    }


def _show(result: "DemoResult") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Paths are to be copied: no line is broken for the width of the window.
    console = Console(soft_wrap=True)
    although = f" although {result.flipped} labels were wrong" if result.flipped else ""
    console.print(f"test accuracy [bold]{result.test_accuracy:.1%}[/]{although}\n")
    console.print(
        f"suspicious labels, ranked by [bold]{result.ranked_by}[/]: {result.estimated} expected to be wrong, "
        f"[bold]{result.found}[/] of them are ({result.flipped} were flipped)"
    )
    suspects = Table("rank", "id", "label", "looks like", "suspicion", box=None, pad_edge=False, header_style="dim")
    for row in result.suspects.slice(0, 8).to_pylist():
        suspects.add_row(
            str(row["rank"]), str(row["id"]), row["label_name"], row["expected_name"], f"{row['suspicion']:.4f}"
        )
    if suspects.row_count:
        console.print(suspects)
    _show_detections(console, result)
    page = result.report or left_out()
    for word, value in (
        ("page", page),
        ("record", result.folder),
        ("next", f"hardsight audit {quote(str(result.folder))}"),
    ):
        console.print(f"{word:<7}", Text(visible(str(value)), style="bold"), sep="")


def _show_detections(console: "Console", result: "DemoResult") -> None:
    from rich.table import Table

    if not result.detections:
        return
    console.print("\nhow well each score tells the flipped labels from the intact ones")
    scores = Table("score", "AUROC", "average precision", box=None, pad_edge=False, header_style="dim")
    for one in [
        *result.detections[:8],
        *(d for d in result.detections[8:] if d.score in ("avh", "confidence", "norm")),
    ]:
        scores.add_row(one.score, f"{one.auroc:.3f}", f"{one.average_precision:.3f}")
    console.print(scores)
