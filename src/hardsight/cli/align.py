"""`hardsight align`: do the scores of a table agree with people?"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from hardsight.cli.printing import AsJson, one_sentence, print_table, say, say_json, why_no_page

RESULTS_FILE = "alignment.json"
_TESTS = ("meng", "steiger", "fisher")


def align(
    scores_file: Annotated[Path, Argument(metavar="SCORES.PARQUET", help="A table of scores, with ids; also .csv.")],
    humans_file: Annotated[Path, Argument(metavar="HUMANS.CSV", help="What people said, with the same ids.")],
    human: Annotated[str | None, Option(help="Column of HUMANS.CSV. [default: the only one of numbers]")] = None,
    scores: Annotated[
        str | None, Option(help="Columns of SCORES.PARQUET, as avh,confidence. [default: all scores]")
    ] = None,
    id_column: Annotated[str, Option("--id", help="The column that both files share.")] = "id",
    larger_is: Annotated[
        str, Option(help="What a larger human value means: easier (a frequency) or harder.")
    ] = "easier",
    method: Annotated[str, Option(help="For tests, bins and classes: spearman, pearson or kendall.")] = "spearman",
    coarse: Annotated[
        Path | None, Option(help="Coarse classes: CSV with fine, coarse, or JSON {coarse: [fine]}.")
    ] = None,
    partial: Annotated[bool, Option("--partial", help="Go on where each file has ids the other lacks.")] = False,
    resamples: Annotated[
        int | None, Option(min=0, help="Bootstrap draws; 0 for no intervals. [default: 1000; large tables: fewer]")
    ] = None,
    seed: Annotated[int, Option(min=0, help="Of the bootstrap.")] = 0,
    disagree: Annotated[
        int, Option("--disagreements", min=0, help="So many samples that people, and that the score, find harder.")
    ] = 0,
    data: Annotated[Path | None, Option(help="The images, where the scores do not say where they are.")] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder to write. [default: SCORES-align]")] = None,
    page: Annotated[bool, Option("--page/--no-page", help="Write alignment.html.")] = True,
    as_json: AsJson = False,
) -> None:
    """Correlate every score with what people said: coefficients, intervals, tests between the scores, bins, classes.

    Writes alignment.json and a page of figures, alignment.html.

    Examples:

        hardsight align scores.parquet humans.csv

        hardsight align scores.parquet humans.csv --human selection_frequency --scores avh,confidence -o results/

        hardsight align scores.parquet humans.csv --disagreements 12 --data photos/
    """
    with one_sentence("method", "scores"):
        import numpy as np
        from rich.console import Console

        from hardsight.alignment import align_scores, disagreements
        from hardsight.alignment.tables import read_joined
        from hardsight.hardness import SCORES
        from hardsight.records import check_writable, write_json

        if larger_is not in ("easier", "harder"):
            raise ValueError(f"--larger-is must be easier or harder; got {larger_is!r}")
        if data is not None and not disagree:
            raise ValueError("--data gives the pictures of --disagreements; give how many of them")
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
        samples = len(joined.ids)
        if resamples is None:
            resamples = default_resamples(samples, len(joined.scores))
        # Scores under a registered name point as the registry says, where their own column does not.
        known = {name: "harder" if score.larger_is_harder else "easier" for name, score in SCORES.items()}
        columns = [one if one.direction else replace(one, direction=known.get(one.name)) for one in joined.scores]
        console = Console(stderr=True)
        busy = console.status(f"correlating {len(columns)} scores over {samples:,} samples")
        with busy if console.is_terminal else nullcontext():
            results = align_scores(
                columns,
                joined.human,
                labels=joined.labels,
                correct=joined.correct,
                coarse_of=None if coarse is None else _coarse(coarse, joined.labels),
                method=method,
                resamples=resamples,
                generator=np.random.default_rng(seed),
            )
        results |= {
            "source": {"scores": str(scores_file), "humans": str(humans_file)},
            "join": f"{joined.match}.",
            "join_incomplete": joined.incomplete,
            "left_out": joined.left_out,
            "seed": seed,
        }
        if disagree:
            labels = None if joined.labels is None else joined.labels.tolist()
            found = disagreements(columns, joined.human, disagree, ids=joined.ids, labels=labels)
            results["disagreements"] = found
            names = _write_pictures(folder, found[results["scores"][0]["name"]], data, scores_file)
            for sample in (one for sides in found.values() for side in sides.values() for one in side):
                if isinstance(sample["label"], int) and 0 <= sample["label"] < len(names):
                    sample["label"] = names[sample["label"]]
        write_json(folder / RESULTS_FILE, results)
        written = why_no_page() if page else "left out"
        if written is None:
            from hardsight.report.alignment_page import write_alignment_page

            written = str(write_alignment_page(folder / RESULTS_FILE))
    if as_json:
        say_json(results)
        return
    _print(results, page)
    say(f"results: {folder / RESULTS_FILE}")
    say(f"page: {written}")


def default_resamples(samples: int, scores: int) -> int:
    """1000 draws, or as many of so many samples as take about a minute, but 100 at least.

    Intervals narrow as samples grow: of a million, ends that are known to a tenth of the interval are known well.
    """
    return max(100, min(1000, 300_000_000 // (samples * scores)))


def _coarse(path: Path, labels: Any) -> dict[Any, str]:
    """The coarse class of each label that occurs, by its name, or by its number as text."""
    from hardsight.datasets.hierarchy import read_groups

    coarse_of = {fine: coarse for coarse, members in read_groups(path).items() for fine in members}
    if labels is None:
        raise ValueError("--coarse needs a column 'label' in the table of scores, without gaps")
    return {one: coarse_of[str(one)] for one in set(labels.tolist()) if str(one) in coarse_of}


def _write_pictures(folder: Path, sides: Mapping[str, Any], data: Path | None, scores_file: Path) -> Sequence[str]:
    """Pictures of these samples, of the images that were scored, or those beside the scores; else none.

    Returns the names of the images' classes, where they have any.
    """
    import pyarrow as pa

    from hardsight.engines.images import scored_images, thumbnails
    from hardsight.records import read_table, write_table

    samples = [sample for side in sides.values() for sample in side]
    table = pa.table({"id": [sample["id"] for sample in samples]})
    if scores_file.suffix.lower() != ".csv":
        table = read_table(scores_file)
    images = scored_images(table, data)
    recorded, path = scores_file.parent / "thumbnails.parquet", folder / "thumbnails.parquet"
    if images is not None:
        write_table(path, thumbnails(images, [str(sample["id"]) for sample in samples]))
    elif recorded.is_file() and recorded != path:
        write_table(path, read_table(recorded))
    elif recorded != path:
        # Those of an earlier alignment may be of other images.
        path.unlink(missing_ok=True)
    return () if images is None else images.class_names


def _print(results: Mapping[str, Any], page: bool) -> None:
    from hardsight.alignment.analysis import decimals, interval_text, notes, p_text

    say(results["join"])
    scores, method = results["scores"], results["method"]
    name, human = scores[0]["name"], results["human"]["name"]
    noted = notes(results)
    if noted:
        print_table("notes", ("score", "note"), noted)
    rows: list[Sequence[Any]] = []
    for score in scores:
        found, held = score["correlations"], score["given_correctness"] or {}
        spearman = found["spearman"]
        others = [decimals(one) for one in (found["pearson"]["coefficient"], found["kendall"]["coefficient"])]
        first = [decimals(spearman["coefficient"]), interval_text(spearman["interval"]), p_text(spearman["p_value"])]
        rows.append([score["name"], score["direction"] or "?", *first, *others, decimals(held.get("coefficient"))])
    header = ["score", "larger is", "spearman", "interval", "p", "pearson", "kendall", "given correctness"]
    print_table(f"agreement with {human}", header, rows)
    rows = []
    for pair in results["comparisons"]:
        difference = [decimals(pair["difference"], 4), interval_text(pair.get("interval"), 4)]
        meng, steiger, fisher = (p_text((pair.get(name) or {}).get("p_value")) for name in _TESTS)
        tests = ["no test" if pair.get("reason") else meng, p_text(pair.get("meng_holm")), steiger, fisher]
        rows.append([pair["first"], pair["second"], *difference, *tests])
    if rows:
        header = ["stronger", "weaker", "difference", "interval", "Meng p", "Holm", "Steiger p", "Fisher p"]
        print_table(f"tests between the scores, by {method}", header, rows)
    bins = results["bins"]["groups"]
    groups = bins[name]
    rows = [["samples", *(f"{group['n']:,}" for group in groups)]]
    for score in scores:
        found = [group["correlation"] for group in bins[score["name"]]]
        rows.append([score["name"], *(decimals(one["coefficient"]) if one else "-" for one in found)])
    header = ["score", *(f"{low:.4g} to {high:.4g}" for low, high in (group["group"] for group in groups))]
    print_table(f"within bins of {human}, by {method}", header, rows)
    if results["classes"]:
        of_scores = results["classes"].values()
        some = any(group["correlation"] for of_score in of_scores for group in of_score)
        there = f"in {RESULTS_FILE}{' and on the page' if page else ''}"
        where = there if some else "too small or constant for a correlation"
        say(f"{len(next(iter(of_scores)))} classes: {where}")
    for side, samples in results.get("disagreements", {}).get(name, {}).items():
        harder = f"people than for {name}" if side == "people" else f"{name} than for people"
        rows = []
        for one in samples:
            ranks = decimals(one["human_rank"]), decimals(one["model_rank"])
            rows.append([one["id"], one["label"], f"{one['human']:.4g}", f"{one['score']:.4g}", *ranks])
        header = ["id", "class", human, name, "rank by people", f"rank by {name}"]
        print_table(f"harder for {harder}", header, rows)
