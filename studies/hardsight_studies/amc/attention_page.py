"""The page of Figures 2 and 6 of AMC-Loss; and the grids with pictures, which stay beside the records."""

import importlib.util
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from hardsight.datasets.cifar_classes import CIFAR10_CLASSES
from hardsight.report.canvas import BLUE, RED, drawing, save_png
from hardsight.training import Cell
from hardsight_studies.amc.looking import Claim, claims_part, four
from hardsight_studies.amc.recipes import LOSSES, NAMES, TITLES, caveat, length_name
from hardsight_studies.framework import markdown_table, provenance, run_details

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = {
    "test_accuracy": "accuracy",
    "energy_on_object": "energy on the ink",
    "pointing_game": "pointing game",
    "object_share": "chance",
    "energy_in_middle": "energy in the middle quarter",
    "half_energy_area": "half-energy area",
    "deletion_area": "deletion",
    "insertion_area": "insertion",
    "insertion_minus_deletion": "insertion − deletion",
}
CLAIMS = {
    "energy_on_object": Claim("more of the map lies on the object", 1),
    "pointing_game": Claim("the map's peak lies on the object more often", 1),
    "half_energy_area": Claim("maps are more compact (half-energy area)", -1),
    "insertion_minus_deletion": Claim("the prediction rests more on what the map shows (insertion − deletion)", 1),
    "energy_in_middle": Claim("more of the map lies in the middle", 1),
}
COMPARISONS = {f"AMC against {NAMES[other].removeprefix('+ ')}": ("amc", other) for other in LOSSES[:2]}


def table(results: Mapping[str, Any]) -> str:
    """What became of each claim, then the measures of each loss, then the claims with their numbers."""
    said: list[str] = []
    parts: list[str] = []
    for data, losses in results["attention"].items():
        names = [name for name in COLUMNS if any(row[name] for row in losses.values())]
        rows = [[NAMES[loss], *(four(row[name]) for name in names)] for loss, row in losses.items()]
        claims = claims_part(CLAIMS, losses, COMPARISONS)
        # What the claims' table means is said once.
        legend = claims[:1] if not said else []
        said += [f"On {TITLES[data]}:", *claims[2:]] if claims else []
        parts += [
            f"{TITLES[data]}, the first {results['images']} test images:",
            markdown_table(["loss", *(COLUMNS[name] for name in names)], rows),
            *legend,
            *claims[1:2],
        ]
    if said:
        said.insert(0, "**Result.** How many claims about AMC-Loss, listed in the tables below, hold.")
    head = f"{provenance(results)} Trained for {length_name(results['length'])}.{caveat(results['preset'])}"
    return "\n\n".join([*said, head, _LEGEND, *parts, _LIMITS]) + "\n"


_LEGEND = """**How to read the tables.** One row for each loss; numbers are means over the images.

- `energy on the ink`: the share of the map that lies on the digit (MNIST alone); `chance`: the share of the picture
  that the digit covers, which an even map would get.
- `pointing game`: how often the largest value of the map lies on the digit.
- `energy in the middle quarter`: the share of the map in the middle quarter of the picture, 0.25 for an even map.
  CIFAR-10 has no masks of its objects; this is a stand-in for them, no more.
- `half-energy area`: the share of the picture that holds half of the map. Smaller is more compact; 0.5 for an even map.
- `deletion`: how much confidence is left while the places that the map points at are deleted (smaller is better);
  `insertion`: how much there is while they are inserted (larger is better). Both also depend on how sure a network
  is, so their difference, `insertion − deletion`, is compared."""
_LIMITS = """**What one may conclude.** The paper shows maps of images that its authors chose, and no numbers. A
Grad-CAM map says where a network looks only approximately, and maps of a network that classifies badly say little."""


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """For each data set the measures of every run, and the maps of the first test image of each class."""
    drawn = {}
    for data, losses in results["attention"].items():
        drawn[f"{data}-measures"] = _measures(losses)
        drawn[f"{data}-maps"] = _maps(data, losses)
    return drawn


