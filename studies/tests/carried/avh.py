"""Where the numbers of the old results of Angular Visual Hardness are now."""

import collections
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from carried_over import Keys, leaves, spread
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import PUBLISHED, Number, Rows, read

from hardsight import models
from hardsight.alignment import FIVE_BINS

QUARTILES = ("low", "y", "high")


class Old:
    """The old results, being filled: numbers by path."""

    def __init__(self, study: str, preset: str) -> None:
        self.study, self.preset = study, preset
        self.rows: Rows = read(study, PUBLISHED, preset)
        self.runs = plan(studies.get(study), preset)
        self.found: dict[Keys, float] = {}
        self.points: dict[tuple[str, str], list[dict[str, Any]]] = collections.defaultdict(list)
        for one in self.rows.points.to_pylist():
            self.points[_key(json.loads(one["settings"])), one["series"]].append(one)

    def put(self, path: str, value: Any) -> None:
        """A number, a list of numbers, or a tree of them, at a path such as `networks/resnet20/n`."""
        keys = tuple(path.split("/"))
        if isinstance(value, Number):
            self.found |= spread(keys, value)
        else:
            self.found |= {(*keys, *inner): one for inner, one in leaves({"": value}, ("",)) for inner in [inner[2:]]}

    def one(self, metric: str, **settings: Any) -> Number | None:
        """A metric over the seeds of exactly these settings."""
        return self.rows.number(metric, **{**dict.fromkeys(self.rows.axes), **settings})

    def curve(self, path: str, series: str, settings: Mapping[str, Any], column: str = "y", by: str = "x") -> None:
        """The points of a series as a list."""
        for at, one in enumerate(sorted(self.points[_key(settings), series], key=lambda one: one[by])):
            self.put(f"{path}/{at}", one[column])

    def metrics(self, path: str, names: Iterable[str], prefix: str = "", suffix: str = "", **settings: Any) -> None:
        """Several metrics under their own names, as plain numbers."""
        for name in names:
            number = self.one(f"{prefix}{name}{suffix}", **settings)
            self.put(f"{path}/{name}", None if number is None else number.mean)


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def _ends(number: Number | None) -> list[float | None]:
    return [] if number is None else [number.low, number.high]


def _values(number: Number | None) -> list[float]:
    return [] if number is None else list(number.values)


def numbers(study: str, preset: str) -> dict[Keys, float]:
    """Every number of the old results by its path, taken from the rows and points."""
    old = Old(study, preset)
    of = {"table1": _people, "table2": _people, "tables6-9": _people, "hypotheses": _people, "agreement": _people,
          "figure5": _people, "figure4": _training, "figure14": _training, "figure15": _iterations,
          "figure3": _toy}  # fmt: skip
    of.get(study.removeprefix("avh-"), _looked)(old)
    return {keys: value for keys, value in old.found.items() if value is not None}


def _people(old: Old) -> None:
    old.put("bins", list(FIVE_BINS))
    trained = [run.settings["network"] for run in old.runs if not run.settings["network"].endswith("-public")]
    old.put("seeds_planned", dict(collections.Counter(trained)))
    for network in old.rows.options("network"):
        path, at = f"networks/{network}", {"network": network}
        accuracy, images = old.one("accuracy", **at), old.one("images", **at)
        old.put(f"{path}/accuracy", accuracy if old.study != "avh-figure5" else accuracy.mean)
        old.put(f"{path}/seeds", sum(run.settings["network"] == network for run in old.runs))
        if images:
            old.put("images", images.mean)
            old.metrics(path, ["images"], **at)
            old.put(f"{path}/n", images.mean)
        old.put(f"{path}/counts", [one.mean for bin in range(5) if (one := old.one(f"images{bin}", **at))])
        for score in old.rows.options("score", **at):
            _score(old, f"{path}/scores/{score}", {**at, "score": score})
        for method in old.rows.options("method", **at):
            _method(old, path, method, {**at, "method": method})
        if old.study == "avh-agreement":
            _agreement(old, path, at)


def _score(old: Old, path: str, at: Mapping[str, Any]) -> None:
    rho, interval = old.one("rho", **at), _ends(old.one("rho_interval", **at))
    for name in ("total", "coefficient"):
        old.put(f"{path}/{name}", rho)
    old.put(f"{path}/spearman", rho.mean)
    old.put(f"{path}/interval", interval)
    old.put(f"{path}/p_values", _values(old.one("p", **at)))
    old.put(f"{path}/given_correctness", old.one("given_correctness", **at))
    for name, stem, count in (("bins", "bin", 5), ("classes", "class", 10)):
        for place in range(count):
            old.put(f"{path}/{name}/{place}", old.one(f"{stem}{place}", **at))
    old.put(f"{path}/medians", [one and one.mean for bin in range(5) for one in [old.one(f"median{bin}", **at)]])
    _counts(old, f"{path}/counts", old.points[_key(at), at["score"]])


def _counts(old: Old, path: str, points: Sequence[Mapping[str, Any]]) -> None:
    if points:
        counts = np.zeros((20, 20))
        for one in points:
            counts[int(one["x"] * 20), int(one["y"] * 20)] = one["count"]
        old.put(path, counts.tolist())


