"""The files of a self-training beside those of every training.

run.json, epochs.parquet      as of every training; an epoch also says its round, 0 for the source
rounds.parquet                one row a look at the target: accuracies, and the numbers of what was selected
selected.parquet              every selected sample of every round, and whether CBST selects it as well
samples.parquet               the target at the end; its scores are against the predictions, not against a label
thumbnails.parquet            samples that this selector selects, rightly, and CBST does not
source/                       the record of the source training
checkpoint/                   after the last epoch, as of every training, and what was selected then
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from hardsight import records
from hardsight.datasets.interface import ArrayDataset
from hardsight.domains.looking import Look
from hardsight.domains.selection import Selection, of_labels

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
        "id": ids[rows.cpu()],
        "pseudo_label": labels,
        "label": truth[rows],
        "confidence": of_labels(seen.evidence.softmax[rows], labels),
        "visual_confidence": of_labels(seen.evidence.visual[rows], labels),
        "avh": of_labels(seen.hardness[rows], labels),
        "norm": seen.norms[rows],
        "by_cbst": by_cbst.selected[rows],
    }
    return pa.table({"round": pa.array([number] * len(rows), pa.int64()), **_arrays(columns)})


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
    arrays = _arrays(columns)
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


def _arrays(columns: Mapping[str, Tensor]) -> dict[str, pa.Array]:
    return {name: pa.array(values.cpu().numpy()) for name, values in columns.items()}
