"""The study `detection`: how well hs.audit finds wrong labels, outliers and near duplicates, beside cleanlab.

All that a run compares is computed from the same features, labels and out-of-fold probabilities.
"""

import functools
import importlib.util
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hardsight as hs
from hardsight.cleaning.columns import rank_average
from hardsight.cleaning.combined import label_doubt, posterior_doubt
from hardsight.datasets.interface import ArrayDataset
from hardsight.engines.encoders import features_of_images
from hardsight.hardness import logit_margin
from hardsight.heads import record_head
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Rows
from hardsight_studies.engine.tables import show
from hardsight_studies.together.detection import average_precisions, detect
from hardsight_studies.together.detection_inputs import BACKBONE, PIXELS, Inputs, inputs

DEVELOPMENT = ("pacs-uniform", "pacs-lookalikes", "texts-even", "digits", "cifar10h-vote", "cifar10h-20", "cifar10h-40")
JUDGED = ("aggre", "random1", "worse", "office-uniform", "office-lookalikes", "texts-odd", "breast-cancer")
PLANTED = "planted"
# What one pass of heads, neighbours and a recorded network give, each alone; then the default; then cleanlab's.
METHODS = ("confidence", "margin", "el2n", "posterior", "angular_margin", "avh", "neighbours", "recorded",
           "margin_and_neighbours", "el2n_with_neighbours", "hardsight", "cleanlab")  # fmt: skip
_RESAMPLES = 200
# 5 % of the planted images each: images of CIFAR-100, and copies that were shifted, brightened or cut.
_IMAGES, _STRANGE, _COPIES = 5000, 250, 250


def measure(run: Run) -> dict[str, Any]:
    """One set and one seed."""
    name, cache = str(run.settings["set"]), run.folder.parent / "features"
    return planted(run.seed, cache) if name == PLANTED else labels_found(inputs(name, run.seed, cache), run.seed)


# ---------------------------------------------------------------------------------------------------------------------
# Wrong labels.


def labels_found(given: Inputs, seed: int) -> dict[str, Any]:
    """Average precision of every method with intervals, the counts that are estimated, and processor seconds."""
    labels, wrong = given.labels, given.wrong
    seconds: dict[str, float] = {}
    audit = _timed(seconds, "hardsight", lambda: hs.audit(labels=labels, features=given.features, seed=seed))
    places = np.argsort(audit.table.column("id").to_numpy())
    ranked = {
        name: audit.table.column(name).to_numpy()[places] for name in ("margin_with_neighbours", "angular_margin")
    }
    # The probabilities of the same heads, for all that are ranked by probabilities.
    head = _timed(seconds, "heads", lambda: hs.fit_head(given.features, labels, seed=seed))
    beliefs = head.probabilities()
    near = audit.table.column("neighbour_disagreement").to_numpy()[places]
    recorded = record_head(given.features, labels, num_classes=beliefs.shape[1], seed=seed)
    found = {
        "confidence": label_doubt(beliefs, labels).numpy(),
        "margin": -logit_margin(beliefs.clamp_min(1e-30).log(), labels).numpy(),
        "el2n": _el2n(beliefs, labels),
        "posterior": posterior_doubt(beliefs, labels).numpy(),
        "angular_margin": -ranked["angular_margin"],
        "avh": head.score(("avh",))["avh"].numpy(),
        "neighbours": near,
        "recorded": -logit_margin(recorded.clamp_min(1e-30).log(), labels).numpy(),
        "margin_and_neighbours": rank_average([-ranked["angular_margin"], near]),
        "el2n_with_neighbours": rank_average([_el2n(recorded, labels), near]),
        "hardsight": -ranked["margin_with_neighbours"],
    }
    estimates = {"hardsight": audit.issues.estimated}
    if importlib.util.find_spec("cleanlab") is not None:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores

        probabilities = beliefs.double().numpy()
        probabilities /= probabilities.sum(1, keepdims=True)
        quality = _timed(seconds, "cleanlab", lambda: get_label_quality_scores(labels.numpy(), probabilities))
        found["cleanlab"] = -quality
        issues = _timed(seconds, "cleanlab", lambda: find_label_issues(labels.numpy(), probabilities, n_jobs=1))
        estimates["cleanlab"] = int(issues.sum())
    measured: dict[str, Any] = {"wrong_labels": float(wrong.mean())}
    for name, values in found.items():
        measured |= {f"{metric}_of_{name}": value for metric, value in detect(wrong, values).items()}
    measured |= _intervals(wrong, found, seed)
    for name, count in estimates.items():
        first = np.argsort(-found[name], kind="stable")[:count]
        measured |= {
            f"estimate_of_{name}": float(count),
            f"estimate_error_of_{name}": abs(count - wrong.sum()) / wrong.sum(),
            f"precision_at_estimate_of_{name}": float(wrong[first].mean()) if count else 0.0,
        }
    return measured | {f"seconds_of_{name}": value for name, value in seconds.items()}


