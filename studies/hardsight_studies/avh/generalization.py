"""AVH, Table 5: accuracy on a domain that was never seen, by cross-entropy, the AVH loss and MLDG."""

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from hardsight import datasets
from hardsight.datasets import ArrayDataset, FileDataset
from hardsight.engines.model_spec import missing_packages
from hardsight.plotting import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight_studies.avh.unseen import Recipe, generalize, with_backbone_features
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.expressions import difference, interval, pooled
from hardsight_studies.engine.grid import Run
from hardsight_studies.engine.rows import Number, Rows
from hardsight_studies.engine.study import get
from hardsight_studies.engine.tables import show
from hardsight_studies.engine.trainings import write_record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DIGIT_DOMAINS = ("plain", "faint", "noisy")
Lines = tuple[list[str], list[list[str]]]
_BEGINS = ("scratch", "frozen", "finetuned")
_METHODS = {"cross_entropy": "cross-entropy", "avh": "AVH loss", "mldg": "MLDG"}
_PACS = ("art_painting", "cartoon", "photo", "sketch")


def compute(runs: Sequence[Run], preset: str, options: Options) -> None:
    """Train these runs; those whose backbone is not installed are left out with a sentence."""
    for run in runs:
        options.clock.check()
        if run.settings["begin"] != "scratch" and missing_packages():
            options.say(f"left out {run.name}: it needs the backbone (pip install 'hardsight[backbone]')")
            continue
        device = options.torch_device
        of = run.config
        frozen = run.settings["begin"] == "frozen"
        data, validation = load_domains(of["data"], of["size"], of.get("samples"), str(device) if frozen else None)
        found = generalize(
            data, run.settings["held_out"], run.settings["method"], recipe=Recipe(**of["recipe"]),
            scales=of["scales"], validation=validation, seed=run.seed, device=device, folder=run.folder / "trainings",
        )  # fmt: skip
        results = {"test_accuracy": found.accuracy, "validation_accuracy": found.validation_accuracy}
        tried = {f"{name}_at_{scale:g}": accuracy for scale, both in found.tried.items()
                 for name, accuracy in zip(("validation", "test"), both, strict=True)}  # fmt: skip
        write_record(run, {**results, "scale": found.scale, **tried}, device, config=of)


# ---------------------------------------------------------------------------------------------------------------------
# The domains: PACS by its authors' lists, and three ways to see scikit-learn's digits.


