"""What a model says of a target without labels: a look at all samples, signs that it gets worse, what is kept of it.

The signs were chosen on pairs of digit sets: where accuracy rose, predictions of one round and the next agreed in nine
tenths or more from the third round on, and in two thirds or more with those before the first round; where it fell,
they did not. The files of a self-training beside those of every training:

run.json, epochs.parquet      as of every training; an epoch also says its round, 0 for the source
rounds.parquet                one row a look at the target: accuracies, and the numbers of what was selected
selected.parquet              every selected sample of every round, and whether CBST selects it as well
samples.parquet               the target at the end; its scores are against the predictions, not against a label
thumbnails.parquet            samples that this selector selects, rightly, and CBST does not
source/                       the record of the source training
checkpoint/                   after the last epoch, as of every training, and what was selected then
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from hardsight import records
from hardsight.datasets.epochs import EpochLoader
from hardsight.datasets.interface import ArrayDataset
from hardsight.distributed import count_samples, gather_samples
from hardsight.domains.selection import Evidence, Selection, certainty_of, of_labels
from hardsight.geometry import angles_to_classes, norms
from hardsight.hardness.definitions import share_of_sum
from hardsight.heads import evaluating, observe
from hardsight.training.evaluation import share

# Fewer predictions than this in common with the model that the rounds began with are a sign.
_LEAST_COMMON = 0.5
# A fall by this much below the highest is one, of agreement between rounds and of mean confidence.
_AGREEMENT_FALL, _CONFIDENCE_FALL = 0.05, 0.2
# A class is disappearing once so small a part of its predictions is left; of so small a class nothing is said.
_LEFT, _LEAST_SHARE = 0.25, 0.01
# The first looks differ because much is learned.
_SETTLED = 3
ADVICE = "try a lower learning rate, smaller portions or fewer rounds"


class Look(NamedTuple):
    """What a model says of every target sample, in order, in main memory; `hardness` is the AVH under each class."""

    evidence: Evidence
    hardness: Float[Tensor, "samples classes"]
    norms: Float[Tensor, "samples"]


def head_of(model: nn.Module, batches: EpochLoader, device: torch.device, head: str | None, num_classes: int) -> str:
    """The head's name, from one forward pass; rejects a model that does not fit the samples or their classes.

    Angles need it, and a step that knows it is captured as it is.
    """
    images, _, _ = next(iter(batches))
    with evaluating(model.to(device)), observe(model, head) as seen:
        try:
            model(images[:2])
        except RuntimeError as reason:
            shape = list(images.shape[1:])
            raise ValueError(f"model must take samples of shape {shape}; it says: {reason}") from reason
    if seen.logits.shape[1] != num_classes:
        raise ValueError(
            f"model must give one logit for each of the source's {num_classes} classes; it gives {seen.logits.shape[1]}"
        )
    return seen.name


def look(model: nn.Module, batches: EpochLoader, device: torch.device, head: str | None = None) -> Look:
    """One forward of every sample without augmentation; several processes share the batches and put them together."""
    parts: list[tuple[Tensor, ...]] = []
    with evaluating(model), observe(model, head) as seen:
        for images, _, ids in share(batches, device):
            model(images)
            angles = angles_to_classes(seen.features.float(), seen.weight.float())
            near, classes = torch.pi - angles, angles.shape[1]
            visual, hard = (share_of_sum(one, one.sum(1, keepdim=True), classes) for one in (near, angles))
            assert ids is not None
            sure = seen.logits.float().softmax(1), certainty_of(seen.logits)
            parts.append((ids, *sure, visual, hard, norms(seen.features.float())))
    own = [torch.cat(column) for column in zip(*parts, strict=True)]
    counts = count_samples(own[0])
    ids, *columns = (gather_samples(column, counts=counts).cpu() for column in own)
    order = ids.argsort()
    softmax, certainty, visual, hard, lengths = (column[order] for column in columns)
    return Look(Evidence(softmax, visual, certainty), hard, lengths)


def statistics(seen: Look, selection: Selection, truth: Int64[Tensor, "samples"]) -> dict[str, Any]:
    """Table 4 of AVH: how many are selected, how many of them rightly, their mean AVH, confidence and norm."""
    rows = selection.selected.nonzero().squeeze(1)
    found: dict[str, Any] = {"selected": len(rows), "selected_share": len(rows) / len(selection.labels)}
    if not len(rows):
        return found
    labels, true = selection.labels[rows], truth[rows]
    right = (labels == true)[true >= 0]
    return found | {
        "true_positive_rate": mean(right) if len(right) else None,
        "avh": mean(of_labels(seen.hardness[rows], labels)),
        "confidence": mean(of_labels(seen.evidence.softmax[rows], labels)),
        "norm": mean(seen.norms[rows]),
    }


def class_accuracy(seen: Look, truth: Int64[Tensor, "samples"]) -> dict[str, Any]:
    """Accuracy over the labelled samples, its mean over their classes, and by class (None without samples)."""
    known = truth >= 0
    if not bool(known.any()):
        return {}
    classes = seen.evidence.softmax.shape[1]
    right = (seen.evidence.softmax.argmax(1) == truth)[known]
    count = torch.bincount(truth[known], minlength=classes).double()
    hits = torch.bincount(truth[known], weights=right.double(), minlength=classes)
    shares = [hit / total if total else None for hit, total in zip(hits.tolist(), count.tolist(), strict=True)]
    present = [one for one in shares if one is not None]
    return {"accuracy": mean(right), "class_mean_accuracy": sum(present) / len(present), "class_accuracy": shares}


@dataclass
class Signs:
    """What was seen so far: predictions before the rounds and at the last look, and the largest of each number."""

    looks: int = 0
    first: Tensor | None = None
    last: Tensor | None = None
    counts: Tensor | None = None
    agreement: float = 0.0
    confidence: float = 0.0
    told: list[str] = field(default_factory=list)

    def look(
        self, softmax: Float[Tensor, "samples classes"], class_names: Sequence[str]
    ) -> tuple[dict[str, Any], list[str]]:
        """The numbers of a look at the target, for its row, and those signs that were not told before."""
        confidence, predicted = softmax.max(1)
        counts = torch.bincount(predicted, minlength=softmax.shape[1])
        row: dict[str, Any] = {
            "agreement": None if self.last is None else mean(predicted == self.last),
            "agreement_with_first": None if self.first is None else mean(predicted == self.first),
            "target_confidence": mean(confidence),
            "classes_predicted": int((counts > 0).sum()),
        }
        found = {}
        if self.looks >= _SETTLED:
            same, common = row["agreement"], row["agreement_with_first"]
            if common < _LEAST_COMMON:
                found["first"] = f"{100 * common:.0f} % of the predictions are those of the first model"
            if same < self.agreement - _AGREEMENT_FALL:
                before = f"after {100 * self.agreement:.0f} %"
                found["agreement"] = f"{100 * same:.0f} % of the predictions are those of the round before, {before}"
        if row["target_confidence"] < (1 - _CONFIDENCE_FALL) * self.confidence:
            found["confidence"] = f"mean confidence fell from {self.confidence:.2f} to {row['target_confidence']:.2f}"
        if self.counts is not None:
            large = self.counts >= _LEAST_SHARE * int(counts.sum())
            # A class that once had most samples may well come down to an even share.
            held = self.counts.clamp(max=int(counts.sum()) // len(counts))
            lost = (large & (counts <= _LEFT * held)).nonzero().squeeze(1).tolist()
            if lost:
                found["classes"] = f"few samples are still predicted as {', '.join(class_names[one] for one in lost)}"
        self.first = predicted if self.first is None else self.first
        self.looks, self.last = self.looks + 1, predicted
        self.counts = counts if self.counts is None else torch.maximum(self.counts, counts)
        self.agreement = max(self.agreement, row["agreement"] or 0.0)
        self.confidence = max(self.confidence, row["target_confidence"])
        new = [sentence for kind, sentence in found.items() if kind not in self.told]
        self.told += [kind for kind in found if kind not in self.told]
        return row, new


def mean(values: Tensor) -> float:
    """The mean, of truths their share, in double precision."""
    return float(values.double().mean())


# What a column of `rounds.parquet` means. Rates are shares in [0, 1]; null where the truth is not known.
ROUND_COLUMNS = {
    "round": "rounds that were complete before this look",
    "portion": "share of each predicted class that was asked for; null after the last round",
    "accuracy": "of the model as it was, on the target",
    "class_mean_accuracy": "mean of the accuracies of the classes (the Mean of AVH's Table 3)",
    "class_accuracy": "accuracy of each class, in the order of class_names",
    "test_accuracy": "on samples of the target domain that are not trained on",
    "agreement": "share of the target predicted as at the look before; null at the first",
    "agreement_with_first": "share of the target predicted as at the first look, before the rounds",
    "target_confidence": "mean softmax probability of the predictions, over the whole target",
    "classes_predicted": "how many classes the target is predicted as",
    "changed_labels": "of the samples selected at the look before, the share that now has another pseudo-label or none",
    "selected": "how many target samples got a pseudo-label",
    "selected_share": "the same as a share of the target",
    "true_positive_rate": "share of the selected whose pseudo-label is right (AVH, Table 4)",
    "avh": "mean AVH of the selected, against their pseudo-labels",
    "confidence": "mean softmax probability of the pseudo-label",
    "norm": "mean length of the features of the selected",
    "beyond_cbst": "how many are selected that CBST would not select from the same outputs (AVH, Fig. 21)",
    "beyond_cbst_right": "how many of those are labelled rightly",
}
# The tables beside those of every training: what a new run removes.
TABLES = ("rounds.parquet", "selected.parquet", "thumbnails.parquet")
_WHOLE = ("round", "classes_predicted", "selected", "beyond_cbst", "beyond_cbst_right")
_THUMBNAILS = 24


def write_rounds(folder: Path, rows: Sequence[Mapping[str, Any]], selected: Sequence[pa.Table]) -> None:
    """`rounds.parquet` and `selected.parquet`."""
    types = dict.fromkeys(ROUND_COLUMNS, pa.float64()) | dict.fromkeys(_WHOLE, pa.int64())
    types["class_accuracy"] = pa.list_(pa.float64())
    fields = [pa.field(name, types[name], metadata={"meaning": text}) for name, text in ROUND_COLUMNS.items()]
    records.write_table(folder / "rounds.parquet", pa.Table.from_pylist(list(rows), pa.schema(fields)))
    if selected:
        records.write_table(folder / "selected.parquet", pa.concat_tables(selected))


def read_selected(folder: Path, rows: int) -> list[pa.Table]:
    """The first so many rows of `selected.parquet`, which may hold the look of an epoch that was not completed."""
    path = folder / "selected.parquet"
    if not path.is_file():
        return []
    try:
        return [records.read_table(path).slice(0, rows)]
    except ValueError as damage:
        raise ValueError(f"{path} is damaged and cannot be continued: {damage}; start over") from None


def selected_table(
    number: int, seen: Look, chosen: Selection, by_cbst: Selection, ids: Tensor, truth: Tensor
) -> pa.Table:
    """One row a selected sample: pseudo-label, true label (-1: unknown), what the model said, and what CBST does."""
    rows = chosen.selected.nonzero().squeeze(1)
    labels = chosen.labels[rows]
    assert seen.evidence.visual is not None
    columns: dict[str, Tensor] = {
        "round": torch.full_like(labels, number),
        "id": ids[rows.cpu()],
        "pseudo_label": labels,
        "label": truth[rows],
        "confidence": of_labels(seen.evidence.softmax[rows], labels),
        "visual_confidence": of_labels(seen.evidence.visual[rows], labels),
        "avh": of_labels(seen.hardness[rows], labels),
        "norm": seen.norms[rows],
        "by_cbst": by_cbst.selected[rows],
    }
    return pa.table({name: values.cpu().numpy() for name, values in columns.items()})


def samples_table(seen: Look, ids: Tensor, truth: Tensor) -> pa.Table:
    """One row a target sample: its prediction, and AVH, confidence and norm against it; `label` is null if unknown."""
    predicted = seen.evidence.softmax.argmax(1)
    columns = {
        "id": ids,
        "label": truth,
        "predicted": predicted,
        "avh": of_labels(seen.hardness, predicted),
        "confidence": of_labels(seen.evidence.softmax, predicted),
        "norm": seen.norms,
    }
    arrays = {name: pa.array(values.cpu().numpy()) for name, values in columns.items()}
    arrays["label"] = pc.if_else(pc.less(arrays["label"], 0), None, arrays["label"])
    return pa.table(arrays).replace_schema_metadata({"hardness against": "predicted class"})


def worth_showing(selected: pa.Table, most: int = _THUMBNAILS) -> list[int]:
    """Ids of what only this selector selects in the first round, least confident first (AVH, Fig. 21).

    Each class comes before any class comes again. Of samples whose label is known, those that are labelled rightly.
    """
    first = selected.filter((pc.field("round") == 0) & ~pc.field("by_cbst"))
    beyond = [row for row in first.to_pylist() if row["label"] in (-1, row["pseudo_label"])]
    by_class: dict[int, dict[int, float]] = {}
    for row in sorted(beyond, key=lambda row: row["confidence"]):
        # Where labels are made every epoch, a sample may be selected several times in a round.
        by_class.setdefault(row["pseudo_label"], {}).setdefault(row["id"], row["confidence"])
    turns = [(turn, sure, one) for of in by_class.values() for turn, (one, sure) in enumerate(of.items())]
    return list(dict.fromkeys(one for _, _, one in sorted(turns)))[:most]


def write_thumbnails(folder: Path, ids: Sequence[int], target: ArrayDataset) -> None:
    """Pictures of these samples of the target. Only grey and colour images can be shown."""
    if target.images.ndim != 4 or target.images.shape[1] not in (1, 3):
        return
    place = {one: at for at, one in enumerate(target.ids.tolist())}
    wanted = [one for one in ids if one in place]
    pictures = [target.images[place[one]].permute(1, 2, 0).squeeze(2).numpy() for one in wanted]
    if wanted:
        records.write_thumbnails(folder / "thumbnails.parquet", wanted, pictures)


def sentence_of(row: Mapping[str, Any]) -> str:
    """A row of `rounds` for a person."""
    accuracy = "" if row["accuracy"] is None else f", accuracy {100 * row['accuracy']:.2f} %"
    if row["test_accuracy"] is not None:
        accuracy += f", test accuracy {100 * row['test_accuracy']:.2f} %"
    same = "" if row["agreement"] is None else f", {100 * row['agreement']:.0f} % predicted as before"
    if row["selected"] is None:
        return f"after round {row['round']}{accuracy}{same}"
    rate = row["true_positive_rate"]
    right = "" if rate is None else f", {100 * rate:.2f} % of them rightly"
    samples = "1 sample" if row["selected"] == 1 else f"{row['selected']} samples"
    return f"after round {row['round']}{accuracy}{same}: {samples} selected{right}"
