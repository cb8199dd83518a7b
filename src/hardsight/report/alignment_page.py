"""The page of an alignment: its head and its sections, made from alignment.json alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardsight.alignment.shown import METHOD_NAMES, decimals, interval_text, notes, p_text
from hardsight.records import read_json, write_text
from hardsight.report import alignment_figures as figures
from hardsight.report.figures import MOST_CLASSES
from hardsight.report.gallery import Card, Ranking
from hardsight.report.page import Block, Cell, Column, Filled, Picture, Section, Table, filled, render
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
        filled_alignment(results),
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


def filled_alignment(results: Results) -> list[Filled]:
    """The sections that these results have something for."""
    return filled(SECTIONS, results)


def _strengths(results: Results, scores: Any) -> list[Block]:
    words = f"Correlation of each score with {results['human']['title']}, with intervals"
    columns = [
        Column("Score", [_named(score) for score in scores], "name"),
        Column("Larger is", [score["direction"] or "?" for score in scores], ""),
        *(
            Column(method.title(), [_coefficient(score["correlations"][method]) for score in scores])
            for method in METHOD_NAMES
        ),
        Column("Given correctness", [_coefficient(score["given_correctness"]) for score in scores]),
    ]
    return [
        Picture("strengths", figures.draw_strengths(scores), words, wide=True),
        Table("Correlations of each score", columns),
    ]


def _named(score: Mapping[str, Any]) -> Cell:
    return Cell(score["title"], code="" if score["title"] == score["name"] else score["name"])


def _coefficient(found: Mapping[str, Any] | None) -> str | Cell:
    """A coefficient with its interval and p-value."""
    if not found or found.get("coefficient") is None:
        return ""
    interval, p_value = interval_text(found.get("interval")), found.get("p_value")
    below = "" if p_value is None else f"p = {p_text(p_value)}".replace("= <", "<")
    return Cell(decimals(found["coefficient"]), beside=interval and f"({interval})", below=below)


def _joint(results: Results, scores: Any) -> list[Block]:
    human, edges = results["human"]["title"], results["bins"]["edges"]
    return [
        Picture(
            f"joint{at}",
            figures.draw_joint(score, human, results["method"], edges),
            f"Two-dimensional histogram of {human} against {score['title']}",
        )
        for at, score in enumerate(scores[: figures.MOST_PANELS])
    ]


def _comparisons_text(results: Results, pairs: Any) -> str:
    reason = next((f' "no test": {pair["reason"]}.' for pair in pairs if pair.get("reason")), "")
    return (
        "All scores are measured on the same samples, so their correlations depend on each other: Steiger's and Meng, "
        "Rosenthal and Rubin's tests allow for that, Fisher's (for independent samples, as the AVH paper used it) does "
        f"not; for Kendall's coefficient the interval decides. p-values are two-sided; \"Holm\" is Meng's p adjusted "
        f"for all {len(pairs)} pairs, of which at most {figures.MOST_PAIRS} are drawn.{reason}"
    )


def _comparisons(results: Results, pairs: Any) -> list[Block]:
    drawn = figures.draw_comparisons(pairs, results["method"])
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
    return [
        Picture("comparisons", drawn, "Differences between pairs of scores", wide=True),
        Table("Tests between scores", columns, tall=True),
    ]


def _test(pair: Mapping[str, Any], name: str) -> str | Cell:
    test = pair.get(name)
    if not test:
        return Cell("no test", whole=pair["reason"]) if pair.get("reason") else ""
    holm = f"; Holm {p_text(pair['meng_holm'])}" if name == "meng" else ""
    return Cell(decimals(test["statistic"]), below=f"p = {p_text(test['p_value'])}".replace("= <", "<") + holm)


def _bins(results: Results, bins: Any) -> list[Block]:
    blocks: list[Block] = []
    if _measured(bins["groups"]):
        human = results["human"]["title"]
        drawn = figures.draw_bins(results["scores"], bins, human)
        blocks.append(Picture("bins", drawn, f"Correlation of each score within bins of {human}", wide=True))
    return [*blocks, _table(results, bins["groups"], "Bin")]


def _within(results: Results, groups: Groups, what: str) -> list[Block]:
    drawn = figures.draw_groups(results["scores"], groups)
    picture = Picture(
        "coarse" if "coarse" in what else "classes", drawn, f"Correlation of each score within each {what}", wide=True
    )
    return [picture, _table(results, groups, what.capitalize())]


def _made_text(results: Results, shown: Any) -> str:
    parts = [str(results.get("join") or "")]
    if results.get("seed") is not None:
        parts.append(f"Seed {results['seed']}.")
    if results["resamples"]:
        kendall = results["scores"][0]["correlations"]["kendall"]["interval"]["resamples"]
        parts.append(f"{results['resamples']:,} resamples, BCa intervals; {kendall:,} for Kendall's.")
    else:
        parts.append("No intervals were asked for.")
    return " ".join([*filter(None, parts), "All numbers are in alignment.json."])


def _measured(groups: Groups | None) -> Groups | None:
    """The groups, where any score has a correlation in any of them."""
    return groups if groups and any(one["correlation"] for of_score in groups.values() for one in of_score) else None


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


def _disagreements(side: str, harder: str) -> Section[Results]:
    """The samples that one side finds harder than the other, with pictures where there are any."""

    def when(results: Results) -> Any:
        return (results.get("disagreements") or {}).get(_strongest_name(results), {}).get(side)

    def text(results: Results, samples: Any) -> str:
        return (
            f"Largest differences between the ranks by {results['human']['title']} and by {_strongest_name(results)}. "
            "A rank is the share of samples that are easier. Those of the other scores are in alignment.json."
        )

    def draw(results: Results, samples: Any) -> list[Block]:
        name, human = results["scores"][0]["name"], results["human"]["name"]
        classes = ["" if one["label"] is None else str(one["label"]) for one in samples]
        columns = [
            Column("Sample", [str(one["id"]) for one in samples], "name"),
            Column("Class", classes, "name"),
            Column(human, [f"{one['human']:.4g}" for one in samples]),
            Column(name, [f"{one['score']:.4g}" for one in samples]),
            Column("Rank by people", [decimals(one["human_rank"]) for one in samples]),
            Column(f"Rank by {name}", [decimals(one["model_rank"]) for one in samples]),
        ]
        blocks: list[Block] = [Table(harder, columns, tall=True)]
        seen = {at: results.get("pictures", {}).get(str(one["id"])) for at, one in enumerate(samples)}
        cards = [
            Card(at, str(samples[at]["id"]), classes[at], picture=picture, shown=((human, str(columns[2].cells[at])),))
            for at, picture in seen.items()
            if picture
        ]
        if cards:
            values = [samples[card.place]["score"] for card in cards]
            blocks.insert(0, Ranking(Score(name, name, None), values, cards, len(cards), page=len(cards)))
        return blocks

    return Section(f"{side}-harder", harder, when, text, draw)


def _by_method(text: str) -> Callable[[Results, Any], str]:
    """A text that begins with the name of the coefficient."""
    return lambda results, groups: METHOD_NAMES[results["method"]] + text


SECTIONS: list[Section[Results]] = [
    Section(
        "strengths",
        "Agreement with people",
        lambda it: it["scores"],
        lambda it, scores: (
            "Every score is turned so that right is agreement: a hardness that rises where people's answers fall "
            f"counts as positive. Lines are {100 * it['level']:g} % bootstrap intervals, where they were asked for "
            '(whole samples drawn again). "Given correctness" holds fixed whether the model was right: what the score '
            "knows of people beyond that."
        ),
        _strengths,
    ),
    Section(
        "joint",
        "People against each score",
        lambda it: it["scores"],
        lambda it, scores: (
            "Darker cells hold more samples, in logarithmic steps. The dashed line is the median of the score within "
            "each bin of the human column: where it slopes, the score follows people. Scores are scaled linearly to "
            f"[0, 1]; the {min(len(scores), figures.MOST_PANELS)} strongest are drawn."
        ),
        _joint,
        "plots",
    ),
    Section("comparisons", "Which score agrees better", lambda it: it["comparisons"], _comparisons_text, _comparisons),
    _disagreements("people", "Harder for people than for the strongest score"),
    _disagreements("model", "Harder for the strongest score than for people"),
    Section(
        "bins",
        "Bins of the human column",
        lambda it: it["bins"],
        _by_method(
            " within each bin (the upper edge belongs to the next bin, the last bin holds both). A score that only "
            "separates the easiest from the hardest shows no correlation here."
        ),
        _bins,
    ),
    Section(
        "classes",
        "Classes",
        lambda it: _measured(it["classes"]),
        _by_method(
            f" within each class, in the order of the strongest score; at most {MOST_CLASSES} are drawn. A dash: too "
            "few samples, or no variation."
        ),
        lambda it, groups: _within(it, groups, "class"),
    ),
    Section(
        "coarse",
        "Coarse classes",
        lambda it: _measured(it["coarse"]),
        _by_method(" within each coarse class; the table begins with those of most fine classes."),
        lambda it, groups: _within(it, groups, "coarse class"),
    ),
    Section(
        "agreement",
        "Agreement between scores",
        lambda it: it["agreement"],
        lambda it, agreement: (
            f"{METHOD_NAMES[it['method']]} between the scores, all turned the same way. Kendall's W over all of them "
            f"is {decimals(agreement['w'])}: 1 where all rank alike, about {decimals(1 / len(it['scores']))} where "
            "they have nothing in common."
        ),
        lambda it, agreement: [
            Picture("agreement", figures.draw_agreement(agreement), "Rank correlations between the scores")
        ],
    ),
    Section("made", "How this was made", lambda it: True, _made_text, lambda results, shown: []),
]
