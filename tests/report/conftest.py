"""Real records for the report: scikit-learn's digits, a fifth of the labels flipped, a softmax regression on them."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn.datasets import load_digits

NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FIELDS = {
    "avh": ("Angular visual hardness", "larger is harder", "[0, 1]"),
    "confidence": ("Model confidence", "larger is easier", "[0, 1]"),
    "margin": ("Logit margin", "larger is easier", "any"),
    "entropy": ("Entropy", "larger is harder", "[0, log C]"),
    "loss": ("Cross-entropy loss", "larger is harder", "[0, inf)"),
    "norm": ("Feature norm", "larger is easier", "[0, inf)"),
}


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def _train(features: np.ndarray, labels: np.ndarray, epochs: int) -> tuple[np.ndarray, list[dict[str, float]]]:
    weight, one_hot, curve = np.zeros((10, features.shape[1])), np.eye(10)[labels], []
    for epoch in range(1, epochs + 1):
        probabilities = _softmax(features @ weight.T)
        weight -= 1.5 * ((probabilities - one_hot).T @ features) / len(features)
        picked = probabilities[np.arange(len(labels)), labels]
        curve.append(
            {
                "epoch": epoch,
                "train_loss": float(-np.log(picked).mean()),
                "train_accuracy": float((probabilities.argmax(1) == labels).mean()),
            }
        )
    return weight, curve


def _scores(features: np.ndarray, weight: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    logits, rows = features @ weight.T, np.arange(len(labels))
    cosines = logits / np.linalg.norm(features, axis=1, keepdims=True) / np.linalg.norm(weight, axis=1)
    angles, probabilities = np.arccos(np.clip(cosines, -1, 1)), _softmax(logits)
    others = np.where(np.eye(10, dtype=bool)[labels], -np.inf, logits).max(1)
    return {
        "avh": angles[rows, labels] / angles.sum(1),
        "confidence": probabilities[rows, labels],
        "margin": logits[rows, labels] - others,
        "entropy": -(probabilities * np.log(probabilities + 1e-12)).sum(1),
        "loss": -np.log(probabilities[rows, labels] + 1e-12),
        "norm": np.linalg.norm(features, axis=1),
    }


def _png(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray((image * 255 / 16).astype(np.uint8)).save(buffer, "png")
    return buffer.getvalue()


def score_table(columns: dict[str, Any]) -> pa.Table:
    """A table whose score columns describe themselves."""
    fields = []
    for name, values in columns.items():
        described = None
        if name in FIELDS:
            title, direction, span = FIELDS[name]
            described = {"kind": "score", "title": title, "direction": direction, "range": span}
        fields.append(pa.field(name, pa.array(values).type, metadata=described))
    return pa.table([pa.array(values) for values in columns.values()], schema=pa.schema(fields))


def write_digits_record(folder: Path) -> Path:
    """The record of a run on the digits, as a demo leaves it."""
    digits = load_digits()
    generator = np.random.default_rng(0)
    features = digits.data / 16 - (digits.data / 16).mean()
    true = digits.target.astype(np.int64)
    given = true.copy()
    flipped = generator.permutation(len(true))[: len(true) // 5]
    given[flipped] = (true[flipped] + generator.integers(1, 10, len(flipped))) % 10
    weight, curve = _train(features, given, 60)
    ids = np.arange(len(true))
    scores = _scores(features, weight, given)
    predicted = (features @ weight.T).argmax(1)
    facts = {"id": ids, "label": given, "predicted": predicted, "clean_label": true}
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(score_table({**facts, **scores}), folder / "samples.parquet")
    pq.write_table(pa.Table.from_pylist(curve), folder / "epochs.parquet")
    pq.write_table(
        pa.table({"id": ids, "png": [_png(image) for image in digits.images]}), folder / "thumbnails.parquet"
    )
    details = {
        "kind": "demo",
        "name": "digits with flipped labels",
        "created": "2024-05-01T12:30:00+00:00",
        "status": "finished",
        "seed": 0,
        "device": "cpu",
        "class_names": NAMES,
        "config": {"noise": {"kind": "symmetric", "rate": 0.2}, "epochs": 60},
        "versions": {"numpy": np.__version__},
        "results": {"test_accuracy": float((predicted == true).mean())},
    }
    (folder / "run.json").write_text(json.dumps(details), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def digits_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared by all tests: write beside it, never into it."""
    return write_digits_record(tmp_path_factory.mktemp("records") / "digits")


@pytest.fixture
def make_record(tmp_path: Path) -> Callable[..., Path]:
    """Write a record from columns and changes to run.json."""

    def make(columns: dict[str, Any] | None = None, **details: Any) -> Path:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text(json.dumps({"kind": "score", "status": "finished", **details}))
        if columns is not None:
            pq.write_table(score_table(columns), folder / "samples.parquet")
        return folder

    return make
