"""Where the numbers of the old results across the papers are now."""

import itertools
import json
from collections.abc import Iterator

from carried_over import Keys, leaves, spread
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import PUBLISHED, Number, Rows, read
from hardsight_studies.together.hardness import BINS
from hardsight_studies.together.label_errors import _SNAPSHOTS


def numbers(study: str, preset: str) -> dict[Keys, float]:
    """Every number of the old results by its path, taken from the rows and points."""
    rows = read(study, PUBLISHED, preset)
    return dict((*_errors(rows), *_protocol(study, preset)) if study == "label-errors" else _hardness(rows))


def _errors(rows: Rows) -> Iterator[tuple[Keys, float]]:
    for noise in rows.options("noise"):
        for name in rows.metrics:
            number = rows.number(name, noise=noise)
            metric, _, score = name.partition("_of_")
            if number is not None:
                yield from spread(("noises", noise, score, metric), number).items()
                if name == "wrong_labels":
                    yield ("wrong_labels", noise), number.mean


def _protocol(study: str, preset: str) -> Iterator[tuple[Keys, float]]:
    """What the old file repeated of its preset: the TOML says it now."""
    runs = plan(studies.get(study), preset)
    config, data = runs[0].config, runs[0].config["data"]
    seeds = {kind: sorted({run.seed for run in runs if run.settings["training"] == kind}) for kind in
             ("whole", "stronger", "halves")}  # fmt: skip
    found = {
        "epochs": config["epochs"], "seeds": seeds["whole"], "fold_seeds": seeds["halves"],
        "stronger_seeds": seeds["stronger"], "snapshots": list(_SNAPSHOTS[config["epochs"]]),
        "samples": data.get("limit"), "shrink": data.get("shrink", 1), "batch_size": data.get("batch_size", 128),
        "lr": config["optimizer"]["lr"], "shift": data["shift"],
        "at_once": studies.get(study).at(preset).get("at_once", 1),
    }  # fmt: skip
    yield from leaves(found, ("settings",))


def _hardness(rows: Rows) -> Iterator[tuple[Keys, float]]:
    yield from leaves([list(one) for one in itertools.pairwise(BINS)], ("bins",))
    yield ("chance",), 0.1
    for row in rows:
        path: Keys = ("losses", row.settings["loss"])
        for name, value in row.metrics.items():
            if isinstance(value, list):
                for at, one in enumerate(value):
                    if one is not None:
                        yield from spread((*path, name, str(at)), Number.of({0: float(one)})).items()
            elif value is not None:
                kind = name.removeprefix("degraded_")
                of_kind = name.startswith("degraded_") and kind not in ("accuracy", "avh")
                place = (*path, "degraded_by_kind", kind) if of_kind else (*path, name)
                yield from spread(place, Number.of({0: value})).items()
    for one in rows.points.to_pylist():
        kind, name = one["series"].split(", ")
        by = {"accuracy": "degraded_by_level", "avh": "avh_by_level"}[name]
        path = ("losses", json.loads(one["settings"])["loss"], by, kind, f"{one['x']:g}")
        yield from spread(path, Number.of({0: one["y"]})).items()
