"""`hardsight align`: do the scores of a table see what people see?"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hardsight.cli.errors import one_sentence
from hardsight.cli.pages import left_out
from hardsight.cli.printing import print_table, say, say_json

RESULTS_FILE = "alignment.json"


def align(
    scores_file: Annotated[
        Path, typer.Argument(metavar="SCORES.PARQUET", help="A table of scores, with ids; also .csv.")
    ],
    humans_file: Annotated[Path, typer.Argument(metavar="HUMANS.CSV", help="What people said, with the same ids.")],
    human: Annotated[
        str | None, typer.Option("--human", help="Column of HUMANS.CSV. [default: the only one of numbers]")
    ] = None,
    scores: Annotated[
        str | None, typer.Option("--scores", help="Columns of SCORES.PARQUET, as avh,confidence. [default: all scores]")
    ] = None,
    id_column: Annotated[str, typer.Option("--id", help="The column that both files share.")] = "id",
    larger_is: Annotated[
        str, typer.Option("--larger-is", help="What a larger human value means: easier (a frequency) or harder.")
    ] = "easier",
    method: Annotated[
        str, typer.Option("--method", help="For tests, bins and classes: spearman, pearson or kendall.")
    ] = "spearman",
    coarse: Annotated[
        Path | None, typer.Option("--coarse", help="Coarse classes: CSV with fine, coarse, or JSON {coarse: [fine]}.")
    ] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Go on where each file has ids the other lacks.")] = False,
    resamples: Annotated[
        int | None,
        typer.Option(
            "--resamples", min=0, help="Bootstrap draws; 0 for no intervals. [default: 1000; large tables: fewer]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the bootstrap.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write. [default: SCORES-align]")
    ] = None,
    page: Annotated[bool, typer.Option("--page/--no-page", help="Write alignment.html.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON, for machines.")] = False,
) -> None:
    """Correlate every score with what people said: coefficients, intervals, tests between the scores, bins, classes.

    Writes alignment.json and a page of figures, alignment.html.

    Examples:

        hardsight align scores.parquet humans.csv

        hardsight align scores.parquet humans.csv --human selection_frequency --scores avh,confidence -o results/
    """
    with one_sentence("method", "scores"):
        import numpy as np

        from hardsight.alignment import align_scores
        from hardsight.alignment.tables import read_joined
        from hardsight.records import check_writable, plain, write_json

        if larger_is not in ("easier", "harder"):
            raise ValueError(f"--larger-is must be easier or harder; got {larger_is!r}")
        folder = output or scores_file.with_name(f"{scores_file.stem}-align")
        # Before the work, which may take a minute, not after it.
        check_writable(folder / RESULTS_FILE)
        joined = read_joined(
            scores_file,
            humans_file,
            human=human,
            names=None if scores is None else [name.strip() for name in scores.split(",") if name.strip()],
            id_column=id_column,
            human_direction=larger_is,
            partial=partial,
        )
        samples = len(joined.match.first)
        if resamples is None:
            resamples = default_resamples(samples, len(joined.scores))
        with _busy(f"correlating {len(joined.scores)} scores over {samples:,} samples"):
            results = align_scores(
                _directed(joined.scores),
                joined.human,
                labels=joined.labels,
                correct=joined.correct,
                coarse_of=None if coarse is None else _coarse(coarse, joined.labels),
                method=method,
                resamples=resamples,
                generator=np.random.default_rng(seed),
            )
        results |= _origin(joined, scores_file, humans_file, seed)
        write_json(folder / RESULTS_FILE, results)
        written = _page(folder) if page else "left out"
    if as_json:
        say_json(plain(results), indent=2)
        return
    _print(results, page)
    say(f"results: {folder / RESULTS_FILE}")
    say(f"page: {written}")


def default_resamples(samples: int, scores: int) -> int:
    """1000 draws, or as many of so many samples as take about a minute, but 100 at least.

    Intervals narrow as samples grow: of a million, ends that are known to a tenth of the interval are known well.
    """
    return max(100, min(1000, 300_000_000 // (samples * scores)))


def _busy(text: str) -> AbstractContextManager[Any]:
    """A spinner on a terminal, nothing in a pipe."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(text) if console.is_terminal else nullcontext()


def _directed(scores: Sequence[Any]) -> list[Any]:
    """Scores under a registered name point as the registry says, where their own column does not."""
    from hardsight.hardness import SCORES

    known = {name: "harder" if score.larger_is_harder else "easier" for name, score in SCORES.items()}
    return [one if one.direction else replace(one, direction=known.get(one.name)) for one in scores]


