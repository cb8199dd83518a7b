"""Planted noise is called what it is, a run that memorised is told from one that did not, losses go by the rows."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import hardsight as hs
from hardsight.cleaning import advise
from hardsight.cleaning.advice import measured, nearest_losses, posterior

SAMPLES, CLASSES = 1200, 6


def planted(kind: str, rate: float = 0.2) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Labels, features around a mean for each class, and where labels are wrong."""
    generator = np.random.default_rng(3)
    true = np.arange(SAMPLES) % CLASSES
    wrong = generator.random(SAMPLES) < (0 if kind == "none" else rate)
    by = generator.integers(1, CLASSES, SAMPLES) if kind in ("uniform", "outside") else np.ones(SAMPLES, np.int64)
    means = np.eye(CLASSES + 4, 16)
    place = np.where(wrong, CLASSES + generator.integers(0, 4, SAMPLES), true) if kind == "outside" else true
    features = means[place] + 0.2 * generator.normal(size=(SAMPLES, 16))
    labels = np.where(wrong, (true + by) % CLASSES, true)
    return torch.from_numpy(labels), torch.from_numpy(features).float(), wrong


@pytest.mark.parametrize("kind", ["none", "uniform", "pairs", "outside"])
def test_planted_noise_is_called_what_it_is(kind: str) -> None:
    labels, features, wrong = planted(kind)
    audit = hs.audit(labels=labels, features=features)
    advice = advise(audit)
    assert advice.kind == kind
    if kind in ("uniform", "pairs"):
        assert advice.low - 30 <= wrong.sum() <= advice.high + 30
        found = np.cumsum(wrong[audit.table["id"].to_numpy()]) / wrong.sum()
        assert [count for _, count in advice.review] == sorted({count for _, count in advice.review})
        for expected, count in advice.review:
            assert expected - 0.1 <= found[count - 1] <= expected + 0.3
    if kind == "none":
        assert advice.loss == {"name": "cross_entropy"}


def test_the_folder_of_an_audit_gives_the_advice_of_the_audit(tmp_path: Path) -> None:
    labels, features, _ = planted("pairs")
    audit = hs.audit(labels=labels, features=features)
    assert advise(audit.save(tmp_path / "audit")).facts() == advise(audit).facts()
    assert "between pairs of classes" in (tmp_path / "audit" / "report.html").read_text()


def test_few_suspects_do_not_say_what_kind(make_table: Callable[..., pa.Table]) -> None:
    labels = np.arange(60) % 3
    predicted = np.where(np.arange(60) < 5, (labels + 1) % 3, labels)
    table = make_table({"id": range(60), "label": labels, "predicted": predicted, "confidence": predicted == labels})
    table = table.set_column(3, "confidence", table["confidence"].cast(pa.float64()))
    advice = advise(hs.audit(table))
    assert (advice.kind, advice.concentration is None or advice.suspects == 5) == ("unknown", True)


@pytest.mark.parametrize("fitted", [0.0, 0.9])
def test_a_run_memorised_where_its_model_fits_the_suspects(tmp_path: Path, fitted: float) -> None:
    labels, _, wrong = planted("uniform")
    generator = np.random.default_rng(0)
    memorised = wrong & (generator.random(SAMPLES) < fitted)
    true = np.arange(SAMPLES) % CLASSES
    hardness = generator.random(SAMPLES) * 0.1 + wrong
    table = pa.table({"id": np.arange(SAMPLES), "label": labels.numpy(), "expected": true,
                      "predicted": np.where(memorised, labels.numpy(), true), "el2n_mean": hardness,
                      "aum": 0.5 - hardness, "angular_margin": 0.5 - hardness})  # fmt: skip
    pq.write_table(table, tmp_path / "samples.parquet")
    pq.write_table(
        pa.table({"epoch": [1], "train_accuracy": [0.9], "test_accuracy": [0.7]}), tmp_path / "epochs.parquet"
    )
    (tmp_path / "run.json").write_text(json.dumps({"kind": "training", "name": "run"}))
    advice = advise(tmp_path)
    assert advice.memorised is (fitted > 0)
    assert advice.fitted == pytest.approx(memorised.sum() / wrong.sum())
    assert (advice.train_accuracy, advice.test_accuracy) == (0.9, 0.7)
    assert all(row["memorised"] == advice.memorised for row in advice.losses)
    # All labels are fitted, so that nothing is suspected: that is no sign of clean labels.
    blind = table.set_column(5, "aum", pa.array(np.full(SAMPLES, -0.5))).set_column(3, "predicted", table["label"])
    pq.write_table(blind.set_column(2, "expected", table["label"]), tmp_path / "samples.parquet")
    assert (advise(tmp_path).kind, advise(tmp_path).memorised) == ("unknown", True)
    (tmp_path / "epochs.parquet").unlink()
    assert advise(tmp_path).memorised is None


def test_the_loss_is_the_row_with_the_surest_gain() -> None:
    rows = nearest_losses("uniform", 0.38, True)
    wanted = [
        row for row in measured()["losses"] if (row["kind"], row["rate"], row["memorised"]) == ("uniform", 0.4, True)
    ]
    assert len(rows) == len(wanted)
    assert rows[0]["low"] == max(row["low"] for row in wanted)
    assert {row["rate"] for row in nearest_losses("none", 0.0, None)} == {0.0}


def test_the_posterior_inverts_the_noise() -> None:
    # Two classes that a sample may be of, p of its label's; a tenth of the labels flipped to one of five others.
    p, rate, alike = np.array([0.02, 0.5, 0.99]), 0.1, 1 / 5
    confidence = p * (1 - rate) + (1 - p) * rate * alike
    np.testing.assert_allclose(posterior(confidence, rate, alike), 1 - p * (1 - rate) / confidence, atol=1e-12)


def test_what_gives_no_advice_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        advise(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="samples"):
        advise(tmp_path)
    pq.write_table(pa.table({"id": [1, 2], "loss": [0.1, 2.0]}), tmp_path / "scores.parquet")
    with pytest.raises(ValueError, match="label"):
        advise(tmp_path / "scores.parquet")
    (tmp_path / "audit.json").write_text('{"results": {}}')
    with pytest.raises(ValueError, match=r"audit\.json"):
        advise(tmp_path)