def _measures(losses: Mapping[str, Any]) -> "Figure":
    """A panel a claim: every run, their mean, and what an even map gets; the arrow says what is claimed."""
    names = [name for name in CLAIMS if all(row[name] for row in losses.values())]
    with drawing(2.1 * len(names), 0.35 * len(losses) + 1.2, len(names), len(names)) as figure:
        for at, (axes, name) in enumerate(zip(figure.axes, names, strict=True)):
            for place, row in enumerate(losses.values()):
                values = row[name]["values"]
                axes.plot(values, [place] * len(values), "o", color=BLUE, markersize=4, alpha=0.6)
                axes.plot(row[name]["mean"], place, "|", color=BLUE, markersize=14, markeredgewidth=2)
            nothing = _says_nothing(name, losses)
            if nothing is not None:
                axes.axvline(nothing, color=RED, linestyle="--", label="a map that is the same everywhere")
            axes.set_yticks(range(len(losses)), [NAMES[loss] for loss in losses] if at == 0 else [""] * len(losses))
            axes.set_ylim(len(losses) - 0.5, -0.5)
            axes.set_title(COLUMNS[name].replace(" in the", "\nin the"), fontsize=9)
            axes.set_xlabel("claimed: larger →" if CLAIMS[name].sign > 0 else "← claimed: smaller", fontsize=8)
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", fontsize=8)
    return figure


def _says_nothing(name: str, losses: Mapping[str, Any]) -> float | None:
    """What a map that is the same everywhere gets; of the curves that depends on the network."""
    if name in ("energy_on_object", "pointing_game"):
        return next(iter(losses.values()))["object_share"]["mean"]
    return {"half_energy_area": 0.5, "energy_in_middle": 0.25}.get(name)


def _maps(data: str, losses: Mapping[str, Any]) -> "Figure":
    """A row a loss, a column a class."""
    labels = next(iter(losses.values()))["map_labels"]
    count = len(labels) * len(losses)
    with drawing(0.85 * len(labels) + 1.2, 0.95 * len(losses) + 0.5, count, len(labels)) as figure:
        for at, axes in enumerate(figure.axes):
            row, column = divmod(at, len(labels))
            loss = list(losses)[row]
            shown = axes.imshow(np.array(losses[loss]["maps"][column]), cmap="viridis", vmin=0, vmax=100)
            _bare(axes)
            if row == 0:
                axes.set_title(_class_name(data, labels[column]), fontsize=8)
            if column == 0:
                axes.set_ylabel(NAMES[loss], fontsize=8)
        bar = figure.colorbar(shown, ax=figure.axes, fraction=0.02, pad=0.01, ticks=(0, 50, 100))
        bar.set_label("% of the map's largest", fontsize=8)
    return figure


def _class_name(data: str, label: int) -> str:
    return CIFAR10_CLASSES[label] if data == "cifar10" else f"class {label}"


def _bare(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)


def draw_grids(folder: Path, done: Sequence[Cell]) -> list[Path]:
    """`figures/DATA-SEED.png` below `folder`: image, and image under each loss's map, a column a class."""
    if importlib.util.find_spec("matplotlib") is None:
        return []
    by_run: dict[tuple[str, int], dict[str, Path]] = {}
    for cell in done:
        run = by_run.setdefault((cell.settings["data"], cell.settings["seed"]), {})
        run[cell.settings["loss"]] = folder / cell.name
    paths = []
    for (data, seed), places in by_run.items():
        if set(places) == set(LOSSES):
            paths.append(folder / "figures" / f"{data}-{seed}.png")
            save_png(_grid(data, {loss: places[loss] for loss in LOSSES}), paths[-1])
    return paths


def _grid(data: str, places: Mapping[str, Path]) -> "Figure":
    from PIL import Image

    first = next(iter(places.values()))
    pictures = pq.read_table(first / "thumbnails.parquet")["png"].to_pylist()
    images = [np.asarray(Image.open(io.BytesIO(png)).convert("RGB")) for png in pictures]
    found = {loss: run_details(place)["results"] for loss, place in places.items()}
    rows, columns = len(places) + 1, len(images)
    with drawing(0.85 * columns + 0.8, 0.95 * rows + 0.2, rows * columns, columns) as figure:
        for at, axes in enumerate(figure.axes):
            row, column = divmod(at, columns)
            height, width = images[column].shape[:2]
            axes.imshow(images[column], extent=(0, width, height, 0))
            loss = None if row == 0 else list(places)[row - 1]
            if loss is not None:
                shown = np.array(found[loss]["maps"][column])
                extent = (0, width, height, 0)
                axes.imshow(shown, cmap="inferno", alpha=0.5, interpolation="bilinear", extent=extent, vmin=0, vmax=100)
            _bare(axes)
            if row == 0:
                axes.set_title(_class_name(data, found[LOSSES[0]]["map_labels"][column]), fontsize=8)
            if column == 0:
                axes.set_ylabel("image" if loss is None else NAMES[loss], fontsize=8)
    return figure
