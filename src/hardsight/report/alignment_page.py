"""The page of an alignment: its head and its sections, made from alignment.json alone."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hardsight.alignment.analysis import METHOD_NAMES, decimals, interval_text, notes, p_text
from hardsight.records import read_json, write_text
from hardsight.report import alignment_figures as figures
from hardsight.report.figures import MOST_CLASSES
from hardsight.report.gallery import Card, Ranking
from hardsight.report.page import Block, Cell, Column, Picture, Section, Table, Words, filled, render
from hardsight.report.reading import Score, thumbnails

WORDS = Words("alignment.toml")
# The results of an alignment as alignment.json holds them, and the pictures beside it.
Results = Mapping[str, Any]
Groups = Mapping[str, Sequence[Mapping[str, Any]]]


def write_alignment_page(record: Path | str, output: Path | str | None = None) -> Path:
    """Write the page of an alignment.json, beside it unless `output` says where."""
    record = Path(record)
    results = read_json(record)
    if not isinstance(results, dict) or "scores" not in results or "comparisons" not in results:
        raise ValueError(f"{record} must hold the results of an alignment, with scores and comparisons")
    path = record.with_suffix(".html") if output is None else Path(output)
    sides = (results.get("disagreements") or {}).get(results["scores"][0]["name"], {}).values()
    pictures = thumbnails(record.parent, [str(sample["id"]) for side in sides for sample in side])
    write_text(path, render_alignment({**results, "pictures": pictures}))
    return path


def render_alignment(results: Results) -> str:
    """The page as text; every word that comes from the results is escaped."""
    human = results["human"]
    facts = [f"{results['n']:,} samples", f"{len(results['scores'])} scores"]
    facts.append(f"human column {human['title']} (larger is {human['direction']})")
    # The strongest score's agreement, and how far it is above the next.
    best, method = results["scores"][0], results["method"]
    meaning = f"{METHOD_NAMES[method]} of {best['title']}, the strongest"
    tiles = [(decimals(best["correlations"][method]["coefficient"]), meaning)]
    for pair in results["comparisons"][:1]:
        between = interval_text(pair.get("interval"), 4)
        tiles.append((decimals(pair["difference"], 4), f"above {pair['second']}" + (f", {between}" if between else "")))
    return render(
        filled(SECTIONS, results), title=f"Alignment with {human['title']}",
        heading="Do the scores see what people see?", facts=facts, source="results",
        notices=[f"{name}: {note}" for name, note in notes(results)], tiles=tiles,
    )  # fmt: skip


def strengths(results: Results) -> Section:
    scores = results["scores"]
    columns = [
        Column(
            "Score", [Cell(one["title"], one["name"] if one["title"] != one["name"] else "") for one in scores], "name"
        ),
        Column("Larger is", [score["direction"] or "?" for score in scores], ""),
        *(
            Column(method.title(), [_coefficient(score["correlations"][method]) for score in scores])
            for method in METHOD_NAMES
        ),
        Column("Given correctness", [_coefficient(score["given_correctness"]) for score in scores]),
    ]
    words = f"Correlation of each score with {results['human']['title']}, with intervals"
    picture = Picture("strengths", figures.draw_strengths(scores), words, wide=True)
    blocks: list[Block] = [picture, Table("Correlations of each score", columns)]
    return WORDS.section("strengths", blocks, level=100 * results["level"])


def _coefficient(found: Mapping[str, Any] | None) -> str | Cell:
    if not found or found.get("coefficient") is None:
        return ""
    interval, p_value = interval_text(found.get("interval")), found.get("p_value")
    below = "" if p_value is None else f"p = {p_text(p_value)}".replace("= <", "<")
    return Cell(decimals(found["coefficient"]), beside=interval and f"({interval})", below=below)


def joint(results: Results) -> Section:
    human, edges, shown = results["human"]["title"], results["bins"]["edges"], results["scores"][: figures.MOST_PANELS]
    drawn = []
    for at, score in enumerate(shown):
        figure = figures.draw_joint(score, human, results["method"], edges)
        drawn.append(Picture(f"joint{at}", figure, f"Two-dimensional histogram of {human} against {score['title']}"))
    return WORDS.section("joint", drawn, layout="plots", shown=len(shown))


def comparisons(results: Results) -> Section | None:
    pairs = results["comparisons"]
    if not pairs:
        return None
    differences = [
        Cell(decimals(pair["difference"], 4), below=interval_text(pair.get("interval"), 4)) for pair in pairs
    ]
    columns = [
        Column("Stronger", [pair["first"] for pair in pairs], "name"),
        Column("Weaker", [pair["second"] for pair in pairs], "name"),
        Column("Difference", differences),
        *(
            Column(f"{name.title()}, Z", [_test(pair, name) for pair in pairs])
            for name in ("meng", "steiger", "fisher")
        ),
    ]
    drawn = figures.draw_comparisons(pairs, results["method"])
    picture = Picture("comparisons", drawn, "Differences between pairs of scores", wide=True)
    blocks: list[Block] = [picture, Table("Tests between scores", columns, tall=True)]
    why = next((pair["reason"] for pair in pairs if pair.get("reason")), "")
    facts: dict[str, Any] = {"pairs": len(pairs), "most": figures.MOST_PAIRS, "why": why}
    return WORDS.section("comparisons", blocks, "reason" if why else "", **facts)


def _test(pair: Mapping[str, Any], name: str) -> str | Cell:
    test = pair.get(name)
    if not test:
        return Cell("no test", whole=pair["reason"]) if pair.get("reason") else ""
    holm = f"; Holm {p_text(pair['meng_holm'])}" if name == "meng" else ""
    return Cell(decimals(test["statistic"]), below=f"p = {p_text(test['p_value'])}".replace("= <", "<") + holm)


def disagreements(side: str, results: Results) -> Section | None:
    name, human = str(results["scores"][0]["name"]), results["human"]["name"]
    samples = (results.get("disagreements") or {}).get(name, {}).get(side)
    if not samples:
        return None
    given = ["" if one["label"] is None else str(one["label"]) for one in samples]
    columns = [
        Column("Sample", [str(one["id"]) for one in samples], "name"),
        Column("Class", given, "name"),
        Column(human, [f"{one['human']:.4g}" for one in samples]),
        Column(name, [f"{one['score']:.4g}" for one in samples]),
        Column("Rank by people", [decimals(one["human_rank"]) for one in samples]),
        Column(f"Rank by {name}", [decimals(one["model_rank"]) for one in samples]),
    ]
    blocks: list[Block] = [Table(WORDS.said[f"{side}-harder"]["title"], columns, tall=True)]
    seen = {at: results.get("pictures", {}).get(str(one["id"])) for at, one in enumerate(samples)}
    cards = [
        Card(at, str(samples[at]["id"]), given[at], picture=picture, shown=((human, str(columns[2].cells[at])),))
        for at, picture in seen.items()
        if picture
    ]
    if cards:
        values = [samples[card.place]["score"] for card in cards]
        blocks.insert(0, Ranking(Score(name, name, None), values, cards, len(cards), page=len(cards)))
    return WORDS.section(f"{side}-harder", blocks, human=results["human"]["title"], score=name)


def bins(results: Results) -> Section:
    found, human = results["bins"], results["human"]["title"]
    blocks: list[Block] = [_table(results, found["groups"], "Bin")]
    if _measured(found["groups"]):
        drawn = figures.draw_bins(results["scores"], found, human)
        blocks.insert(0, Picture("bins", drawn, f"Correlation of each score within bins of {human}", wide=True))
    return WORDS.section("bins", blocks, method=METHOD_NAMES[results["method"]])


def within(name: str, what: str, results: Results) -> Section | None:
    groups = results[name]
    if not _measured(groups):
        return None
    drawn = figures.draw_groups(results["scores"], groups)
    picture = Picture(name, drawn, f"Correlation of each score within each {what.lower()}", wide=True)
    blocks: list[Block] = [picture, _table(results, groups, what)]
    return WORDS.section(name, blocks, method=METHOD_NAMES[results["method"]], most=MOST_CLASSES)


def _measured(groups: Groups | None) -> bool:
    return bool(groups) and any(one["correlation"] for of_score in (groups or {}).values() for one in of_score)


def _table(results: Results, groups: Groups, title: str) -> Table:
    """One row for each group, one column for each score."""
    scores = results["scores"]
    first = groups[scores[0]["name"]]

    def name(group: Any) -> str:
        return f"{group[0]:.3g} to {group[1]:.3g}" if isinstance(group, list | tuple) else str(group)

    columns = [
        Column(title, [name(group["group"]) for group in first], "name"),
        Column("Fine classes", [str(group.get("fine_classes") or "") for group in first]),
        Column("Samples", [f"{group['n']:,}" for group in first]),
    ]
    for score in scores:
        found = [group["correlation"] for group in groups[score["name"]]]
        columns.append(Column(score["name"], [decimals(one["coefficient"]) if one else "–" for one in found]))
    return Table(title, columns, tall=True)


def agreement(results: Results) -> Section | None:
    found = results["agreement"]
    if not found:
        return None
    picture = Picture("agreement", figures.draw_agreement(found), "Rank correlations between the scores")
    facts = {"w": decimals(found["w"]), "none": decimals(1 / len(results["scores"]))}
    return WORDS.section("agreement", [picture], method=METHOD_NAMES[results["method"]], **facts)


def made(results: Results) -> Section:
    seed = "" if results.get("seed") is None else f"Seed {results['seed']}."
    resamples = "No intervals were asked for."
    if results["resamples"]:
        kendall = results["scores"][0]["correlations"]["kendall"]["interval"]["resamples"]
        resamples = f"{results['resamples']:,} resamples, BCa intervals; {kendall:,} for Kendall's."
    return WORDS.section("made", [], join=results.get("join") or "", seed=seed, resamples=resamples)


SECTIONS = (
    strengths, joint, comparisons, partial(disagreements, "people"), partial(disagreements, "model"), bins,
    partial(within, "classes", "Class"), partial(within, "coarse", "Coarse class"), agreement, made,
)  # fmt: skip
