"""`hs.audit`: labelled data in, suspects out; whatever speaks Arrow; and one sentence for what cannot be audited."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import hardsight as hs
from hardsight.cleaning import neighbours
from hardsight.cleaning.applying import apply_to
from hardsight.cleaning.auditing import Audit
from hardsight.cleaning.neighbours import nearest_in_angle
from hardsight.cleaning.reading import read_samples

NAMES = np.array(["ant", "bee", "cat"])


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of three clusters [240, 6], labels of which 12 are wrong, and the places of these."""
    generator = np.random.default_rng(3)
    truth = generator.integers(0, 3, 240)
    features = np.eye(3, 6)[truth] + 0.15 * generator.normal(size=(240, 6))
    wrong = generator.permutation(240)[:12]
    labels = truth.copy()
    labels[wrong] = (labels[wrong] + 1) % 3
    return features.astype(np.float32), labels, np.sort(wrong)


class Stream:
    """A table that is known by its Arrow stream alone, as those of other libraries are."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested: object = None) -> object:
        return self.table.__arrow_c_stream__(requested)


def found(audit: Audit, count: int = 12) -> list[int]:
    return sorted(audit.table.column("id").slice(0, count).to_pylist())


def lists(matrix: np.ndarray) -> pa.Array:
    return pa.array(list(matrix))


def beliefs(features: np.ndarray) -> np.ndarray:
    raised = np.exp(6 * features[:, :3])
    return raised / raised.sum(1, keepdims=True)


def test_planted_errors_are_found_from_features(data: tuple) -> None:
    features, labels, wrong = data
    audit = hs.audit(labels=torch.from_numpy(labels), features=torch.from_numpy(features))
    assert found(audit) == wrong.tolist()
    assert audit.issues.scores == ("margin_with_neighbours",)
    assert abs(audit.issues.estimated - 12) <= 3
    first = audit.table.slice(0, 12).to_pylist()
    assert all(row["expected"] == (row["label"] - 1) % 3 for row in first)
    assert audit.table.column_names[:3] == ["id", "label", "expected"]
    assert {"suspicion", "reasons", "angular_margin", "neighbour_disagreement"} <= set(audit.table.column_names)


def test_all_forms_of_the_same_data_agree(data: tuple, tmp_path: Path) -> None:
    features, labels, _ = data
    reference = hs.audit(labels=labels, features=features)
    on_disk = np.memmap(tmp_path / "features", np.float32, "w+", shape=features.shape)
    on_disk[:] = features
    table = pa.table({"label": labels, "features": lists(features)})
    other = pa.table({"what": labels, "embedding": lists(features)})
    for audit in (
        hs.audit(labels=labels.tolist(), features=on_disk),
        hs.audit(table),
        hs.audit(Stream(table)),
        hs.audit(table.to_batches()[0]),
        hs.audit(other, label="what", features="embedding"),
        hs.audit(other, label="what", features=features),
        hs.audit(labels=labels.astype(float), features=features),
    ):
        assert audit.table.column("id").equals(reference.table.column("id"))
        np.testing.assert_array_equal(audit.table.column("suspicion"), reference.table.column("suspicion"))


def test_text_and_odd_numbers_as_labels(data: tuple) -> None:
    features, labels, wrong = data
    numbers = np.array([7, 70, -3])
    plain = hs.audit(labels=labels, features=features)
    for classes in (NAMES, numbers, NAMES.astype(object)):
        audit = hs.audit(labels=classes[labels], features=features)
        assert found(audit) == wrong.tolist()
        expected = audit.table.slice(0, 12).column("expected").to_pylist()
        assert set(expected) <= set(classes.tolist())
        assert audit.table.column("label").to_pylist() == classes[labels][audit.table.column("id").to_numpy()].tolist()
    named = hs.audit(labels=labels, features=features, class_names=["ant", "bee", "cat"])
    assert named.table.column("label_name").to_pylist() == NAMES[plain.table.column("label").to_numpy()].tolist()
    category = pa.array(NAMES[labels]).dictionary_encode()
    assert found(hs.audit(pa.table({"label": category, "features": lists(features)}))) == wrong.tolist()


def test_probabilities_alone_and_beside_features(data: tuple) -> None:
    features, labels, wrong = data
    said = beliefs(features)
    alone = hs.audit(labels=labels, probabilities=said)
    assert found(alone) == wrong.tolist()
    assert alone.issues.scores == ("margin",)
    ids = alone.table.column("id").to_numpy()
    np.testing.assert_allclose(alone.table.column("confidence"), said[ids, labels[ids]], atol=1e-6)
    # In the order of the names, and sorted where none are given.
    assert found(hs.audit(labels=NAMES[labels], probabilities=said)) == wrong.tolist()
    turned = hs.audit(labels=NAMES[labels], probabilities=said[:, ::-1].copy(), class_names=["cat", "bee", "ant"])
    assert found(turned) == wrong.tolist()
    both = hs.audit(pa.table({"label": labels, "probabilities": lists(said), "features": lists(features)}))
    assert "neighbour_disagreement" in both.table.column_names
    assert "angular_margin" not in both.table.column_names
    assert both.issues.scores == ("margin_with_neighbours",)
    assert found(both) == wrong.tolist()


def test_samples_that_cannot_be_judged_are_listed(data: tuple) -> None:
    features, labels, wrong = data
    features[[5, 9]] = np.nan
    features[11, 2] = np.inf
    rows = [None if at == 20 else row.tolist() for at, row in enumerate(features)]
    given = [None if at == 33 else NAMES[label] for at, label in enumerate(labels)]
    names = [f"s{at}" for at in range(240)]
    audit = hs.audit(pa.table({"id": names, "label": given, "features": rows}))
    assert audit.left_out.column("id").to_pylist() == ["s5", "s9", "s11", "s20", "s33"]
    assert audit.left_out.column("reason").to_pylist()[4] == "no label"
    assert audit.table.num_rows == 235
    kept = sorted(set(wrong.tolist()) - {5, 9, 11, 20, 33})
    assert sorted(int(one[1:]) for one in audit.table.slice(0, len(kept)).column("id").to_pylist()) == kept
    assert "5 samples were left out" in repr(audit)


def test_an_audit_is_saved_and_its_list_applied(data: tuple, tmp_path: Path) -> None:
    features, labels, _ = data
    table = pa.table(
        {"label": NAMES[labels], "features": lists(features), "words": [f"=text {at}" for at in range(240)],
         "source": list(range(240)), "path": [f"{at}.jpg" for at in range(240)]}
    )  # fmt: skip
    audit = hs.audit(table, text="words", show=["source"])
    folder = audit.save(tmp_path / "found")
    assert {one.name for one in folder.iterdir()} >= {"table.parquet", "actions.csv", "audit.json", "report.html"}
    samples = pq.read_table(folder / "table.parquet")
    assert samples.column("text").to_pylist() == audit.table.column("text").to_pylist()
    assert samples.column("source").to_pylist() == samples.column("id").to_pylist()
    first = samples.column("id")[0].as_py()
    assert f"=text {first}" in (folder / "report.html").read_text(encoding="utf-8")
    lines = (folder / "actions.csv").read_text().splitlines()
    assert lines[0].split(",")[-2:] == ["text", "source"]
    assert f",'=text {first},{first}" in lines[1]
    (folder / "actions.csv").write_text("\n".join([lines[0], lines[1].replace("keep", "relabel")]) + "\n")
    new, applied = apply_to(read_samples(folder), folder / "actions.csv")
    assert applied.counts == {"keep": 0, "relabel": 1, "drop": 0}
    changed = new.filter(pa.array([row["label"] != row["new_label"] for row in new.to_pylist()])).to_pylist()
    assert [row["id"] for row in changed] == [first]
    assert changed[0]["new_label"] == audit.table.column("expected")[0].as_py()
    assert json.loads((folder / "audit.json").read_text())["results"]["label_issues"]["estimated"] > 0


def test_it_prints_counts_and_the_ten_most_suspicious(data: tuple) -> None:
    features, labels, _ = data
    audit = hs.audit(labels=NAMES[labels], features=features)
    lines = repr(audit).splitlines()
    assert "240 samples" in lines[0]
    assert str(audit.issues.estimated) in lines[0]
    shown = [line.split()[0] for line in lines if line.startswith("  ")]
    assert shown == [str(one) for one in audit.table.column("id").slice(0, 10).to_pylist()]
    text = pa.table({"label": labels, "features": lists(features), "text": ["\x1b[2J"] * 240})
    assert "\x1b" not in repr(hs.audit(text, text="text"))


def test_a_table_of_scores_and_a_run(tmp_path: Path) -> None:
    scores = pa.table({"id": [4, 5, 6], "label": [0, 1, None], "predicted": [0, 0, 1], "avh": [0.1, 0.9, 0.2]})
    audit = hs.audit(scores)
    assert audit.issues.scores == ("avh",)
    assert audit.table.column("id").to_pylist() == [5, 4]
    assert audit.left_out.to_pylist() == [{"id": 6, "reason": "no label"}]
    pq.write_table(scores, tmp_path / "scores.parquet")
    assert hs.audit(tmp_path / "scores.parquet").table.equals(audit.table)
    named = hs.audit(tmp_path / "scores.parquet", class_names=["ant", "bee"])
    assert named.table.column("label_name").to_pylist() == ["bee", "ant"]
    other = scores.rename_columns(["id", "class", "predicted", "avh"])
    pq.write_table(other, tmp_path / "other.parquet")
    for source in (other, tmp_path / "other.parquet"):
        assert hs.audit(source, label="class").table.equals(audit.table)
        with pytest.raises(ValueError, match="'none'"):
            hs.audit(source, label="none")
    with pytest.raises(ValueError, match=r"label must.*'predicted'"):
        hs.audit(scores, label="predicted")
    audit.save(tmp_path / "run")
    assert hs.audit(str(tmp_path / "run")).table.column("id").to_pylist() == [5, 4]


def test_a_record_counts_beside_features_and_probabilities(data: tuple, tmp_path: Path) -> None:
    features, labels, wrong = data
    generator = np.random.default_rng(0)
    el2n = generator.random(240)
    el2n[wrong] += 1
    record = pa.table({"id": np.arange(240), "label": 10 * labels, "predicted": 10 * labels, "el2n_mean": el2n})
    pq.write_table(record, tmp_path / "samples.parquet")
    (tmp_path / "run.json").write_text("{}")
    for source in (record, tmp_path):
        both = hs.audit(source, features=features)
        assert both.issues.scores == ("el2n_mean", "margin_with_neighbours")
        assert found(both) == wrong.tolist()
        assert set(both.table.column("predicted").to_pylist()) <= {0, 10, 20}
    numbered = record.set_column(1, "label", pa.array(labels)).drop_columns(["predicted"])
    beside = hs.audit(numbered, probabilities=beliefs(features))
    assert beside.issues.scores == ("el2n_mean", "margin_of_probabilities")
    assert found(beside) == wrong.tolist()


def test_groups_estimators_and_named_scores(data: tuple) -> None:
    features, labels, wrong = data
    groups = np.arange(240) // 2
    table = pa.table({"label": labels, "features": lists(features), "patient": groups})
    by_column, by_array = hs.audit(table, groups="patient"), hs.audit(labels=labels, features=features, groups=groups)
    assert found(by_column) == wrong.tolist()
    np.testing.assert_array_equal(by_column.table.column("suspicion"), by_array.table.column("suspicion"))
    own = hs.audit(labels=labels, features=features, estimator=LogisticRegression())
    assert found(own) == wrong.tolist()
    assert "angular_margin" not in own.table.column_names
    assert hs.audit(labels=labels, features=features, score="angular_margin").issues.scores == ("angular_margin",)


def test_neighbours_are_of_other_groups() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(20, 8, generator=generator)
    features = centres.repeat_interleave(3, 0) + 1e-3 * torch.randn(60, 8, generator=generator)
    groups = torch.arange(60) // 3
    assert (groups[nearest_in_angle(features, 2)] == groups[:, None]).all()
    assert (groups[nearest_in_angle(features, 5, groups)] != groups[:, None]).all()
    few = nearest_in_angle(features, 59, groups)
    assert (few.sort().values != torch.arange(60)[:, None]).all()


def test_very_many_samples_without_an_index_are_ranked_without_neighbours(
    data: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels, wrong = data
    assert neighbours.MOST_EXACT == 100_000
    monkeypatch.setattr(neighbours, "MOST_EXACT", 239)
    monkeypatch.setitem(sys.modules, "faiss", None)
    audit = hs.audit(labels=labels, features=features)
    assert "neighbour_disagreement" not in audit.table.column_names
    assert found(audit) == wrong.tolist()
    assert "faiss-cpu" in audit.findings.notes[0]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"features": None}, ValueError, ("features", "probabilities", "neither")),
        ({"features": np.ones((7, 2), np.float32)}, ValueError, ("features", "240", "7")),
        ({"features": np.ones((240, 2), np.float32)}, ValueError, ("features", "same")),
        ({"features": np.ones(240, np.float32)}, ValueError, ("features", "matrix", "[240]")),
        ({"features": np.ones((240, 2), int)}, TypeError, ("features", "int64")),
        ({"features": np.full((240, 2), np.nan)}, ValueError, ("finite", "240")),
        ({"labels": np.zeros(240, int)}, ValueError, ("labels", "2 classes")),
        ({"labels": [*["ant", "bee"] * 119, "ant", "wasp"]}, ValueError, ("class", "'wasp'", "1")),
        ({"labels": np.full(240, 0.5)}, TypeError, ("labels", "fractions")),
        ({"labels": [None] * 240}, ValueError, ("labels", "240")),
        ({"labels": [1, "ant"] * 120}, TypeError, ("labels", "several")),
        ({"labels": np.zeros((240, 2), int)}, ValueError, ("labels", "[240, 2]", "each")),
        ({"labels": [[0, 1]] * 240}, TypeError, ("labels", "list", "each")),
        ({"class_names": ["ant"]}, ValueError, ("labels", "[0, 0]", "2")),
        ({"labels": ["ant", "bee"] * 120, "class_names": ["ant", "cat"]}, ValueError, ("labels", "'bee'", "cat")),
        ({"labels": ["ant", "bee"] * 120, "probabilities": np.full((240, 3), 1 / 3)}, ValueError, ("class_names", "3")),
        ({"probabilities": np.full((240, 2), 0.5)}, ValueError, ("labels", "[0, 1]", "2")),
        ({"probabilities": np.full((240, 3), 0.5)}, ValueError, ("probabilities", "sum", "1.5")),
        ({"groups": [1, 2]}, ValueError, ("groups", "240", "[2]")),
        ({"folds": 1}, ValueError, ("folds", "2", "1")),
        ({"source": "x.parquet"}, ValueError, ("labels", "label", "source")),
        ({"labels": None}, ValueError, ("source", "labels")),
    ],
)
def test_arrays_that_cannot_be_audited(data: tuple, change: dict, error: type, words: tuple) -> None:
    features, labels, _ = data
    with pytest.raises(error) as raised:
        hs.audit(**{"labels": labels, "features": features} | change)
    assert all(word in str(raised.value) for word in words), raised.value


@pytest.mark.parametrize(
    ("change", "options", "error", "words"),
    [
        ({}, {"label": "none"}, ValueError, ("'none'", "label")),
        ({}, {"features": "none"}, ValueError, ("'none'", "features")),
        ({}, {"features": "words"}, ValueError, ("features", "words", "constant")),
        ({}, {"show": ["nothing"]}, ValueError, ("'nothing'",)),
        ({}, {"show": ["features"]}, ValueError, ("show", "'features'")),
        ({"id": [0] * 240}, {}, ValueError, ("ids", "unique", "0")),
        ({"features": [[1.0], *[[1.0, 2.0]] * 239]}, {}, ValueError, ("'features'", "one length")),
        ({"features": None}, {"text": "words"}, ValueError, ("features", "probabilities", "'words'")),
    ],
)
def test_tables_that_cannot_be_audited(data: tuple, change: dict, options: dict, error: type, words: tuple) -> None:
    features, labels, _ = data
    columns = {"label": labels, "features": lists(features), "words": ["a"] * 240} | change
    with pytest.raises(error) as raised:
        hs.audit(pa.table({name: values for name, values in columns.items() if values is not None}), **options)
    assert all(word in str(raised.value) for word in words), raised.value
    with pytest.raises(TypeError, match="Arrow"):
        hs.audit({"label": labels})


def test_the_function_is_not_imported_before_it_is_used() -> None:
    program = "import sys, hardsight; assert 'hardsight.cleaning' not in sys.modules; hardsight.audit; print('used')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "used\n"
