"""Where the numbers of the old results of Gradient Rescaling are now."""

import collections
import json
from collections.abc import Iterator, Mapping
from typing import Any

from carried_over import Keys, spread
from hardsight_studies.engine.rows import PUBLISHED, Number, Rows, read
from hardsight_studies.gr.drawings import PANELS

ACCURACIES = ("last", "best", "corrupted", "intact", "clean", "noisy")
# The values of axes that have other names now, or were the ones left out of the old names.
METHODS = {"auto": "auto-rising", "auto-bounded": "auto-limited", "auto-printed": "auto", "sl-hundred": "sl"}
LEFT_OUT = {"protocol": ("printed", "short")}


def numbers(study: str, preset: str) -> dict[Keys, float]:
    """Every number of the old results by its path, taken from the rows and points."""
    rows = read(study, PUBLISHED, preset)
    if study == "gr-table1":
        return {("supervisions", row.settings["supervision"], name): value
                for row in rows for name, value in row.metrics.items()}  # fmt: skip
    return dict(_panels(rows) if study == "gr-figure1" else (*_over_seeds(study, rows), *_curves(study, rows)))


def _kind(study: str, settings: Mapping[str, Any]) -> str:
    """The name under which the old results held these settings."""
    parts = {axis: value for axis, value in settings.items() if value not in LEFT_OUT.get(axis, ())}
    method = parts.get("method", "")
    parts |= {"method": METHODS[method]} if method in METHODS else {}
    if study == "gr-human-noise" and method.startswith("gr-"):
        parts["method"] = method.removesuffix("-letter") if method.endswith("-letter") else f"{method}-released"
    if study == "gr-table2":
        data, model = parts.pop("network").split("-")
        parts = {"data": data, "model": model, **parts}
    if study == "gr-table12":
        parts["method"] = f"gr-{parts.pop('beta'):g}-{parts.pop('lam'):g}"
    if study == "gr-protocol":
        parts = {name: parts[name] for name in ("change", "method")}
    return ",".join(f"{name}={value}" for name, value in parts.items())


def _over_seeds(study: str, rows: Rows) -> Iterator[tuple[Keys, Any]]:
    """Accuracies and choices over seeds, and what was kept of the first seed alone."""
    kinds: dict[str, list[Any]] = collections.defaultdict(list)
    for row in rows:
        if not row.error:
            kinds[_kind(study, row.settings)].append(row)
    for kind, of in kinds.items():
        of.sort(key=lambda row: row.seed)
        first = of[0].metrics

        def over(metric: str, of: list[Any] = of) -> Number:
            return Number.of({row.seed: row.metrics[metric] for row in of})

        for at, row in enumerate(of):
            yield ("seeds_of", kind, str(at)), row.seed
        for metric in (one for one in ACCURACIES if first.get(one) is not None):
            yield from spread(("accuracies", kind, metric), over(metric)).items()
        if "estimated_rate" in first:
            yield from spread(("choices", kind, "rate"), over("estimated_rate")).items()
            yield ("choices", kind, "fell_back"), sum(row.metrics["fell_back"] for row in of)
            for at, row in enumerate(of):
                yield ("choices", kind, "beta", str(at)), row.metrics["chosen_beta"]
                yield ("choices", kind, "lam", str(at)), row.metrics["chosen_lam"]
        if "wrong_before" in first:
            for name in ("before", "after"):
                yield from spread(("wrong_labels", kind, name), over(f"wrong_{name}")).items()
        yield ("classes_learnt", kind, "0"), first.get("classes_learned")
        yield ("classes_learnt", kind, "1"), first.get("classes")
        yield ("test_loss", kind), first.get("test_loss")
        yield ("weakest", kind, "1"), first.get("weakest_recall")
        for name in ("recalls", "label_probabilities"):
            for at, value in enumerate(first.get(name, ())):
                yield (name, kind, str(at)), value


def _curves(study: str, rows: Rows) -> Iterator[tuple[Keys, float]]:
    count: collections.Counter[tuple[str, str]] = collections.Counter()
    for point in rows.points.to_pylist():
        kind, series = _kind(study, json.loads(point["settings"])), point["series"]
        at = str(count[kind, series])
        count[kind, series] += 1
        yield ("curves", kind, series, at), point["y"]
        yield ("curves", kind, "epoch", at), point["x"]


def _panels(rows: Rows) -> Iterator[tuple[Keys, float]]:
    points = [(json.loads(one["settings"])["supervision"], one) for one in rows.points.to_pylist()]
    for panel, names in zip("abc", PANELS.values(), strict=True):
        for name in names:
            spread_of = rows.number("spread", supervision=name)
            assert spread_of is not None
            yield ("panels", panel, name, "spread"), spread_of.mean
            for at, point in enumerate(one for other, one in points if other == name):
                yield ("panels", panel, name, "weight", str(at)), point["y"]
                yield ("panels", panel, "probability", str(at)), point["x"]
