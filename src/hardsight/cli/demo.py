"""`hardsight demo`: the main job, on data that the library brings; `hardsight bench`: its kernels on this GPU."""

from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

from typer import Option

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json, why_no_page

_SUSPECTS, _SCORES = 8, 8
_ALWAYS_SHOWN = ("avh", "confidence", "norm")


def demo(
    output: Annotated[Path, Option("--output", "-o", help="Folder of the run record.")] = Path("runs/demo"),
    noise: Annotated[float, Option(help="Share of the training labels to flip.")] = 0.2,
    epochs: Annotated[int, Option(help="Passes over the training set.")] = 20,
    seed: Annotated[int, Option(help="Everything random follows from it.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Train on digits with wrong labels among them, find these labels, and write a page about it.

    Example: `hardsight demo --noise 0.3 --output runs/demo30`
    """
    from hardsight.demo import run_demo

    with one_sentence("epochs", "seed", rate="--noise", folder="--output"):
        quiet: dict[str, Any] = {"progress": False, "say": lambda line: None} if as_json else {"say": say}
        result = run_demo(output, noise_rate=noise, epochs=epochs, seed=seed, **quiet)
    if as_json:
        told = ("report", "samples", "flipped", "test_accuracy", "ranked_by", "estimated", "found")
        scores = {
            one.score: {"auroc": one.auroc, "average_precision": one.average_precision} for one in result.detections
        }
        say_json({name: getattr(result, name) for name in told} | {"scores": scores})
        return
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


def bench(
    only: Annotated[str | None, Option(help="One op, such as angular_scores.")] = None,
    compiled: Annotated[bool, Option(help="Time torch.compile of the plain version too; takes minutes.")] = True,
    save: Annotated[Path | None, Option(help="Append the rows to this table, such as benchmarks/results.csv.")] = None,
    as_json: AsJson = False,
) -> None:
    """Time the fused kernels on this machine's GPU: ours, plain, compiled, and the floor no version goes under.

    Examples:

        hardsight bench

        hardsight bench --only rescaled_cross_entropy --no-compiled
    """
    with one_sentence("only"):
        from hardsight import benchmark

        def keep(row: Any) -> None:
            # Each row at once, so that an interruption loses none.
            if save is not None:
                benchmark.append([row], save)
            if not as_json:
                _print_row(row)

        rows = benchmark.run(only, compiled, seen=keep)
    if as_json:
        say_json([asdict(row) for row in rows])
    else:
        first = rows[0]
        kept = "" if save is None else f"; appended to {save}"
        say(f"{first.device}, torch {first.torch}, triton {first.triton}{kept}")


def _print_row(row: Any) -> None:
    spread = f"{row.median_ms:9.3f} ms ({row.p20_ms:.3f} to {row.p80_ms:.3f})"
    say(f"{row.op:30} {row.shape:26} {row.variant:28} {spread:36} {row.peak_mib:9.1f} MiB", flush=True)
