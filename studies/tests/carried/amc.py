"""Where the numbers of the old results of AMC-Loss are now."""

import json
from collections.abc import Iterator
from typing import Any

from carried_over import Keys, spread
from hardsight_studies.amc.attention import _IMAGES
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import PUBLISHED, Number, Rows, read
from scipy.stats import ttest_ind

LOSSES = ("cross-entropy", "euclidean", "amc")


def numbers(study: str, preset: str) -> dict[Keys, float]:
    """Every number of the old results by its path, taken from the rows and points."""
    rows = read(study, PUBLISHED, preset)
    made = {"amc-table1": _table1, "amc-figure6": _attention, "amc-figure7": _settings}.get(study, _features)
    found = dict(made(rows))
    if study != "amc-table1":
        run = plan(studies.get(study), preset)[0]
        schedule = str(run.settings.get("schedule", "")).partition("-")[2]
        found["length",] = float(schedule) if schedule else run.config["epochs"] / 150
        found["images",] = _IMAGES[1000][0]
    return found


def _table1(rows: Rows) -> Iterator[tuple[Keys, float]]:
    for schedule in rows.options("schedule"):
        suffix = "-0.1" if schedule.startswith("paper") else ""
        for data in rows.options("data", schedule=schedule):
            path = ("accuracy", schedule.replace("-", " "), data)
            by_loss = {loss: percent(rows.number("test_accuracy", schedule=schedule, data=data,
                       loss=loss if loss == "cross-entropy" else f"{loss}{suffix}")) for loss in LOSSES}  # fmt: skip
            for loss, number in by_loss.items():
                yield from spread((*path, loss), number).items()
            for loss in LOSSES[:2]:
                if by_loss["amc"].count > 1:
                    p = ttest_ind(by_loss["amc"].values, by_loss[loss].values).pvalue
                    yield (*path, f"p_amc_{loss.replace('-', '_')}"), float(p)


def percent(number: Number | None) -> Number:
    """A share's values in percent."""
    assert number is not None
    return Number.of({seed: 100 * one for seed, one in zip(number.seeds, number.values, strict=True)})


def _metrics(rows: Rows, top: str) -> Iterator[tuple[Keys, float]]:
    for data in rows.options("data"):
        for loss in rows.options("loss", data=data):
            for metric in rows.metrics:
                number = rows.number(metric, data=data, loss=loss)
                if number is not None:
                    yield from spread((top, data, loss.replace("-0.1", " 0.1"), metric), number).items()


def _features(rows: Rows) -> Iterator[tuple[Keys, float]]:
    yield from _metrics(rows, "features")
    counts: dict[Keys, int] = {}
    for one in rows.points.to_pylist():
        settings = json.loads(one["settings"])
        loss = settings["loss"].replace("-0.1", " 0.1")
        path = ("features", settings["data"], loss, "points", one["series"])
        at = counts[path] = counts.get(path, -1) + 1
        for place, name in enumerate(("label", "x", "y", "z")):
            if one.get(name) is not None:
                yield (*path, str(at), str(place)), one[name]


def _attention(rows: Rows) -> Iterator[tuple[Keys, float]]:
    yield from _metrics(rows, "attention")
    for one in rows.points.to_pylist():
        settings: dict[str, Any] = json.loads(one["settings"])
        path, label = ("attention", settings["data"], settings["loss"]), str(int(one["label"]))
        yield (*path, "map_labels", label), one["label"]
        yield (*path, "map_ids", label), one["id"]
        yield (*path, "maps", label, str(int(one["y"])), str(int(one["x"]))), one["value"]


def _settings(rows: Rows) -> Iterator[tuple[Keys, float]]:
    old = [(0.0, 0.5), (0.1, 0.5), (1.0, 0.5), (0.01, 0.5), (0.001, 0.5), (0.1, 1.0), (0.1, 1.5)]
    for at, (balance, margin) in enumerate(old):
        path = ("settings", "script", str(at))
        number = rows.number("test_accuracy", weight=round(100 * balance, 6), margin=margin)
        assert number is not None
        yield (*path, "balance"), balance
        yield (*path, "margin"), margin
        yield from spread((*path, "accuracy"), number).items()
