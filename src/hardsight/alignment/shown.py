"""How the command and the page show what `align_scores` gives: numbers as text, and what weakens them."""

import math
from collections.abc import Mapping
from typing import Any

METHOD_NAMES = {"spearman": "Spearman's ρ", "pearson": "Pearson's r", "kendall": "Kendall's τ"}

# From this share of equal values on, a rank correlation is about the others.
_MANY_TIED = 0.1
# From this p-value on, a coefficient below zero is taken for chance.
_SIGNIFICANT = 0.05


def notes(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What to know before the numbers of `align_scores` are believed, each with the score it is about."""
    found = [("all", results["join"])] if results.get("join_incomplete") else []
    for score in results["scores"]:
        correlation, tied = score["correlations"][results["method"]], score["tied"]
        held, interval = score["given_correctness"] or {}, correlation["interval"]
        constant = results["resamples"] - interval["resamples"] if interval else 0
        about = {
            "larger is harder or easier? not recorded: turned to the side it leans to": score["direction"] is None,
            "against people, by its recorded direction": correlation["coefficient"] < 0
            and correlation["p_value"] < _SIGNIFICANT,
            f"{tied['count']:,} of {results['n']:,} values are tied at {tied['value']:g}": tied["count"]
            >= max(2, _MANY_TIED * results["n"]),
            f"{constant:,} of {results['resamples']:,} resamples do not vary: believe no interval": constant
            and results["method"] != "kendall",
            f"given correctness: {held.get('reason')}": held.get("reason"),
        }
        found += [(score["name"], note) for note, holds in about.items() if holds]
    for pair in results["comparisons"]:
        if pair.get("reason"):
            found.append((f"{pair['first']}, {pair['second']}", f"no test: {pair['reason']}"))
    if results["bins"]["outside"]:
        found.append(("all", f"{results['bins']['outside']:,} samples are outside the bins"))
    return found + [(name, f"left out: {reason}") for name, reason in results.get("left_out", {}).items()]


def decimals(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; nothing for what is missing. Similar scores differ in the fourth."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def p_text(value: float | None) -> str:
    """Two significant digits; a bound below the range of double precision."""
    if value is None:
        return ""
    return "< 1e-300" if value < 1e-300 else f"{value:.2g}"


def interval_text(interval: Mapping[str, Any] | None, digits: int = 3) -> str:
    """low to high; nothing where there is none."""
    if not interval or interval["low"] is None:
        return ""
    return f"{decimals(interval['low'], digits)} to {decimals(interval['high'], digits)}"
