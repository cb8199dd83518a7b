"""The page of an alignment: its head and its sections, made from alignment.json alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight.alignment.shown import METHOD_NAMES, decimals, interval_text, notes, p_text
from hardsight.records import read_json, write_text
from hardsight.report import alignment_figures as figures
from hardsight.report.figures import MOST_CLASSES
from hardsight.report.gallery import Card, Ranking
from hardsight.report.page import Block, Cell, Column, Picture, Section, Table, filled, render
from hardsight.report.reading import Score, thumbnails

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
    sides = (results.get("disagreements") or {}).get(_strongest_name(results), {}).values()
    pictures = thumbnails(record.parent, [str(sample["id"]) for side in sides for sample in side])
    write_text(path, render_alignment({**results, "pictures": pictures}))
    return path


def _strongest_name(results: Results) -> str:
    return str(results["scores"][0]["name"])


def render_alignment(results: Results) -> str:
    """The page as text; every word that comes from the results is escaped."""
    human, scores = results["human"], results["scores"]
    facts = [
        f"{results['n']:,} samples",
        f"{len(scores)} scores",
        f"human column {human['title']} (larger is {human['direction']})",
    ]
    return render(
        filled(SECTIONS, results),
        title=f"Alignment with {human['title']}",
        heading="Do the scores see what people see?",
        facts=facts,
        source="results",
        notices=[f"{name}: {note}" for name, note in notes(results)],
        tiles=_tiles(results),
    )


def _tiles(results: Results) -> list[tuple[str, str]]:
    """The strongest score's agreement, and how far it is above the next."""
    best, method = results["scores"][0], results["method"]
    found = best["correlations"][method]
    tiles = [(decimals(found["coefficient"]), f"{METHOD_NAMES[method]} of {best['title']}, the strongest")]
    for pair in results["comparisons"][:1]:
        between = interval_text(pair.get("interval"), 4)
        meaning = f"above {pair['second']}" + (f", {between}" if between else "")
        tiles.append((decimals(pair["difference"], 4), meaning))
    return tiles


def strengths(results: Results) -> Section:
    """Every score's coefficients with their intervals."""
    scores = results["scores"]
    text = (
        "Every score is turned so that right is agreement: a hardness that rises where people's answers fall counts as "
        f"positive. Lines are {100 * results['level']:g} % bootstrap intervals, where they were asked for (whole "
        'samples drawn again). "Given correctness" holds fixed whether the model was right: what the score knows of '
        "people beyond that."
    )
    columns = [
        Column("Score", [_named(score) for score in scores], "name"),
        Column("Larger is", [score["direction"] or "?" for score in scores], ""),
        *(
            Column(method.title(), [_coefficient(score["correlations"][method]) for score in scores])
            for method in METHOD_NAMES
        ),
        Column("Given correctness", [_coefficient(score["given_correctness"]) for score in scores]),
    ]
    words = f"Correlation of each score with {results['human']['title']}, with intervals"
    picture = Picture("strengths", figures.draw_strengths(scores), words, wide=True)
    return Section("strengths", "Agreement with people", text, [picture, Table("Correlations of each score", columns)])


def _named(score: Mapping[str, Any]) -> Cell:
    return Cell(score["title"], code="" if score["title"] == score["name"] else score["name"])


def _coefficient(found: Mapping[str, Any] | None) -> str | Cell:
    """A coefficient with its interval and p-value."""
    if not found or found.get("coefficient") is None:
        return ""
    interval, p_value = interval_text(found.get("interval")), found.get("p_value")
    below = "" if p_value is None else f"p = {p_text(p_value)}".replace("= <", "<")
    return Cell(decimals(found["coefficient"]), beside=interval and f"({interval})", below=below)


def joint(results: Results) -> Section:
    """The strongest scores against the human column."""
    human, edges, shown = results["human"]["title"], results["bins"]["edges"], results["scores"][: figures.MOST_PANELS]
    text = (
        "Darker cells hold more samples, in logarithmic steps. The dashed line is the median of the score within each "
        "bin of the human column: where it slopes, the score follows people. Scores are scaled linearly to [0, 1]; the "
        f"{len(shown)} strongest are drawn."
    )
    drawn = []
    for at, score in enumerate(shown):
        figure = figures.draw_joint(score, human, results["method"], edges)
        drawn.append(Picture(f"joint{at}", figure, f"Two-dimensional histogram of {human} against {score['title']}"))
    return Section("joint", "People against each score", text, drawn, "plots")


def comparisons(results: Results) -> Section | None:
    """Tests between the scores, pair by pair."""
    pairs = results["comparisons"]
    if not pairs:
        return None
    reason = next((f' "no test": {pair["reason"]}.' for pair in pairs if pair.get("reason")), "")
    text = (
        "All scores are measured on the same samples, so their correlations depend on each other: Steiger's and Meng, "
        "Rosenthal and Rubin's tests allow for that, Fisher's (for independent samples, as the AVH paper used it) does "
        f"not; for Kendall's coefficient the interval decides. p-values are two-sided; \"Holm\" is Meng's p adjusted "
        f"for all {len(pairs)} pairs, of which at most {figures.MOST_PAIRS} are drawn.{reason}"
    )
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
    table = Table("Tests between scores", columns, tall=True)
    return Section("comparisons", "Which score agrees better", text, [picture, table])


