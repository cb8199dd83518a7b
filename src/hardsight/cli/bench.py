"""`hardsight bench`: the fused kernels beside the plain version, its compiled form and the floor."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from hardsight.cli.printing import AsJson, one_sentence, say, say_json


def bench(
    only: Annotated[str | None, typer.Option("--only", help="One op, such as angular_scores.")] = None,
    compiled: Annotated[bool, typer.Option(help="Time torch.compile of the plain version too; takes minutes.")] = True,
    save: Annotated[
        Path | None, typer.Option(help="Append the rows to this table, such as benchmarks/results.csv.")
    ] = None,
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
                _print(row)

        rows = benchmark.run(only, compiled, seen=keep)
    if as_json:
        say_json([asdict(row) for row in rows])
    else:
        first = rows[0]
        kept = "" if save is None else f"; appended to {save}"
        say(f"{first.device}, torch {first.torch}, triton {first.triton}{kept}")


def _print(row: Any) -> None:
    spread = f"{row.median_ms:9.3f} ms ({row.p20_ms:.3f} to {row.p80_ms:.3f})"
    say(f"{row.op:30} {row.shape:26} {row.variant:28} {spread:36} {row.peak_mib:9.1f} MiB", flush=True)