def _el2n(beliefs: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    error = beliefs.double().scatter_add(1, labels[:, None], torch.full((len(labels), 1), -1.0).double())
    lengths: np.ndarray = error.norm(dim=1).numpy()
    return lengths


def _timed(seconds: dict[str, float], name: str, work: Callable[[], Any]) -> Any:
    """Processor seconds, of all cores; on a machine that others use they say more than a clock."""
    began = time.process_time()
    found = work()
    seconds[name] = seconds.get(name, 0.0) + time.process_time() - began
    return found


def _intervals(wrong: np.ndarray, found: Mapping[str, np.ndarray], seed: int) -> dict[str, Any]:
    """Average precision of every method, and the default's lead over cleanlab: 95 % over samples drawn again."""
    generator, many = np.random.default_rng(seed), len(wrong)
    counts = [np.bincount(generator.integers(0, many, many), minlength=many) for _ in range(_RESAMPLES)]
    drawn = {name: average_precisions(wrong, values, counts) for name, values in found.items()}
    whole = {name: float(average_precisions(wrong, values, [np.ones(many)])[0]) for name, values in found.items()}
    numbers = {f"average_precision_of_{name}": (whole[name], values) for name, values in drawn.items()}
    if "cleanlab" in found:
        numbers["ahead"] = (whole["hardsight"] - whole["cleanlab"], drawn["hardsight"] - drawn["cleanlab"])
    return {name: _interval(value, values) for name, (value, values) in numbers.items()}


def _interval(value: float, drawn: np.ndarray) -> dict[str, Any]:
    low, high = np.quantile(drawn, (0.025, 0.975))
    return {"value": float(value), "low": float(low), "high": float(high), "over": "samples"}


# ---------------------------------------------------------------------------------------------------------------------
# Outliers and near duplicates.


def planted(seed: int, cache: Path) -> dict[str, float]:
    """AUROC of outliers and recall of duplicates, planted in CIFAR-10's test images; Datalab on the same features."""
    images, strange, pairs = planted_images(seed)
    features, _ = features_of_images(images, BACKBONE, size=PIXELS, cache=cache / f"planted-{seed}", progress=False)
    labels = images.labels
    seconds: dict[str, float] = {}
    audit = _timed(seconds, "hardsight", lambda: hs.audit(labels=labels, features=features, seed=seed))
    table = audit.table.select(["id", "class_angle", "neighbour_angle", "duplicate_group", "kinds"])
    places = np.argsort(table.column("id").to_numpy())
    angle = {name: table.column(name).to_numpy()[places] for name in ("class_angle", "neighbour_angle")}
    group = table.column("duplicate_group").to_numpy(zero_copy_only=False)[places]
    named = np.array(["outlier" in (one or ()) for one in table.column("kinds").to_pylist()])[places]
    measured: dict[str, float] = {
        "auroc_of_class_angle": detect(strange, angle["class_angle"])["auroc"],
        "auroc_of_neighbour_angle": detect(strange, angle["neighbour_angle"])["auroc"],
        "outliers_named": float(named.sum()),
        "outliers_named_rightly": float(named[strange].sum()),
        **_recall("hardsight", group, pairs),
    }
    if importlib.util.find_spec("cleanlab") is not None:
        from cleanlab import Datalab

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lab = Datalab({"label": labels.numpy()}, label_name="label", verbosity=0)
            kinds: dict[str, Mapping[str, Any]] = {"outlier": {}, "near_duplicate": {}}
            _timed(seconds, "cleanlab", lambda: lab.find_issues(features=features.numpy(), issue_types=kinds))
        quality = lab.get_issues("outlier")["outlier_score"].to_numpy()
        sets = lab.get_issues("near_duplicate")["near_duplicate_sets"].tolist()
        joined = np.array([min([at, *map(int, one)]) if len(one) else np.nan for at, one in enumerate(sets)])
        measured["auroc_of_cleanlab"] = detect(strange, -quality)["auroc"]
        measured |= _recall("cleanlab", joined, pairs, sets)
    return measured | {f"seconds_of_{name}": value for name, value in seconds.items()}


def _recall(name: str, group: np.ndarray, pairs: np.ndarray, sets: Sequence[Any] | None = None) -> dict[str, float]:
    """The share of planted pairs that are found together, and how many samples are called duplicates in all."""
    if sets is None:
        together = group[pairs[:, 0]] == group[pairs[:, 1]]
    else:
        together = np.array([other in set(map(int, sets[one])) for one, other in pairs])
    called = ~np.isnan(group.astype(float))
    planted_ones = np.zeros(len(group), bool)
    planted_ones[pairs.reshape(-1)] = True
    return {
        f"duplicate_recall_of_{name}": float(together.mean()),
        f"duplicates_of_{name}": float(called.sum()),
        f"duplicate_precision_of_{name}": float(planted_ones[called].mean()) if called.any() else 0.0,
    }


def planted_images(seed: int) -> tuple[ArrayDataset, np.ndarray, np.ndarray]:
    """CIFAR-10's images with strange ones and copies, which of them are strange, and the pairs of original and copy."""
    generator = torch.Generator().manual_seed(seed)
    test, other = hs.datasets.load("cifar10", "test"), hs.datasets.load("cifar100", "test")
    assert isinstance(test, ArrayDataset)
    assert isinstance(other, ArrayDataset)
    own = torch.randperm(len(test), generator=generator)[:_IMAGES]
    guests = torch.randperm(len(other), generator=generator)[:_STRANGE]
    twins = torch.randperm(_IMAGES, generator=generator)[:_COPIES]
    pixels = test.images[own]
    copies = pixels[twins].clone()
    third = _COPIES // 3
    copies[:third] = copies[:third].roll(1, 3)
    copies[third : 2 * third] = (copies[third : 2 * third].float() * 1.15).clamp(max=255).byte()
    inner = copies[2 * third :, :, 2:-2, 2:-2].float()
    copies[2 * third :] = torch.nn.functional.interpolate(inner, size=(32, 32), mode="bilinear").round().byte()
    labels = torch.cat([test.labels[own], torch.randint(10, (_STRANGE,), generator=generator), test.labels[own][twins]])
    together = torch.cat([pixels, other.images[guests], copies])
    strange = np.zeros(len(labels), bool)
    strange[_IMAGES : _IMAGES + _STRANGE] = True
    pairs = np.stack([twins.numpy(), _IMAGES + _STRANGE + np.arange(_COPIES)], 1)
    images = ArrayDataset(images=together, labels=labels, name="planted", split="test", class_names=test.class_names)
    return images, strange, pairs


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def _precisions(rows: Rows, wanted: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Average precision of every method on the sets that the default was chosen on, or that nothing was chosen on."""
    there = [name for name in wanted if rows.where(set=name)]
    lines = []
    for method in METHODS:
        numbers = [rows.number(f"average_precision_of_{method}", set=name) for name in there]
        lines.append([f"`{method}`", *(show(number) for number in numbers)])
    shares = [rows.number("wrong_labels", set=name) for name in there]
    heads = [name if share is None else f"{name} ({share.mean:.0%} wrong)"
             for name, share in zip(there, shares, strict=True)]  # fmt: skip
    return ["score", *heads], lines


development, judged = (functools.partial(_precisions, wanted=one) for one in (DEVELOPMENT, JUDGED))


def counts(rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Error of the estimated count and precision at it, the lead over cleanlab, and processor seconds."""
    columns = ("ahead", "estimate_error_of_hardsight", "estimate_error_of_cleanlab",
               "precision_at_estimate_of_hardsight", "precision_at_estimate_of_cleanlab", "seconds_of_hardsight",
               "seconds_of_heads", "seconds_of_cleanlab")  # fmt: skip
    heads = ["set", "average precision ahead of cleanlab's", "error of count", "cleanlab's", "precision at it",
             "cleanlab's", "seconds of hs.audit", "of heads alone", "of cleanlab after these"]  # fmt: skip
    there = [name for name in (*JUDGED, *DEVELOPMENT) if rows.where(set=name)]
    return heads, [[name, *(show(rows.number(one, set=name)) for one in columns)] for name in there]