@functools.lru_cache(maxsize=2)
def load_domains(
    name: str, size: int | None, samples: int | None, features_by: str | None = None
) -> tuple[ArrayDataset, ArrayDataset | float]:
    """Samples to train on by domain, and those to validate on: a set of their own, or a share of the training set.

    PACS comes with lists that say what to train and what to validate on; where they are missing, a tenth of each
    domain and class validates. `samples`: so many of them, drawn by a fixed seed. `features_by`: a device that turns
    images into features of the ImageNet backbone.
    """
    if name == "digits":
        return digit_domains(samples), 0.2
    data: ArrayDataset
    validation: ArrayDataset | float
    try:
        data, validation = _some("train", size, samples), _some("crossval", size, samples and samples // 9)
    except FileNotFoundError:
        data, validation = _some("all", size, samples), 0.1
    if features_by is None:
        return data, validation
    kept = with_backbone_features(validation, features_by) if isinstance(validation, ArrayDataset) else validation
    return with_backbone_features(data, features_by), kept


def digit_domains(samples: int | None = None) -> ArrayDataset:
    """scikit-learn's digits in three domains: as they are, at a third of the contrast, and under noise.

    Every digit is in one domain only; 8 x 8 pixels.
    """
    digits = datasets.load("digits")
    assert isinstance(digits, ArrayDataset)
    generator = torch.Generator().manual_seed(0)
    chosen = digits.subset(torch.randperm(len(digits), generator=generator)[:samples])
    domains = torch.arange(len(chosen)) % len(DIGIT_DOMAINS)
    images = chosen.images.float()
    seen = torch.stack([images, images / 3 + 80, images + 60 * torch.randn(images.shape, generator=generator)])
    images = seen[domains, torch.arange(len(chosen))].round().clamp(0, 255).to(torch.uint8)
    return dataclasses.replace(
        chosen, images=images, domains=domains, domain_names=DIGIT_DOMAINS, ids=torch.arange(len(chosen))
    )


def _some(split: str, size: int | None, samples: int | None) -> ArrayDataset:
    files = datasets.load("pacs", split)
    assert isinstance(files, FileDataset)
    if samples is not None:
        order = torch.randperm(len(files), generator=torch.Generator().manual_seed(0))
        files = files.subset(order[:samples].sort().values)
    return files.load(size)


# ---------------------------------------------------------------------------------------------------------------------
# The tables and the figure.


def printed() -> dict[str, list[float]]:
    """What the paper's table and the talk's slides print, in %: each domain, and the average."""
    found: dict[str, list[float]] = get("avh-table5").entry("table", "accuracy")["paper"]
    return found


def accuracy(rows: Rows) -> Lines:
    """Accuracy on the domain left out by setting and method, and the average over domains; then the paper's rows."""
    domains = rows.options("held_out")
    lines = []
    for begin, method in itertools.product(_BEGINS, _METHODS):
        if rows.where(begin=begin, method=method):
            numbers = [*by_domain(rows, begin, method).values(), average(rows, begin, method)]
            lines.append([f"{begin}, {_METHODS[method]}", *(show(one, ".2%") for one in numbers)])
    if tuple(domains) == _PACS:
        lines += [[f"paper: {name}", *(f"{value:.2f}" for value in values)] for name, values in printed().items()]
    return ["accuracy (%) on", *(domain.replace("_", " ") for domain in domains), "average"], lines


def by_domain(rows: Rows, begin: str, method: str) -> dict[str, Number | None]:
    """Accuracy on each domain when it was left out."""
    where = {"begin": begin, "method": method}
    return {one: rows.number("test_accuracy", **where, held_out=one) for one in rows.options("held_out")}


def average(rows: Rows, begin: str, method: str) -> Number | None:
    """Mean over the domains, by the seeds that have them all."""
    found = [
        dict(zip(one.seeds, one.values, strict=True)) if one else {} for one in by_domain(rows, begin, method).values()
    ]
    shared = [seed for seed in found[0] if all(seed in one for one in found)]
    return Number.of({seed: statistics.fmean(one[seed] for one in found) for seed in shared}) if shared else None


def differences(rows: Rows) -> Lines:
    """AVH loss minus cross-entropy in points: by domain, and the average with two 95 % intervals.

    Over seeds the four domains count as fixed; over domains they count as drawn from all that there are.
    """
    lines = []
    for begin in _BEGINS:
        ours, theirs = (by_domain(rows, begin, method).values() for method in ("avh", "cross_entropy"))
        found = [difference(one, other) for one, other in zip(ours, theirs, strict=True) if one and other]
        if len(found) == len(rows.options("held_out")):
            seeds = (
                pooled(found) if all(one.count > 1 for one in found) else statistics.fmean(one.mean for one in found)
            )
            points = [*(one.mean for one in found), seeds, interval(found)]
            lines.append([begin, *(show(one, "+.2%") for one in points)])
    heads = [domain.replace("_", " ") for domain in rows.options("held_out")]
    return ["AVH loss − cross-entropy", *heads, "average [over seeds]", "average [over domains]"], lines


def scales(rows: Rows) -> Lines:
    """What each scale gives on the validation samples, by which it is chosen, and on the domain left out."""
    lines = []
    for begin in _BEGINS:
        mine = rows.where(begin=begin, method="avh")
        tried = {float(name.rpartition("_")[2]) for row in mine for name in row.metrics if "_at_" in name}
        for scale in sorted(tried):
            parts = [
                _mean([row.metrics.get(f"{part}_at_{scale:g}") for row in mine]) for part in ("validation", "test")
            ]
            chosen = [row for row in mine if row.metrics.get("scale") == scale]
            counted = f"{len(chosen)} of {sum('scale' in row.metrics for row in mine)}"
            lines.append([begin, f"{scale:g}", *(f"{100 * part:.2f}" for part in parts), counted])
    return ["setting", "scale", "validation (%)", "domain left out (%)", "chosen"], lines


def _mean(values: Sequence[Any]) -> float:
    """Over runs; of the runs of which only the mean is known, that mean."""
    known = [value for value in values if isinstance(value, int | float)]
    return statistics.fmean(known) if known else next(value["mean"] for value in values if value is not None)


def draw(rows: Rows) -> "Figure":
    """Accuracy by domain left out, one panel a setting: a dot a seed, a bar at the mean."""
    begins = [begin for begin in _BEGINS if rows.where(begin=begin)]
    domains = [*rows.options("held_out"), "average"]
    colours = {"cross_entropy": INK, "avh": RED, "mldg": BLUE}
    with drawing(4.2 * len(begins), 3.0, len(begins), len(begins)) as figure:
        for axes, begin in zip(figure.axes, begins, strict=True):
            for at, (method, colour) in enumerate(colours.items()):
                numbers = [*by_domain(rows, begin, method).values(), average(rows, begin, method)]
                for place, number in enumerate(numbers):
                    if number is not None:
                        x = place + 0.22 * (at - 1)
                        axes.plot(
                            [x] * number.count, [100 * one for one in number.values], ".", color=colour, markersize=4
                        )
                        axes.plot([x - 0.09, x + 0.09], [100 * number.mean] * 2, color=colour, linewidth=2)
                axes.plot([], [], color=colour, linewidth=2, label=_METHODS[method])
            for name, colour in (("CNN-10", PURPLE), ("CNN-10 + AVH", GREEN)):
                if tuple(domains[:-1]) == _PACS:
                    paper = printed()[f"{name}, ImageNet first"]
                    axes.plot(range(5), paper, "_", color=colour, markersize=14, label=f"paper, {name}")
            axes.set_xticks(range(len(domains)), [name.replace("_", "\n") for name in domains])
            axes.set(title=begin, xlabel="domain left out", ylabel="accuracy on it (%)")
            axes.tick_params(color=FAINT)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, fontsize=7)
    return figure
