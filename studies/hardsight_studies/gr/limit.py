"""Settings of gradient rescaling by how far beta lies above the limit from which equal probabilities are unstable."""

from hardsight.losses.emphasis import critical_beta, largest_beta
from hardsight_studies.engine.rows import Rows

_CLASSES = 10


def shares(method: str) -> tuple[float, float]:
    """Beta over its limit at the start, and over its smallest limit, of `gr-8-0.5` and its like, for ten classes."""
    beta, lam = (float(number) for number in method.split("-")[1:])
    return beta / critical_beta(lam, _CLASSES), beta / largest_beta(lam, _CLASSES)


def limits(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Settings trained as printed, by beta over its smallest limit, with their last accuracy and classes learned."""
    lines = []
    methods = (one for one in rows.options("method", change="printed") if one.startswith("gr-"))
    for method in sorted(methods, key=lambda one: shares(one)[1]):
        last = rows.number("last", change="printed", method=method)
        learned = rows.number("classes_learned", change="printed", method=method)
        assert last is not None
        spread = "" if last.sd is None else f" ± {100 * last.sd:.1f}"
        beta, lam = method.split("-")[1:]
        at_start, smallest = shares(method)
        counted = "" if learned is None else f"{learned.mean:.0f} of {_CLASSES}"
        lines.append([f"GR (β = {beta}, λ = {lam})", f"{at_start:.2f}", f"{smallest:.2f}",
                      f"{100 * last.mean:.1f}{spread}", counted])  # fmt: skip
    heads = ["setting", "β over its limit at the start", "over its smallest limit", "last test", "classes learned"]
    return heads, lines
