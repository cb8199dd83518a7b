"""The page of an alignment: one self-contained HTML file made from alignment.json alone."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hardsight.alignment.analysis import notices
from hardsight.plotting import as_svg
from hardsight.records import read_json, write_text
from hardsight.report.alignment_figures import (
    METHOD_NAMES,
    MOST_PAIRS,
    MOST_PANELS,
    draw_agreement,
    draw_bins,
    draw_comparisons,
    draw_groups,
    draw_joint,
    draw_strengths,
)
from hardsight.report.figures import MOST_CLASSES
from hardsight.report.page import template_environment

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPLATES = Path(__file__).parent / "templates"


def write_alignment_page(record: Path | str, output: Path | str | None = None) -> Path:
    """Write the page of an alignment.json, beside it unless `output` says where."""
    record = Path(record)
    results = read_json(record)
    if not isinstance(results, dict) or "scores" not in results or "comparisons" not in results:
        raise ValueError(f"{record} must hold the results of an alignment, with scores and comparisons")
    path = record.with_suffix(".html") if output is None else Path(output)
    write_text(path, render_alignment(results))
    return path


def render_alignment(results: Mapping[str, Any]) -> str:
    """The page as text; every word that comes from the results is escaped."""
    environment = template_environment(three=three, four=four, p=p_text, said_p=said_p, interval=interval_text)
    from markupsafe import Markup

    scores = ordered(results)
    drawn = alignment_figures(results)
    # The only markup that is not escaped: our own style, and what matplotlib has escaped itself.
    svgs = {name: Markup(as_svg(figure, text, f"a{at}")) for at, (name, (figure, text)) in enumerate(drawn.items())}
    context = {
        "results": results,
        "scores": scores,
        "method": METHOD_NAMES[results["method"]],
        "figures": svgs,
        "joints": [name for name in svgs if name.startswith("joint")],
        "headline": headline(results),
        "notices": _notices(results),
        "untested": next((pair["reason"] for pair in results["comparisons"] if pair.get("reason")), ""),
        "correctness": any(score["given_correctness"] for score in scores),
        "four": four,
        "most": {"panels": MOST_PANELS, "pairs": MOST_PAIRS, "classes": MOST_CLASSES},
        "style": Markup((_TEMPLATES / "page.css").read_text(encoding="utf-8")),
    }
    return environment.get_template("alignment.html").render(context).strip() + "\n"


def alignment_figures(results: Mapping[str, Any]) -> dict[str, tuple["Figure", str]]:
    """Every figure by name, with the words for those who cannot see it."""
    scores, method, human = ordered(results), results["method"], results["human"]["title"]
    figures = {
        "strengths": (draw_strengths(scores), f"Correlation of each score with {human}, with intervals"),
    }
    if _measured(results["bins"]["groups"]):
        figures["bins"] = draw_bins(scores, results["bins"], human), f"Correlation of each score within bins of {human}"
    for at, score in enumerate(scores[:MOST_PANELS]):
        text = f"Two-dimensional histogram of {human} against {score['title']}"
        figures[f"joint{at}"] = draw_joint(score, human, method, results["bins"]["edges"]), text
    if results["comparisons"]:
        figures["comparisons"] = draw_comparisons(results["comparisons"], method), "Differences between pairs of scores"
    for name, what in (("classes", "class"), ("coarse", "coarse class")):
        groups = results.get(name)
        if groups and _measured(groups):
            figures[name] = draw_groups(scores, groups), f"Correlation of each score within each {what}"
    if results["agreement"]:
        figures["agreement"] = draw_agreement(results["agreement"]), "Rank correlations between the scores"
    return figures


def _measured(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Whether any score has a correlation in any of the groups."""
    return any(group["correlation"] for of_score in groups.values() for group in of_score)


def ordered(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The scores, strongest agreement first."""
    method = results["method"]
    return sorted(results["scores"], key=lambda score: -score["correlations"][method]["coefficient"])


def headline(results: Mapping[str, Any]) -> str:
    """Which score agrees best, and whether that can be told from the next."""
    best, *others = ordered(results)
    method = results["method"]
    found = best["correlations"][method]
    text = (
        f"{best['title']} agrees best with {results['human']['title']}: {METHOD_NAMES[method]} "
        f"{three(found['coefficient'])}{_bracket(found['interval'])} over {results['n']:,} samples."
    )
    pair = next((one for one in results["comparisons"] if others and one["second"] == others[0]["name"]), None)
    if pair is None or pair["first"] != best["name"]:
        return text
    text += f" It leads {others[0]['title']} by {four(pair['difference'])}{_bracket(pair.get('interval'), four)}"
    meng, interval = pair.get("meng"), pair.get("interval") or {}
    # The test is made for normal values: where the interval says otherwise, it counts.
    alike = interval.get("low") is not None and interval["low"] <= 0 <= interval["high"]
    if meng:
        text += f", {said_p(meng['p_value'])} (Meng, Rosenthal and Rubin, two-sided)"
        alike = alike or meng["p_value"] >= 0.05
    return f"{text}: too little to tell the two apart." if alike else f"{text}."


def three(value: float | None) -> str:
    """Three decimals; nothing for what is missing."""
    return "" if value is None or not math.isfinite(value) else f"{value:.3f}"


def four(value: float | None) -> str:
    """Four decimals, for differences: scores that resemble each other differ in the fourth."""
    return "" if value is None or not math.isfinite(value) else f"{value:.4f}"


def p_text(value: float | None) -> str:
    """Two figures; where double precision ends, a bound."""
    if value is None:
        return ""
    return "< 1e-300" if value < 1e-300 else f"{value:.2g}"


def said_p(value: float | None) -> str:
    """The same as a word in a sentence."""
    text = p_text(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def interval_text(interval: Mapping[str, Any] | None, write: Callable[[float | None], str] = three) -> str:
    """low to high; nothing where there is none."""
    return "" if not interval or interval["low"] is None else f"{write(interval['low'])} to {write(interval['high'])}"


def _bracket(interval: Mapping[str, Any] | None, write: Callable[[float | None], str] = three) -> str:
    text = interval_text(interval, write)
    return f" ({text})" if text else ""


def _notices(results: Mapping[str, Any]) -> list[str]:
    joined = [str(results["join"])] if results.get("join_incomplete") else []
    left_out = (results.get("left_out") or {}).values()
    return [*joined, *notices(results), *(f"Left out: {reason}." for reason in left_out)]
