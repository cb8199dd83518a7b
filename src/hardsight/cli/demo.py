"""`hardsight demo`: the main job, on data that the library brings."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json, why_no_page

if TYPE_CHECKING:
    from hardsight.demo import DemoResult

_SUSPECTS, _SCORES = 8, 8
_ALWAYS_SHOWN = ("avh", "confidence", "norm")


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the run record.")] = Path("runs/demo"),
    noise: Annotated[float, typer.Option(help="Share of the training labels to flip.")] = 0.2,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 20,
    seed: Annotated[int, typer.Option(help="Everything random follows from it.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Train on digits with wrong labels among them, find these labels, and write a page about it.

    Example: `hardsight demo --noise 0.3 --output runs/demo30`
    """
    from hardsight.demo import run_demo

    with one_sentence("epochs", "seed", rate="--noise", folder="--output"):
        result = run_demo(
            output,
            noise_rate=noise,
            epochs=epochs,
            seed=seed,
            progress=False if as_json else None,
            say=(lambda line: None) if as_json else say,
        )
    if as_json:
        say_json(_summary(result))
    else:
        _print(result)


def _summary(result: "DemoResult") -> dict[str, Any]:
    return {
        "report": result.report,
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


def _print(result: "DemoResult") -> None:
    although = f" although {result.flipped} labels were wrong" if result.flipped else ""
    say(f"test accuracy {result.test_accuracy:.1%}{although}")
    say(
        f"suspicious labels, ranked by {result.ranked_by}: {result.estimated} expected to be wrong, {result.found} of "
        f"them are ({result.flipped} were flipped)"
    )
    header = ("rank", "id", "label", "looks like", "suspicion")
    rows = [
        [row["rank"], row["id"], row["label_name"], row["expected_name"], f"{row['suspicion']:.4f}"]
        for row in result.suspects.slice(0, _SUSPECTS).to_pylist()
    ]
    if rows:
        print_table("most suspicious first", header, rows)
    if result.detections:
        shown = [one for at, one in enumerate(result.detections) if at < _SCORES or one.score in _ALWAYS_SHOWN]
        rows = [[one.score, f"{one.auroc:.3f}", f"{one.average_precision:.3f}"] for one in shown]
        title = "how well each score separates the flipped labels from the intact ones"
        print_table(title, ("score", "AUROC", "average precision"), rows)
    say(f"page   {result.report or why_no_page()}")
    say(f"record {result.folder}")
    say(f"next   hardsight audit {quote(str(result.folder))}")
    say(f"look   hardsight explore {quote(str(result.folder))}")