def _coarse(path: Path, labels: Any) -> dict[Any, str]:
    """The mapping in the file, for the labels that occur: their names, or their numbers as text."""
    from hardsight.alignment.tables import read_coarse

    groups = read_coarse(path)
    if labels is None:
        raise ValueError("--coarse needs a column 'label' in the table of scores, without gaps")
    return {one: groups[str(one)] for one in set(labels.tolist()) if str(one) in groups}


def _origin(joined: Any, scores_file: Path, humans_file: Path, seed: int) -> dict[str, Any]:
    names = (scores_file.name, humans_file.name)
    return {
        "source": {"scores": str(scores_file), "humans": str(humans_file)},
        "join": joined.match.sentence(names) + ".",
        "join_incomplete": bool(joined.match.only_first or joined.match.only_second),
        "left_out": joined.left_out,
        "seed": seed,
    }


def _page(folder: Path) -> str:
    """Write the page and return its path, or why there is none."""
    reason = left_out()
    if reason is not None:
        return reason
    from hardsight.report.alignment_page import write_alignment_page

    return str(write_alignment_page(folder / RESULTS_FILE))


def _print(results: Mapping[str, Any], page: bool) -> None:
    from hardsight.alignment.words import notices

    say(results["join"])
    for reason in results["left_out"].values():
        say(f"left out: {reason}")
    for notice in notices(results):
        say(notice)
    method = results["method"]
    rows = sorted(results["scores"], key=lambda score: -score["correlations"][method]["coefficient"])
    header = ("score", "larger is", "spearman", "interval", "p", "pearson", "kendall", "given correctness")
    print_table(f"agreement with {results['human']['name']}", header, [_row(score, results) for score in rows])
    pairs = results["comparisons"]
    if pairs:
        header = ("stronger", "weaker", "difference", "interval", "Meng p", "Holm", "Steiger p", "Fisher p")
        print_table(f"tests between the scores, by {method}", header, [_pair(pair) for pair in pairs])
        for reason in dict.fromkeys(pair["reason"] for pair in pairs if pair.get("reason")):
            say(f"no test: {reason}")
    bins = results["bins"]
    groups = next(iter(bins["groups"].values()))
    edges = ("score", *(f"{low:.4g} to {high:.4g}" for low, high in (group["group"] for group in groups)))
    lines = [["samples", *(f"{group['n']:,}" for group in groups)]]
    lines += [[row["name"], *(_within(group) for group in bins["groups"][row["name"]])] for row in rows]
    print_table(f"within bins of {results['human']['name']}, by {method}", edges, lines)
    if results["classes"]:
        of_scores = results["classes"].values()
        some = any(group["correlation"] for of_score in of_scores for group in of_score)
        there = f"in {RESULTS_FILE}{' and on the page' if page else ''}"
        where = there if some else "too small or constant for a correlation"
        say(f"{len(next(iter(of_scores)))} classes: {where}")


def _row(score: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    found, held = score["correlations"], score["given_correctness"] or {}
    return [
        score["name"],
        score["direction"] or "?",
        _number(found["spearman"]["coefficient"]),
        _interval(found["spearman"]["interval"]),
        _p(found["spearman"]["p_value"]),
        _number(found["pearson"]["coefficient"]),
        _number(found["kendall"]["coefficient"]),
        _number(held.get("coefficient")),
    ]


def _pair(pair: Mapping[str, Any]) -> list[str]:
    tests = [(pair.get(name) or {}).get("p_value") for name in ("meng", "steiger", "fisher")]
    meng, steiger, fisher = (_p(value) for value in tests)
    named = [pair["first"], pair["second"], f"{pair['difference']:.4f}", _interval(pair.get("interval"), 4)]
    return [*named, "no test" if pair.get("reason") else meng, _p(pair.get("meng_holm")), steiger, fisher]


def _within(group: Mapping[str, Any]) -> str:
    return _number(group["correlation"]["coefficient"]) if group["correlation"] else "-"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _p(value: float | None) -> str:
    if value is None:
        return ""
    return "<1e-300" if value < 1e-300 else f"{value:.2g}"


def _interval(interval: Mapping[str, Any] | None, decimals: int = 3) -> str:
    return "" if not interval else f"{interval['low']:.{decimals}f} to {interval['high']:.{decimals}f}"
