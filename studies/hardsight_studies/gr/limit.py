"""GR's settings by how far beta lies above the limit that `losses.rescaling_limit` derives, and what they reached."""

from collections.abc import Iterable, Mapping
from typing import Any

from hardsight.alignment import correlate
from hardsight.losses.rescaling_limit import critical_beta, largest_beta
from hardsight_studies.framework import markdown_table
from hardsight_studies.gr.emphasis import CLASSES
from hardsight_studies.gr.judged import classes_head, mean_of, shown_accuracy, shown_classes
from hardsight_studies.gr.trainings import knobs, title_of
from hardsight_studies.wording import listed

# Fewer settings than this have no order worth a number.
_ENOUGH = 4


DERIVED = f"""**From which β on classes are ruled out.** A network that only knows that an image shows one of K
classes gives each of them 1/K. Under GR that is stable while β < K^(λ+1) (K − 2) / ((K − 1)(λ(K − 1) − 1)). Above
this limit a class that is a little less probable by chance becomes less probable still, whatever the images show.
CCE and GCE have no such limit; MAE lies on it. With K = 10, where training starts, it is
{critical_beta(0.5, 10):.1f} for λ = 0.5 and {critical_beta(1, 10):.1f} for λ = 1: the paper's best settings, (12,
0.5) and (16, 1), lie above it. With a hundred classes it is {critical_beta(0.5, 100):.1f} for λ = 0.5, above all β
that the paper uses there. The learning rate sets how fast a class is lost; time at a high rate may bring it back,
since its weight is small, not nought."""
_LEGEND = """Settings trained as printed. `β over its limit at the start`: for ten classes; above 1, classes should be
lost. `over its smallest limit`: the smallest for three to ten classes, since later fewer are in question."""


def _shares(method: str) -> tuple[float, float]:
    """Beta over its limit at the start, and over its smallest limit, of a GR method's name, for ten classes."""
    both = knobs(method)
    assert both is not None
    beta, lam = both
    return beta / critical_beta(lam, CLASSES), beta / largest_beta(lam, CLASSES)


def limits(results: Mapping[str, Any], methods: Mapping[str, str]) -> str:
    """Settings by how far beta lies above its limit, with what they ended at and how many classes they learnt.

    `methods`: the kind of cell of each GR method that is planned.
    """
    order = sorted(methods, key=lambda method: _shares(method)[1])
    rows = [
        [
            title_of(method),
            *(f"{share:.2f}" for share in _shares(method)),
            shown_accuracy(results, methods[method], "last") or "–",
            shown_classes(results, methods[method]),
        ]
        for method in order
    ]
    heads = ["setting", "β over its limit at the start", "over its smallest limit", "last test", classes_head(results)]
    parts = [_LEGEND, markdown_table(heads, rows), _order(results, methods), _against(results, methods)]
    return "\n\n".join(part for part in parts if part)


def _order(results: Mapping[str, Any], methods: Mapping[str, str]) -> str:
    """Whether the settings farther above their limit end lower."""
    found = {method: mean_of(results, key, "last") for method, key in methods.items()}
    ends = {method: value for method, value in found.items() if value is not None}
    if len(ends) < _ENOUGH:
        return ""
    shares = [_shares(method)[1] for method in ends]
    order = correlate(shares, [*ends.values()], method="spearman")
    return (
        f"Rank correlation of β over its smallest limit with the last accuracy, over the {len(ends)} settings "
        f"measured: {order.coefficient:+.2f}."
    )


def _against(results: Mapping[str, Any], methods: Mapping[str, str]) -> str:
    """Settings that did not do what their limit at the start says: kept all classes above it, or lost some below."""
    counts = results.get("classes_learnt", {})
    learnt = {method: counts.get(key) for method, key in methods.items()}
    counted = {method: found[0] == found[1] for method, found in learnt.items() if found is not None}
    kept = [method for method, all_of_them in counted.items() if all_of_them and _shares(method)[0] > 1]
    lost = [method for method, all_of_them in counted.items() if not all_of_them and _shares(method)[0] <= 1]
    told = []
    if kept:
        told.append(f"Above the limit at the start {_titles(kept)} learnt all classes.")
    if lost:
        told.append(f"Below {'it' if kept else 'the limit at the start'} {_titles(lost)} lost classes.")
    if told:
        told.append("So the limit alone does not decide.")
    return " ".join(told)


def _titles(methods: Iterable[str]) -> str:
    return listed([title_of(method) for method in methods])
