"""Label errors: which score of one training run finds the wrong labels of CIFAR-10.

Claim: a score recorded for free during one run ranks wrong labels better than out-of-fold self-confidence, which
trains twice. First measurement (ResNet-20, 30 epochs, one seed, average precision on CIFAR-10N's aggre / random1 /
worse): mean EL2N 0.782 / 0.890 / 0.937, out-of-fold self-confidence 0.686 / 0.828 / 0.902.
Ours (one H200, 2026-11-15): it holds on every noise measured, for mean EL2N and the more so for the default of
`find_label_issues` (`training_and_margin`, chosen on random1). The numbers: docs/studies/label-errors.md, made from
results/label-errors-*.json.

ResNet-20, 30 epochs, batch 128, SGD 0.1 with momentum 0.9 and weight decay 5e-4, cosine, crop and flip. Noise: people's
errors in CIFAR-10N (Wei et al. 2022), symmetric (each label with probability r to another class) and asymmetric
(Patrini et al. 2017). A cell is one training: of the whole set, every sample recorded, or of one half of it, for the
probabilities of the other half. No clean label is used before a cell is judged.
"""

import dataclasses
import importlib.util
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch

from hardsight.cleaning.combined import RANK_COMBINATIONS, combined_scores, rank_combinations
from hardsight.training import Cell
from hardsight.training.sweeps import FINISHED, status_of
from hardsight_studies.detection import METRICS, Detection, detect, detect_all, suspicions, taught, wrong_labels
from hardsight_studies.framework import Options, Study, run_details, spread
from hardsight_studies.keeping import Entries
from hardsight_studies.label_errors_table import CLEANLAB, OUT_OF_FOLD, TAUGHT, table
from hardsight_studies.noisy_runs import FOLDS, HUMAN, STRONGER, WHOLE, Runs, compute_runs

# Of the stronger network's runs: the defaults of `find_label_issues`, their parts, and how much there was to find.
STRONGER_SHOWN = (
    "el2n_mean", "aum", "angular_margin", "smoothed_last_posterior", "training_and_margin", "training_and_neighbours",
    "training_margin_and_neighbours", TAUGHT,
)  # fmt: skip

