"""What weakens the numbers of an analysis, in sentences: for the terminal and for the page."""

from collections.abc import Mapping, Sequence
from typing import Any

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
    said = {score["name"]: score["correlations"][method] for score in scores}
    against = [name for name, of in said.items() if of["coefficient"] < 0 and of["p_value"] < SIGNIFICANT]
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
        found.append(f"{results['bins']['outside']:,} samples lie outside the bins.")
    return found


def _without_coefficient(scores: Sequence[Mapping[str, Any]], method: str, resamples: int) -> list[str]:
    """Where resamples were constant: those that are left do not show how far the coefficient may lie elsewhere."""
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
