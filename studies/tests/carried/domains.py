"""Where the numbers of the old results of AVH's Tables 3 and 5 are now: domains adapted to, and never seen."""

import json
import re
import statistics
from collections.abc import Iterator

from carried_over import Keys, leaves, spread
from hardsight_studies.avh.adaptation_tables import accuracies, average, differences, family_of, pairs_of
from hardsight_studies.avh.generalization import average as over_domains
from hardsight_studies.avh.generalization import by_domain
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.expressions import difference, pooled
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import PUBLISHED, Number, Rows, read
from scipy.stats import ttest_1samp

FAMILIES = {"digits": "digits", "Office-Caltech10": "office-caltech10", "PACS": "pacs", "VisDA-17": "visda17"}
CORE = ("source", "cbst", "crst", "avh")


def numbers(study: str, preset: str) -> dict[Keys, float]:
    """Every number of the old results by its path, taken from the rows and points."""
    rows = read(study, PUBLISHED, preset)
    if study == "avh-table5":
        return dict((*_generalization(rows), *_sizes(study, preset)))
    return dict((*_pairs(rows), *_judged(rows), *_points(rows), *_families(study, preset)))


def _pairs(rows: Rows) -> Iterator[tuple[Keys, float]]:
    for pair in rows.options("pair"):
        for method in rows.options("method", pair=pair):
            path = ("pairs", FAMILIES[family_of(pair)], pair, method)
            for metric in ("accuracy", "class_mean_accuracy", "test_accuracy"):
                number = rows.number(metric, pair=pair, method=method)
                if number is not None:
                    yield from spread((*path, metric), number).items()


def _judged(rows: Rows) -> Iterator[tuple[Keys, float]]:
    pairs = pairs_of(rows, CORE)
    for method in rows.options("method"):
        number = average(rows, method, pairs)
        if number is not None:
            yield from spread(("average", method), number).items()
        kept = [row.metrics for row in rows.where(method=method, seed=None)]
        for name, value in kept[0].items() if kept else ():
            yield ("table4", method, name.removeprefix("first_").replace("right", "true_positive_rate")
                   if name == "first_right" else name.removeprefix("first_")), value["mean"]  # fmt: skip
            yield ("table4", method, "runs"), value["count"]
    for rival in ("cbst", "crst"):
        path, by_pair = ("tests", f"avh against {rival}"), differences(rows, rival)
        means = {pair: statistics.fmean(values) for pair, values in by_pair.items()}
        each = [value for values in by_pair.values() for value in values]
        found = {
            "mean_difference": statistics.fmean(each), "pairs_won": sum(one > 0 for one in means.values()),
            "pairs": len(means), "runs": len(each), "by_pair": means,
            "p_over_pairs": float(f"{ttest_1samp([*means.values()], 0).pvalue:.4g}"),
            "p_over_runs": float(f"{ttest_1samp(each, 0).pvalue:.4g}"),
        }  # fmt: skip
        yield from leaves(found, path)
    assert accuracies(rows, "source", pairs[0])


def _points(rows: Rows) -> Iterator[tuple[Keys, float]]:
    for one in rows.points.to_pylist():
        settings = json.loads(one["settings"])
        if one["series"] == "by_round":
            path = ("pairs", FAMILIES[family_of(settings["pair"])], settings["pair"], settings["method"])
            yield (*path, "by_round", str(int(one["x"]))), one["y"]
        else:
            shown = re.fullmatch(r"picture (\d+): .*, (\d\.\d+)", one["series"])
            assert shown is not None
            yield ("figure21", settings["pair"], shown[1], "confidence"), float(shown[2])


def _families(study: str, preset: str) -> Iterator[tuple[Keys, float]]:
    """What the old file repeated of its preset: the TOML says it now."""
    runs = plan(studies.get(study), preset)
    for run in runs:
        of, name = run.config["families"][run.config["family"]], FAMILIES[family_of(run.settings["pair"])]
        seeds = sorted({one.seed for one in runs if one.settings["pair"] == run.settings["pair"]})
        options = {key: value for key, value in of.items() if key not in ("model", "options", "features")}
        found = {**options, "seeds": seeds, "lr": 0.01, "model_options": of["options"]}
        yield from leaves(found, ("settings", name))


def _generalization(rows: Rows) -> Iterator[tuple[Keys, float]]:
    for begin in rows.options("begin"):
        for method in rows.options("method", begin=begin):
            found = {**by_domain(rows, begin, method), "average": over_domains(rows, begin, method)}
            for domain, number in found.items():
                if number is not None:
                    yield from spread(("accuracy", begin, method, domain), _percent(number)).items()
        for domain in rows.options("held_out"):
            chosen = rows.number("scale", begin=begin, method="avh", held_out=domain)
            for at, scale in enumerate(chosen.values if chosen else ()):
                yield ("chosen_scales", begin, domain, str(at)), scale
        for row in rows.where(begin=begin, method="avh", seed=None):
            for name, value in row.metrics.items():
                part, _, scale = name.partition("_at_")
                yield ("scales", begin, scale, part), 100 * value["mean"]
        yield from _differences(rows, begin)


def _differences(rows: Rows, begin: str) -> Iterator[tuple[Keys, float]]:
    ours, theirs = (by_domain(rows, begin, method) for method in ("avh", "cross_entropy"))
    gaps = {domain: difference(one, theirs[domain]) for domain, one in ours.items() if one and theirs[domain]}  # type: ignore[arg-type]
    if not gaps:
        return
    found = {
        "mean": round(100 * statistics.fmean(one.mean for one in gaps.values()), 2),
        "pairs": sum(one.count for one in gaps.values()),
        "by_domain": {domain: round(100 * one.mean, 2) for domain, one in gaps.items()},
    }
    if all(one.count > 1 for one in gaps.values()):
        ends = pooled([*gaps.values()])
        found |= {"low": round(100 * (ends.low or 0), 2), "high": round(100 * (ends.high or 0), 2)}
    yield from leaves(found, ("difference", begin))


def _sizes(study: str, preset: str) -> Iterator[tuple[Keys, float]]:
    configs = [run.config for run in plan(studies.get(study), preset)]
    yield ("settings", "size"), max(one["size"] for one in configs)
    for samples in {one["samples"] for one in configs if "samples" in one}:
        yield ("settings", "samples"), samples


def _percent(number: Number) -> Number:
    return Number.of({seed: 100 * one for seed, one in zip(number.seeds, number.values, strict=True)})
