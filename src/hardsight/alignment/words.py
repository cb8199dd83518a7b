"""What the results of `align_scores` say, in words: numbers as text, the headline, and what weakens a number."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

METHOD_NAMES = {"spearman": "Spearman's ρ", "pearson": "Pearson's r", "kendall": "Kendall's τ"}

# From this share of equal values on, a rank correlation is about the others.
MANY_TIED = 0.1
# From this p-value on, a coefficient below nought is taken for chance.
SIGNIFICANT = 0.05


def notices(results: Mapping[str, Any]) -> list[str]:
    """One sentence for each thing to know before the numbers of `align_scores` are believed; none is usual."""
    scores, method = results["scores"], results["method"]
    found = []
    unknown = [score["name"] for score in scores if score["direction"] is None]
    if unknown:
        found.append(
            f"Nobody wrote down whether larger is harder for {_listed(unknown)}: turned to the side they lean to, "
            "so their agreement cannot be negative."
        )
    found_by = {score["name"]: score["correlations"][method] for score in scores}
    against = [name for name, of in found_by.items() if of["coefficient"] < 0 and of["p_value"] < SIGNIFICANT]
    if against:
        found.append(f"Against people, by the direction that was recorded: {_listed(against)}.")
    for score in scores:
        tied = score.get("tied")
        if tied and tied["count"] >= max(2, MANY_TIED * results["n"]):
            found.append(
                f"{score['name']}: {tied['count']:,} of {results['n']:,} values are tied at {tied['value']:g}, and no "
                "rank tells them apart."
            )
    found += _without_coefficient(scores, method, results["resamples"])
    held = [(score["name"], (score["given_correctness"] or {}).get("reason")) for score in scores]
    for reason in dict.fromkeys(reason for _, reason in held if reason):
        names = [name for name, why in held if why == reason]
        found.append(f"{_listed(names)} given correctness: {reason}.")
    if results["bins"]["outside"]:
        found.append(f"{results['bins']['outside']:,} samples are outside the bins.")
    return found


def _without_coefficient(scores: Sequence[Mapping[str, Any]], method: str, resamples: int) -> list[str]:
    """Where resamples were constant: those that are left do not show how far the coefficient may vary."""
    missed: dict[int, list[str]] = {}
    for score in scores:
        interval = score["correlations"][method]["interval"]
        if interval and interval["resamples"] < resamples:
            missed.setdefault(resamples - interval["resamples"], []).append(score["name"])
    return [
        f"{_listed(names)}: {count:,} of {resamples:,} resamples have no coefficient, because nothing varies in them; "
        "so few values differ that the interval says little."
        for count, names in missed.items()
    ]


def _listed(names: Sequence[str], most: int = 5) -> str:
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def ordered(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The scores, strongest agreement first."""
    method = results["method"]
    return sorted(results["scores"], key=lambda score: -score["correlations"][method]["coefficient"])


def headline(results: Mapping[str, Any]) -> str:
    """Which score agrees best, and whether it differs from the next."""
    best, *others = ordered(results)
    method = results["method"]
    found = best["correlations"][method]
    text = (
        f"{best['title']} agrees best with {results['human']['title']}: {METHOD_NAMES[method]} "
        f"{decimals(found['coefficient'])}{_bracket(found['interval'])} over {results['n']:,} samples."
    )
    pair = next((one for one in results["comparisons"] if others and one["second"] == others[0]["name"]), None)
    if pair is None or pair["first"] != best["name"]:
        return text
    difference = f"{decimals(pair['difference'], 4)}{_bracket(pair.get('interval'), 4)}"
    text += f" It leads {others[0]['title']} by {difference}"
    meng, interval = pair.get("meng"), pair.get("interval") or {}
    # The test is made for normal values: where the interval says otherwise, it counts.
    alike = interval.get("low") is not None and interval["low"] <= 0 <= interval["high"]
    if meng:
        text += f", {p_equals(meng['p_value'])} (Meng, Rosenthal and Rubin, two-sided)"
        alike = alike or meng["p_value"] >= 0.05
    return f"{text}: too little to tell the two apart." if alike else f"{text}."


def decimals(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; nothing for what is missing. Similar scores differ in the fourth."""
    return "" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def p_text(value: float | None) -> str:
    """Two significant digits; a bound below the range of double precision."""
    if value is None:
        return ""
    return "< 1e-300" if value < 1e-300 else f"{value:.2g}"


def p_equals(value: float | None) -> str:
    """The same in a sentence: `p = 0.5`."""
    text = p_text(value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def interval_text(interval: Mapping[str, Any] | None, digits: int = 3) -> str:
    """low to high; nothing where there is none."""
    if not interval or interval["low"] is None:
        return ""
    return f"{decimals(interval['low'], digits)} to {decimals(interval['high'], digits)}"


def _bracket(interval: Mapping[str, Any] | None, digits: int = 3) -> str:
    text = interval_text(interval, digits)
    return f" ({text})" if text else ""
