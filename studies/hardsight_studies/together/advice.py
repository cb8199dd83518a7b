"""The library's table of advice: what each loss gained, and what share of wrong labels a ranking found, from rows."""

import json
from collections import defaultdict
from typing import Any

from hardsight.cleaning.advice import MEMORISED
from hardsight_studies.engine.expressions import difference, interval
from hardsight_studies.engine.rows import PUBLISHED, Number, read
from hardsight_studies.engine.study import get

# Study and preset; the settings that give the conditions, with the kind of noise; the data in words.
_MNIST, _FEATURES = "MNIST, 3,000 images", "CIFAR-10 on a frozen network, 3,000 images"
_LOSSES: tuple[tuple[str, dict[str, Any], str, str], ...] = (
    ("gr-auto", {"protocol": "long"}, "uniform", f"{_MNIST}, trained long"),
    ("gr-auto", {"protocol": "short"}, "uniform", f"{_MNIST}, trained briefly"),
    ("gr-table5", {"protocol": "printed"}, "uniform", f"{_MNIST}, trained long, as printed"),
    ("gr-table4", {}, "uniform", f"{_MNIST}, trained long, as printed"),
    ("rescaled", {"labels": "symmetric-40"}, "uniform", _FEATURES),
    ("rescaled", {"labels": "worse"}, "pairs", _FEATURES),
    ("rescaled", {"labels": "random1"}, "pairs", _FEATURES),
    ("rescaled", {"labels": "random2"}, "pairs", _FEATURES),
    ("rescaled", {"labels": "aggre"}, "pairs", _FEATURES),
    ("rescaled", {"labels": "open-set"}, "outside", _FEATURES),
)
_TOLD = ("forward", "backward")
# Those of `rescaled` that are not named as in GR's tables.
_MORE = {"gr": {"name": "gradient_rescaling", "options": {"beta": 8.0, "lam": 0.5}}}
_REVIEW = {"symmetric20": "uniform", "symmetric40": "uniform", "asymmetric40": "pairs", "aggre": "pairs",
           "random1": "pairs", "worse": "pairs"}  # fmt: skip


def advice_table() -> str:
    """`advice.json` of the library, as text."""
    losses = [row for one in _LOSSES for row in _gains(*one)]
    # Tables share runs.
    once = {json.dumps([row[name] for name in ("data", "kind", "rate", "loss")]): row for row in losses}
    return json.dumps({"losses": list(once.values()), "review": _recalls()}, indent=1, ensure_ascii=False) + "\n"


def _gains(study: str, where: dict[str, Any], kind: str, data: str) -> list[dict[str, Any]]:
    # What can no longer be trained, or was told the true noise, cannot be advised.
    methods = get("gr-auto").tree["values"]["method"].items()
    settings = {name: about["set"]["loss"] for name, about in methods if "set" in about and name not in _TOLD}
    settings |= _MORE
    found: dict[Any, dict[str, dict[str, dict[int | None, float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in read(study, PUBLISHED, "cpu"):
        if row.error or any(row.settings.get(name) != value for name, value in where.items()):
            continue
        metrics = found[row.settings.get("rate")]["cce" if row.settings["method"] == "ce" else row.settings["method"]]
        for name in ("last", "noisy", "share"):
            if row.metrics.get(name) is not None:
                metrics.setdefault(name, {})[row.seed] = row.metrics[name]
    rows = []
    for given, trained in sorted(found.items()):
        plain = trained["cce"]
        rate = round(Number.of(plain["share"]).mean, 2) if given is None else given
        memorised = Number.of(plain["noisy"]).mean >= MEMORISED if rate else None
        for method, metrics in sorted(trained.items()):
            loss = settings.get(method)
            if method == "cce" or loss is None:
                continue
            ours, theirs = Number.of(metrics["last"]), Number.of(plain["last"])
            shared = set(ours.seeds) & set(theirs.seeds)
            if len(shared) < 2:
                continue
            gain = interval(difference(ours, theirs))
            rows.append(
                {"study": study, "data": data, "kind": kind, "rate": rate, "memorised": memorised, "loss": loss,
                 "seeds": len(shared)}
                | {name: round(float(value or 0), 4) for name, value in (
                    ("accuracy", ours.mean), ("plain", theirs.mean), ("gain", gain.mean), ("low", gain.low),
                    ("high", gain.high))}
            )  # fmt: skip
    return rows


def _recalls() -> list[dict[str, Any]]:
    """Share of the wrong labels among as many suspects as there are wrong labels, by the default ranking of a run."""
    found: dict[str, dict[int | None, float]] = defaultdict(dict)
    rates: dict[str, float] = {}
    for row in read("label-errors", PUBLISHED, "paper"):
        noise = str(row.settings["noise"])
        rates[noise] = row.metrics.get("wrong_labels", rates.get(noise))
        value = row.metrics.get("precision_at_count_of_training_and_margin")
        if row.settings["training"] == "whole" and value is not None:
            found[noise][row.seed] = value
    return [
        {"study": "label-errors", "kind": _REVIEW[noise], "rate": round(rates[noise], 2),
         "recall": round(Number.of(values).mean, 4), "seeds": len(values)}
        for noise, values in sorted(found.items())
    ]  # fmt: skip