def _test(pair: Mapping[str, Any], name: str) -> str | Cell:
    test = pair.get(name)
    if not test:
        return Cell("no test", whole=pair["reason"]) if pair.get("reason") else ""
    holm = f"; Holm {p_text(pair['meng_holm'])}" if name == "meng" else ""
    return Cell(decimals(test["statistic"]), below=f"p = {p_text(test['p_value'])}".replace("= <", "<") + holm)


def harder_for_people(results: Results) -> Section | None:
    """The samples that people find harder than the strongest score does."""
    return _disagreements(results, "people", "Harder for people than for the strongest score")


def harder_for_model(results: Results) -> Section | None:
    """The samples that the strongest score finds harder than people do."""
    return _disagreements(results, "model", "Harder for the strongest score than for people")


def _disagreements(results: Results, side: str, title: str) -> Section | None:
    samples = (results.get("disagreements") or {}).get(_strongest_name(results), {}).get(side)
    if not samples:
        return None
    name, human = _strongest_name(results), results["human"]["name"]
    given = ["" if one["label"] is None else str(one["label"]) for one in samples]
    columns = [
        Column("Sample", [str(one["id"]) for one in samples], "name"),
        Column("Class", given, "name"),
        Column(human, [f"{one['human']:.4g}" for one in samples]),
        Column(name, [f"{one['score']:.4g}" for one in samples]),
        Column("Rank by people", [decimals(one["human_rank"]) for one in samples]),
        Column(f"Rank by {name}", [decimals(one["model_rank"]) for one in samples]),
    ]
    blocks: list[Block] = [Table(title, columns, tall=True)]
    seen = {at: results.get("pictures", {}).get(str(one["id"])) for at, one in enumerate(samples)}
    cards = [
        Card(at, str(samples[at]["id"]), given[at], picture=picture, shown=((human, str(columns[2].cells[at])),))
        for at, picture in seen.items()
        if picture
    ]
    if cards:
        values = [samples[card.place]["score"] for card in cards]
        blocks.insert(0, Ranking(Score(name, name, None), values, cards, len(cards), page=len(cards)))
    text = (
        f"Largest differences between the ranks by {results['human']['title']} and by {name}. A rank is the share of "
        "samples that are easier. Those of the other scores are in alignment.json."
    )
    return Section(f"{side}-harder", title, text, blocks)


def bins(results: Results) -> Section:
    """The coefficients within bins of the human column."""
    found, human = results["bins"], results["human"]["title"]
    blocks: list[Block] = [_table(results, found["groups"], "Bin")]
    if _measured(found["groups"]):
        drawn = figures.draw_bins(results["scores"], found, human)
        blocks.insert(0, Picture("bins", drawn, f"Correlation of each score within bins of {human}", wide=True))
    text = (
        f"{METHOD_NAMES[results['method']]} within each bin (the upper edge belongs to the next bin, the last bin "
        "holds both). A score that only separates the easiest from the hardest shows no correlation here."
    )
    return Section("bins", "Bins of the human column", text, blocks)


def classes(results: Results) -> Section | None:
    """The coefficients within each class."""
    text = (
        f" within each class, in the order of the strongest score; at most {MOST_CLASSES} are drawn. A dash: too few "
        "samples, or no variation."
    )
    return _within(results, "classes", "Class", text)


def coarse(results: Results) -> Section | None:
    """The coefficients within each coarse class."""
    text = " within each coarse class; the table begins with those of most fine classes."
    return _within(results, "coarse", "Coarse class", text)


def _within(results: Results, name: str, what: str, text: str) -> Section | None:
    groups = results[name]
    if not _measured(groups):
        return None
    drawn = figures.draw_groups(results["scores"], groups)
    picture = Picture(name, drawn, f"Correlation of each score within each {what.lower()}", wide=True)
    text = METHOD_NAMES[results["method"]] + text
    return Section(name, f"{what}es", text, [picture, _table(results, groups, what)])


def _measured(groups: Groups | None) -> bool:
    """Whether any score has a correlation in any of these groups."""
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
    """How alike the scores rank the samples."""
    found = results["agreement"]
    if not found:
        return None
    text = (
        f"{METHOD_NAMES[results['method']]} between the scores, all turned the same way. Kendall's W over all of them "
        f"is {decimals(found['w'])}: 1 where all rank alike, about {decimals(1 / len(results['scores']))} where they "
        "have nothing in common."
    )
    picture = Picture("agreement", figures.draw_agreement(found), "Rank correlations between the scores")
    return Section("agreement", "Agreement between scores", text, [picture])


def made(results: Results) -> Section:
    """How the numbers were made."""
    parts = [str(results.get("join") or "")]
    if results.get("seed") is not None:
        parts.append(f"Seed {results['seed']}.")
    if results["resamples"]:
        kendall = results["scores"][0]["correlations"]["kendall"]["interval"]["resamples"]
        parts.append(f"{results['resamples']:,} resamples, BCa intervals; {kendall:,} for Kendall's.")
    else:
        parts.append("No intervals were asked for.")
    text = " ".join([*filter(None, parts), "All numbers are in alignment.json."])
    return Section("made", "How this was made", text, [])


SECTIONS = (
    strengths, joint, comparisons, harder_for_people, harder_for_model, bins, classes, coarse, agreement, made,
)  # fmt: skip
