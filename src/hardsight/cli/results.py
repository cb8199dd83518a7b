"""What is done with an audit or a record: `hardsight check`, `advise`, `explore` and `report`."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json

_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


def _limit(kind: str) -> Any:
    return Option(f"--max-{kind}", metavar="N|N%", help=f"Most samples that may be {kind.replace('-', ' ')}.")


def check(
    source: Annotated[
        Path, Argument(metavar="SOURCE", help="What `hardsight audit` takes; an audit's folder is read as it is.")
    ],
    mislabelled: Annotated[str | None, _limit("mislabelled")] = None,
    ambiguous: Annotated[str | None, _limit("ambiguous")] = None,
    hard: Annotated[str | None, _limit("hard")] = None,
    outliers: Annotated[str | None, _limit("outlier")] = None,
    near_duplicates: Annotated[str | None, _limit("near-duplicate")] = None,
    leakage: Annotated[str | None, _limit("leakage")] = None,
    conflict: Annotated[str | None, _limit("conflict")] = None,
    left_out: Annotated[str | None, _limit("left-out")] = None,
    features: Annotated[str | None, Option(help="As `hardsight audit` takes it.")] = None,
    probabilities: Annotated[str | None, Option(help="As `hardsight audit` takes it.")] = None,
    backbone: Annotated[str | None, Option(help="As `hardsight audit` takes it.")] = None,
    size: Annotated[int | None, Option(min=1, help="Side of the backbone's images.")] = None,
    label: Annotated[str, Option(help="Column of the labels.")] = "label",
    text: Annotated[str | None, Option(help="Column of texts.")] = None,
    groups: Annotated[str | None, Option(help="Column of groups that no fold parts.")] = None,
    layout: Annotated[str | None, Option(help="How the data is laid out.")] = None,
    split: Annotated[str | None, Option(help="Which part of the data.")] = None,
    seed: Annotated[int, Option(help="Of the folds.")] = 0,
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


def advise(
    source: Annotated[
        Path, Argument(metavar="SOURCE", help="An audit's folder, a run's, or a Parquet table of scores with labels.")
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


def explore(
    source: Annotated[
        Path, Argument(metavar="SOURCE", help="An audit's folder, a run's, or a Parquet table of scores.")
    ],
    images: Annotated[Path | None, Option(help="Folder of the images. [default: where they were scored]")] = None,
    show: Annotated[list[str] | None, Option(help="Column to be seen on every card; may be given again.")] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0 for any.")] = 0,
    host: Annotated[str, Option(help="Address to listen on; any but this lets other machines in.")] = "127.0.0.1",
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Look at the samples and decide what happens to them: keep, relabel or drop.

    Decisions are in marks.jsonl at once, and in actions.csv for `hardsight audit --apply`.

    Example: hardsight explore scores-audit --images photos
    """
    with one_sentence("images", "show", "port", "host"):
        from hardsight.explorer import explore as serve

        with serve(source, images, show=show or (), host=host, port=port, browser=browser) as page:
            say(f"page: {page.url}", flush=True)
            say("stop with Ctrl-C; decisions are kept", flush=True)
            page.wait()


def report(
    run: Annotated[Path, Argument(help="Folder of a run record, or a Parquet table of scores.")],
    output: Annotated[
        Path | None, Option("--output", "-o", help="Where to write the page. [default: RUN/report.html, TABLE.html]")
    ] = None,
    figures: Annotated[bool, Option("--figures", help="Also save each figure as RUN/figures/NAME.png.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report of a run: one file that opens anywhere, offline.

    Example: hardsight report runs/demo --output demo.html
    """
    from hardsight.report import write_figures, write_report

    with one_sentence():
        page = write_report(run, output)
        saved = write_figures(run) if figures else []
    if as_json:
        say_json({"report": str(page), "figures": [str(path) for path in saved]})
        return
    say(f"report: {page}")
    if saved:
        say(f"figures: {len(saved)} in {saved[0].parent}")
