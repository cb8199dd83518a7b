"""`hardsight check`: does labelled data hold what was promised of it? One table, and exit code 1 where it does not."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json

_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


def _limit(kind: str) -> Any:
    return typer.Option(f"--max-{kind}", metavar="N|N%", help=f"Most samples that may be {kind.replace('-', ' ')}.")


def check(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="What `hardsight audit` takes; an audit's folder is read as it is.")
    ],
    mislabelled: Annotated[str | None, _limit("mislabelled")] = None,
    ambiguous: Annotated[str | None, _limit("ambiguous")] = None,
    hard: Annotated[str | None, _limit("hard")] = None,
    outliers: Annotated[str | None, _limit("outlier")] = None,
    near_duplicates: Annotated[str | None, _limit("near-duplicate")] = None,
    leakage: Annotated[str | None, _limit("leakage")] = None,
    conflict: Annotated[str | None, _limit("conflict")] = None,
    left_out: Annotated[str | None, _limit("left-out")] = None,
    features: Annotated[str | None, typer.Option("--features", help="As `hardsight audit` takes it.")] = None,
    probabilities: Annotated[str | None, typer.Option("--probabilities", help="As `hardsight audit` takes it.")] = None,
    backbone: Annotated[str | None, typer.Option("--backbone", help="As `hardsight audit` takes it.")] = None,
    size: Annotated[int | None, typer.Option("--size", min=1, help="Side of the backbone's images.")] = None,
    label: Annotated[str, typer.Option("--label", help="Column of the labels.")] = "label",
    text: Annotated[str | None, typer.Option("--text", help="Column of texts.")] = None,
    groups: Annotated[str | None, typer.Option("--groups", help="Column of groups that no fold parts.")] = None,
    layout: Annotated[str | None, typer.Option("--layout", help="How the data is laid out.")] = None,
    split: Annotated[str | None, typer.Option("--split", help="Which part of the data.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the folds.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Audit data and compare what is found with limits: exit code 0 within all of them, 1 beyond one.

    Nothing is written, except a backbone's features, beside the data as `hardsight audit` does.

    Examples:

        hardsight check photos/ --backbone package:efficientnet_lite0 --max-mislabelled 1% --max-leakage 0

        hardsight check reviews.csv --features embeddings.npy --label stars --max-mislabelled 2%
    """
    wanted = {
        "mislabelled": mislabelled, "ambiguous": ambiguous, "hard": hard, "outlier": outliers,
        "near_duplicate": near_duplicates, "leakage": leakage, "conflict": conflict, "left_out": left_out,
    }  # fmt: skip
    told = "layout split features probabilities backbone size text groups label"
    with one_sentence(*told.split()):
        from hardsight.cleaning.auditing import of_opened
        from hardsight.cleaning.sources import Options, open_source, output_of

        limits = {kind: _parsed(kind, given) for kind, given in wanted.items() if given is not None}
        if not limits:
            raise ValueError("a limit must be given, such as --max-mislabelled 1%")
        options = Options(label, features, probabilities, backbone, text, (), groups, None, layout, split, size,
                          output_of(source))  # fmt: skip
        found = of_opened(open_source(source, options), seed=seed)
        counts = {kind: one.count for kind, one in found.findings.counts.items()} | {"left_out": len(found.left_out)}
        unknown = next((kind for kind in limits if kind not in counts), None)
        if unknown is not None:
            raise ValueError(
                f"--max-{unknown.replace('_', '-')} must be of what {source} shows, {', '.join(counts)}; features and "
                "splits show more"
            )
    samples = found.issues.table.num_rows + len(found.left_out)
    rows = []
    for kind, (limit, share) in limits.items():
        within = counts[kind] <= (limit / 100 * samples if share else limit)
        rows.append({"kind": kind, "count": counts[kind], "share": counts[kind] / samples,
                     "most": f"{limit:g}{'%' if share else ''}", "within": within})  # fmt: skip
    passed = all(row["within"] for row in rows)
    if as_json:
        say_json({"samples": samples, "passed": passed, "checks": rows})
    else:
        lines = [[row["kind"].replace("_", " "), row["count"], f"{row['share']:.2%}", row["most"],
                  "yes" if row["within"] else "NO"] for row in rows]  # fmt: skip
        print_table(f"{source}, {samples:,} samples", ("kind", "found", "share", "most", "within"), lines)
        say("within all limits" if passed else "beyond a limit")
    raise typer.Exit(0 if passed else 1)


def _parsed(kind: str, given: str) -> tuple[float, bool]:
    """A limit as a number, and whether it is per cent."""
    match = _LIMIT.fullmatch(given.strip())
    share = bool(match and match[2])
    if match is None or (share and float(match[1]) > 100) or (not share and "." in match[1]):
        raise ValueError(
            f"--max-{kind.replace('_', '-')} must be a count such as 25 or a share such as 1%; got {given!r}"
        )
    return float(match[1]), share
