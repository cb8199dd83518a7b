"""What is read from a record: the class known least, the probabilities of labels, what `auto` chose."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hardsight_studies.engine.trainings import Training
from hardsight_studies.gr import learned
from hardsight_studies.gr.learned import choice
from torch import nn

SAMPLES = {
    "label": [0, 0, 1, 1], "clean_label": [0, 1, 1, 1], "predicted": [0, 0, 0, 1], "confidence": [0.9, 0.5, 0.1, 0.3],
}  # fmt: skip


def test_the_class_known_least_is_judged_by_true_labels(tmp_path: Path) -> None:
    pq.write_table(pa.table(SAMPLES), tmp_path / "samples.parquet")
    assert learned.weakest_class(tmp_path) == {"weakest_class": 1, "weakest_recall": pytest.approx(1 / 3)}


def test_recalls_count_classes_of_which_more_than_half_is_recognised(tmp_path: Path) -> None:
    pq.write_table(pa.table(SAMPLES), tmp_path / "samples.parquet")

    class Test:
        labels = torch.tensor([0, 0, 1, 1, 2])

        def __iter__(self) -> Any:
            yield torch.eye(3)[[0, 0, 1, 0, 0]], self.labels, torch.arange(5)

    training: Any = Training.__new__(Training)
    training.test, training.folder = Test(), tmp_path
    found = learned.recalls_and_probabilities(training, nn.Identity())
    assert found["recalls"] == [1.0, 0.5, 0.0]
    assert (found["classes_learned"], found["classes"]) == (1, 3)
    assert found["label_probabilities"] == pytest.approx([0.7, 0.2])


def epochs(folder: Path, **columns: list[Any]) -> Path:
    pq.write_table(pa.table({"epoch": list(range(len(next(iter(columns.values())))))} | columns),
                   folder / "epochs.parquet")  # fmt: skip
    return folder


def test_what_auto_chose_is_the_last_before_it_fell_back(tmp_path: Path) -> None:
    rates = {"estimated_noise_rate": [None, 0.4, None, None]}
    kept = choice(epochs(tmp_path, **rates, beta=[3.0, 3.0, 4.0, 4.0], lam=[0.5, 0.5, 1.0, 1.0]))
    assert kept == {"estimated_rate": 0.4, "chosen_beta": 4.0, "chosen_lam": 1.0, "fell_back": 0}
    gave_up = choice(epochs(tmp_path, **rates, beta=[3.0, 3.0, 4.0, None], lam=[0.5, 0.5, 1.0, None]))
    assert gave_up == {"estimated_rate": 0.4, "chosen_beta": 4.0, "chosen_lam": 1.0, "fell_back": 1}
    never = choice(epochs(tmp_path, **rates, beta=[3.0, None, None, None], lam=[0.5, None, None, None]))
    assert never == {"estimated_rate": 0.4, "chosen_beta": None, "chosen_lam": None, "fell_back": 0}
    assert choice(epochs(tmp_path, test_accuracy=[0.5])) == {}