PRESETS = {
    "smoke": Runs(
        "digits", "digits_cnn", epochs=3, noises=("symmetric20", "asymmetric40"), seeds=(0, 1), fold_seeds=(0,),
        snapshots=(1, 2, 3), samples=600, batch_size=64, lr=0.05, shift=1, flip=False, stronger="digits_cnn",
        stronger_seeds=(0,),
    ),
    # A tenth of the set, at a quarter of the pixels: to see it work on people's errors, not to compare numbers.
    "cpu": Runs(
        "cifar10n", "resnet20", epochs=8, noises=("aggre", "worse"), seeds=(0,), fold_seeds=(), snapshots=(4, 6, 8),
        samples=5000, shrink=2, shift=2,
    ),
    "paper": Runs(
        "cifar10n", "resnet20", epochs=30,
        noises=("aggre", "random1", "worse", "symmetric40", "symmetric20", "asymmetric40"), seeds=(0, 1, 2),
        fold_seeds=(0, 1, 2), snapshots=(5, 10, 15, 20, 25, 30), at_once=6, stronger="cnn13",
        stronger_seeds=(0,),
    ),
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# The cells, what matters most first: every noise once, further seeds, the stronger network, the folds.


def cells(preset: str) -> list[Cell]:
    """One cell a noise, seed and kind."""
    of = PRESETS[preset]
    whole = [(one, seed, WHOLE) for seed in of.seeds for one in of.noises]
    stronger = [(one, seed, STRONGER) for seed in of.stronger_seeds for one in of.noises]
    folds = [(one, seed, kind) for seed in of.fold_seeds for one in of.noises for kind in FOLDS]
    return [Cell({"noise": one, "seed": seed, "kind": kind}) for one, seed, kind in (*whole, *stronger, *folds)]


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Train these cells together and write their records."""
    compute_runs(PRESETS[preset], mine, options)


# ---------------------------------------------------------------------------------------------------------------------
# Judging: records to results.


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Every score on every noise: AUROC, average precision, precision at the true count, over the seeds."""
    of = PRESETS[preset]
    pairs = [(one, seed) for one in of.noises for seed in of.seeds]
    with ThreadPoolExecutor() as pool:
        judged = dict(zip(pairs, pool.map(lambda pair: _judge_seed(folder, *pair), pairs), strict=True))
    strong = {pair: _judge_whole(_place(folder, *pair, STRONGER)) for pair in pairs if pair[1] in of.stronger_seeds}
    return {
        "settings": dataclasses.asdict(of),
        "wrong_labels": _shares(folder, of),
        "noises": _over_seeds(judged),
        "stronger": _over_seeds(strong, STRONGER_SHOWN),
    }


def _over_seeds(
    judged: Mapping[tuple[str, int], Mapping[str, Detection]], shown_: Sequence[str] | None = None
) -> dict[str, Any]:
    """By noise and score, each metric over the seeds."""
    by_noise: dict[str, dict[str, list[Detection]]] = {}
    for (noise, _), rows in judged.items():
        for name, detection in rows.items():
            if shown_ is None or name in shown_:
                by_noise.setdefault(noise, {}).setdefault(name, []).append(detection)
    return {
        noise: {
            name: {metric: spread([getattr(row, metric) for row in rows]) for metric in METRICS}
            for name, rows in scores.items()
        }
        for noise, scores in by_noise.items()
    }


def _cells_behind(found: Mapping[str, Any]) -> int:
    """How many cells a noise's entries rest on: those of the whole set, both halves, those of the other network."""
    noises, stronger = (
        {name: len(one["auroc"]["values"]) for name, one in found.get(of, {}).items()} for of in ("noises", "stronger")
    )
    whole = [count for name, count in noises.items() if name not in (OUT_OF_FOLD, CLEANLAB)]
    return max(whole, default=0) + len(FOLDS) * noises.get(OUT_OF_FOLD, 0) + max(stronger.values(), default=0)


def _judge_whole(place: Path) -> dict[str, Detection]:
    """Every score of a run of the whole set; nothing where it is not finished."""
    if status_of(place) != FINISHED:
        return {}
    if (place / "samples.parquet").is_file():
        samples = pq.read_table(place / "samples.parquet")
        return detect_all(samples) | _judge_later(place, samples) | {TAUGHT: taught(samples)}
    if (place / "judged.json").is_file():
        # Brought from another machine without its samples.
        rows = json.loads((place / "judged.json").read_text(encoding="utf-8"))
        return {name: Detection(*row) for name, row in rows.items()}
    return {}


def _judge_seed(folder: Path, kind: str, seed: int) -> dict[str, Detection]:
    found = _judge_whole(_place(folder, kind, seed, WHOLE))
    folds = out_of_fold(folder, kind, seed)
    if folds is not None:
        probabilities, samples = folds
        labels = samples["label"].to_numpy()
        found[OUT_OF_FOLD] = detect(wrong_labels(samples), 1 - probabilities[np.arange(len(labels)), labels])
        if importlib.util.find_spec("cleanlab") is not None:
            found[CLEANLAB] = by_cleanlab(probabilities, samples)
    return found


def _judge_later(whole: Path, samples: pa.Table) -> dict[str, Detection]:
    """Combinations that were thought of after the run, from its samples and from the outputs where it left them."""
    if set(RANK_COMBINATIONS) <= set(samples.column_names):
        return {}
    known = suspicions(samples)
    if (whole / "outputs.safetensors").is_file():
        outputs = safetensors.torch.load((whole / "outputs.safetensors").read_bytes())
        labels = torch.from_numpy(samples["label"].to_numpy().copy())
        scores = combined_scores(known, outputs["features"].float(), outputs["logits"].float(), labels)
    else:
        scores = rank_combinations(known)
    wrong = wrong_labels(samples)
    return {name: detect(wrong, values) for name, values in scores.items() if name not in samples.column_names}


def _place(folder: Path, kind: str, seed: int, part: str) -> Path:
    return folder / Cell({"noise": kind, "seed": seed, "kind": part}).name


def out_of_fold(folder: Path, kind: str, seed: int) -> tuple[np.ndarray, pa.Table] | None:
    """Probabilities [N, C] of networks that did not train on the sample, and its rows; None where a half is missing."""
    places = [_place(folder, kind, seed, fold) for fold in FOLDS]
    if not all(status_of(place) == FINISHED and (place / "samples.parquet").is_file() for place in places):
        return None
    table = pa.concat_tables([pq.read_table(place / "samples.parquet") for place in places]).sort_by("id")
    column = table["probabilities"].combine_chunks()
    return column.flatten().to_numpy().astype(np.float64).reshape(len(table), -1), table


def by_cleanlab(probabilities: np.ndarray, samples: pa.Table) -> Detection:
    """Out-of-fold probabilities ranked by cleanlab itself, by its label quality as it comes."""
    from cleanlab.rank import get_label_quality_scores

    # Halves of precision do not sum to one exactly, which it asks for.
    quality = get_label_quality_scores(samples["label"].to_numpy(), probabilities / probabilities.sum(1, keepdims=True))
    return detect(wrong_labels(samples), -quality)


def _shares(folder: Path, of: Runs) -> dict[str, float]:
    """Share of wrong labels by noise, of the first seed that is there."""
    found: dict[str, float] = {}
    for one in of.noises:
        for seed in of.seeds:
            place = _place(folder, one, seed, WHOLE)
            if status_of(place) == FINISHED:
                found.setdefault(one, round(run_details(place)["results"]["wrong_labels"], 4))
    return found


def worth(cell: Cell, file: str) -> int | None:
    """Judgements and curves of every cell, the outputs of one run on each human noise, halves, samples, the rest."""
    first_human = cell.settings["seed"] == 0 and cell.settings["noise"] in HUMAN
    if file in ("judged.json", "epochs.parquet"):
        return 0
    if file == "outputs.safetensors":
        return 1 if first_human else 4
    return 2 if first_human or cell.settings["kind"] in FOLDS else 3


ABOUT = """Which score that one training run gives for free finds wrong labels best? Every score ranks the training
samples from the most to the least suspicious, and the ranking is compared with the labels that are known to be wrong.

**The wrong labels.** There are several kinds of label noise, each a column of the tables:

- `aggre`, `random1`, `worse`: errors that people made when they labelled CIFAR-10 (CIFAR-10N), from few to many.
- `symmetric20`, `symmetric40`: each label is replaced by another class, drawn at random, with probability 20 or 40 %.
- `asymmetric40`: labels of five of the ten classes are replaced by one similar class (a truck becomes an automobile),
  with probability 40 %, so that a fifth of all labels is wrong.

**How it was made.** A ResNet-20 is trained on the noisy labels for 30 epochs (SGD with learning rate 0.1, momentum 0.9
and weight decay 5e-4, a cosine schedule, batches of 128, random crops and flips). Its scores are those of the [list of
scores](../scores.md) and those below. No score uses a clean label. Where runs of a stronger network exist, they are
shown apart: they ask how much of the rest is due to the network.

- `training_and_margin`: the mean of two ranks, by EL2N (the distance between the predicted probabilities and the label)
  averaged over training, and by the angular margin of the trained network (how much nearer, by angle, the features are
  to their label than to any other class). It is the default of `find_label_issues`.
- `training_and_neighbours`: the mean of the ranks by EL2N averaged over training and by `smoothed_last_posterior`.
  `training_margin_and_neighbours`: by all three.
- `ranks_...`: other means of ranks, fixed before any of them was judged.
- `snapshot_...`: averages over looks at the training set, without augmentation, at six epochs.
- `smoothed_...`: predictions averaged over the 100 nearest samples by the angle of their features.
- `..._posterior`: predictions weighted by how often classes are mistaken for each other (estimated by the confident
  joint).
- `prototype_angle`: the angle to the mean features of the label's class.
- Two pairs rank alike and share their numbers: `epistemic` is the square of `variability`, the variance and the
  standard deviation of one probability; `loss` is minus the logarithm of `confidence`.

Two references need more than one run or more than the noisy labels:

- `out_of_fold_doubt`: one minus the *self-confidence*, the probability of the label by a network that did not train on
  the sample. Two runs, each on one half, give it; this costs one run more. `cleanlab_label_quality` is cleanlab's
  ranking, by its default, of the same probabilities.
- `taught_half_the_truth`: not a score, but an upper reference. Boosted trees are told which labels of one half are
  wrong, learn from all scores of the run, and are used on the other half. They say how much the scores know together.

**How the combinations were chosen.** `training_and_neighbours` came from a greedy search on `random1`, seed 0, with
the other human columns of that seed in view: its numbers on seed 0 flatter it, and only further seeds confirm it.
`training_and_margin` and `training_margin_and_neighbours` were chosen on `random1`, seed 0, and on scikit-learn's
digits with asymmetric and symmetric noise (three seeds), with `symmetric40` in view; `aggre` and `worse` were looked
at once, afterwards."""

LABEL_ERRORS = Study(
    id="label-errors",
    title="which score of one training run finds wrong labels",
    about=ABOUT,
    reference="first measurement",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    at_once={name: of.at_once for name, of in PRESETS.items()},
    worth=worth,
    entries=Entries(("wrong_labels", "noises", "stronger"), lambda cell: cell.settings["noise"], _cells_behind),
)