def _method(old: Old, path: str, method: str, at: Mapping[str, Any]) -> None:
    inner = f"{path}/methods/{method}"
    old.put(f"{inner}/n", getattr(old.one("images", network=at["network"]), "mean", None))
    for name in ("avh", "confidence", "between"):
        old.put(f"{inner}/{name}", old.one(name, **at))
    ends = _ends(old.one("ahead", **at))
    old.put(f"{inner}/difference", ends)
    old.put(f"{path}/{'difference' if method == 'spearman' else 'pearson_difference'}", ends)
    for test in ("fisher", "steiger", "meng"):
        z, p = old.one(test, **at), _values(old.one(f"{test}_p", **at))
        old.put(f"{inner}/{test}/z", z)
        old.put(f"{inner}/{test}/p_values", p)
        old.put(f"{path}/tests/{method}/{test}", _values(z))
        old.put(f"{path}/tests/{method}/{test}_p_values", p)


def _agreement(old: Old, path: str, at: Mapping[str, Any]) -> None:
    old.put("people_with_people", old.one("people_with_people", **at).mean)
    for name in [name.removesuffix("_interval") for name in old.rows.metrics if name.endswith("_interval")]:
        old.put(f"{path}/scores/{name}/coefficient", old.one(name, **at))
        old.put(f"{path}/scores/{name}/interval", _ends(old.one(f"{name}_interval", **at)))
        old.put(f"{path}/scores/{name}/against_confidence", _ends(old.one(f"{name}_ahead", **at)))
    for name in ("single", "combination", "avh", "confidence"):
        old.put(f"{path}/halves/{name}", old.one(f"half_{name}", **at))
    counts = next(row.metrics for row in old.rows.where(**at, seed=None))
    for kind, key in (("single ", "singles"), ("combined ", "combinations")):
        for name, count in counts.items():
            if name.startswith(kind):
                old.found["networks", at["network"], key, name.removeprefix(kind)] = count
    old.put(f"{path}/choices", counts["choices"])
    old.put(f"{path}/combination_ahead", counts["combination_ahead"])
    for name in ("avh_agreement", "loss_agreement", "norm_agreement", "test_accuracy"):
        old.curve(f"{path}/epochs/{name}", name, at)


def _levels(old: Old, path: str, at: Mapping[str, Any]) -> None:
    for name in old.rows.options("degradation", network=at["network"]):
        here, inner = {**at, "degradation": name}, f"{path}/{name}"
        levels = sorted(old.rows.options("level", **here), reverse=name == "noise")
        old.put(f"{inner}/levels", levels)
        old.put(f"{inner}/images", old.one("degraded", **here).mean)
        for score in ("avh", "confidence", "norm"):
            old.metrics(f"{inner}/correlations/{score}", ("spearman", "pearson", "kendall"), f"{score}_", **here)
            old.put(f"{inner}/within/{score}", getattr(old.one(f"{score}_within", **here), "mean", None))
        for place, level in enumerate(levels):
            there = {**here, "level": level}
            for kind, suffix in (("means", ""), ("sd", "_sd")):
                for score in ("avh", "confidence", "norm", "correct"):
                    number = old.one(f"{score}{suffix}", **there)
                    old.put(f"{inner}/{kind}/{score}/{place}", number and number.mean)
            for row, which in enumerate(("low", "median", "high")):
                old.put(f"{inner}/quartiles/{row}/{place}", old.one(f"avh_{which}", **there).mean)
            old.curve(f"{inner}/counts/{place}", "avh", there)
            old.curve(f"{inner}/edges", "avh", there)
            old.put(f"{inner}/edges", [one["x"] for one in old.points[_key(there), "avh"]])
            old.put(f"{inner}/edges/30", old.points[_key(there), "avh"][-1]["end"])


def _training(old: Old) -> None:
    configs = {run.settings["network"]: run.config for run in old.runs}
    old.put("settings/data", {k: v for k, v in next(iter(configs.values()))["data"].items() if k != "name"})
    old.put("settings/seeds", len({run.seed for run in old.runs}))
    for place, (network, config) in enumerate(configs.items()):
        inner = f"settings/networks/{place}"
        old.put(inner, {"epochs": config["epochs"], "lr": config["optimizer"]["lr"]})
        old.put(inner, {"batch_size": config["data"]["batch_size"], "shrink": config["data"].get("shrink", 1)})
        path, at = f"networks/{network}", {"network": network}
        degraded = old.one("degraded", **at, degradation="noise")
        old.put("settings/degraded", degraded.mean)
        old.put(f"{path}/seeds", degraded.count)
        old.metrics(path, ["epochs"], **at)
        old.put(f"{path}/human_sizes", [old.one(f"images{bin}", **at).mean for bin in range(5)])
        for name in old.rows.metrics:
            old.put(f"{path}/measures/{name}", old.one(name, **at))
        for key, series in list(old.points):
            group, _, statistic = series.partition("_")
            if key != _key(at):
                continue
            old.curve(f"{path}/curves/{group[:-1]}/{group[-1]}/{statistic}", series, at)
            old.curve(f"{path}/{series}", series, at)
            old.curve(f"{path}/rho/{series.removesuffix('_rho')}", series, at)
        _levels(old, f"{path}/levels", at)


def _iterations(old: Old) -> None:
    learned = old.one("learned")
    old.put("trainings", learned.count)
    old.put("learned", sum(learned.values))
    old.put("settings", {"seeds": learned.count, "images": old.one("images").mean, "tree": old.runs[0].config})
    old.put("settings/tree/model/options/feature_dim", models.create("lenet").head.in_features)
    for quantity in old.rows.options("quantity"):
        for name in ("settled", "knot", "by_10", "growth_after"):
            old.put(f"measures/{quantity}_{name}", old.one(name, quantity=quantity))
    for _, series in list(old.points):
        old.curve(f"curves/{series.removeprefix('all0_')}", series, {})


def _toy(old: Old) -> None:
    for name in old.rows.metrics:
        old.put(f"trials/{name}", old.one(name))
    for column in ("x", "y", "z", "avh", "norm", "label"):
        old.curve(f"points/{column}", "points", {}, column, "at")


def _looked(old: Old) -> None:
    configs = {run.settings["network"]: run.config for run in old.runs}
    public = [network for network in configs if network.endswith("-public")]
    old.put("settings/depths", [int(one.removeprefix("resnet").removesuffix("-public")) for one in public])
    if "lenet_2d" in configs:
        old.put("settings/trainings/lenet", configs["lenet_2d"])
    # The first so many images; LeNet's attack leaves out those that it gets wrong.
    looked_at = {"avh-figure2": 2000, "avh-figure19": 10_000, "avh-figure22": 150}.get(old.study, 500)
    old.put("settings/images", looked_at if old.preset == "cpu" else 10_000)
    for network in configs:
        path, at = f"networks/{'lenet' if network == 'lenet_2d' else network}", {"network": network}
        old.metrics(
            path,
            [name for row in old.rows.where(**{**dict.fromkeys(old.rows.axes), **at}) for name in row.metrics],
            **at,
        )
        _levels(old, path, at)
        for name in old.rows.options("digit", **at):
            old.metrics(
                f"{path}/classes/{name}", ("images", "median_angle", "ninth_decile", "avh"), **at, **{"digit": name}
            )
        _gathered(old, path, at)
        for place, factor in enumerate(sorted(old.rows.options("factor", **at))):
            old.put(f"{path}/factors/{place}", factor)
            for name in ("right_confidence", "wrong_confidence", "right_avh", "wrong_avh"):
                old.put(f"{path}/{name}/{place}", old.one(name, **at, factor=factor).mean)
        for attack in old.rows.options("attack", **at):
            _attack(old, f"{path}/{attack}", {**at, "attack": attack})
        for place in (path, f"{path}/plane"):
            for column in (
                {*old.points[_key(at), "images"][:1][0]} & {"x", "y", "label", "avh"}
                if old.points[_key(at), "images"]
                else ()
            ):
                old.curve(f"{place}/{column}", "images", at, column, "at")
            for weight in old.points[_key(at), "weights"]:
                old.put(f"{place}/weight/{weight['label']:.0f}", [weight["x"], weight["y"]])


def _gathered(old: Old, path: str, at: Mapping[str, Any]) -> None:
    names = {one.replace("_", " "): one for one in old.rows.options("group", **at)}
    order = ["animal", "vehicle", "carnivore", "hoofed animal", "motor vehicle"]
    for place, name in enumerate([*order, *sorted(set(names) - set(order))] if names else []):
        here, inner = {**at, "group": name}, f"{path}/groups/{place}"
        old.metrics(inner, ("classes", "images", "unanimous"), **here)
        for score in ("norm", "avh", "confidence"):
            old.put(f"{inner}/{score}", [old.one(score, **here).mean, old.one(f"{score}_p", **here).mean])
        _counts(old, f"{inner}/counts", old.points[_key(here), "norm"])


def _attack(old: Old, path: str, at: Mapping[str, Any]) -> None:
    old.metrics(path, ("switched", "compared"), **at)
    old.put(f"{path}/steps", len(old.points[_key(at), "switched"]) - 1)
    old.curve(f"{path}/switched_by_step", "switched", at)
    aggregate = next(row.metrics for row in old.rows.where(**at, seed=None))
    for name, of in aggregate.items():
        old.put(f"{path}/{name}", {"mean": of["value"], "low": of["low"], "high": of["high"], "n": of["samples"]})
    for name in ("norm", "angle", "end_angle"):
        for row, column in enumerate(QUARTILES):
            old.curve(f"{path}/{name}/{row}", name, at, column)
    for place in range(12):
        inner, series = f"{path}/examples/{place}", f"path {place}"
        for name, column in (("norm", "y"), ("angle", "angle"), ("x", "first"), ("y", "second")):
            old.curve(f"{inner}/{name}", series, at, column)
        points = old.points[_key(at), series]
        old.put(f"{inner}/switch", statistics.fmean(one["switch"] for one in points) if points else None)
