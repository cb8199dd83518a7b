"""Hierarchies, and human selection frequency at any granularity."""

import json
import math

import pytest
import torch

from hardsight.datasets import Hierarchy, human_selection_frequency, read_hierarchy
from hardsight.datasets.cifar import CIFAR10_HIERARCHY, CIFAR100_CLASSES, CIFAR100_HIERARCHY
from hardsight.datasets.hierarchy import read_groups

PETS = Hierarchy.from_groups(("cat", "dog", "ship"), {"animal": ("cat", "dog"), "vehicle": ("ship",)})


def loop_reference(votes, labels, hierarchy=None) -> list[float]:
    shares = []
    for row, label in zip(votes.tolist(), labels.tolist(), strict=True):
        if hierarchy is None:
            same = [index == label for index in range(len(row))]
        else:
            same = [hierarchy.parents[index] == hierarchy.parents[label] for index in range(len(row))]
        shares.append(
            math.nan if label < 0 or not sum(row) else sum(v for v, s in zip(row, same, strict=True) if s) / sum(row)
        )
    return shares


@pytest.mark.parametrize("hierarchy", [None, PETS])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_frequency_is_the_share_of_the_own_class(hierarchy, dtype):
    votes = torch.randint(0, 20, (50, 3), generator=torch.Generator().manual_seed(0)).to(dtype)
    votes[3] = 0
    labels = torch.randint(-1, 3, (50,), generator=torch.Generator().manual_seed(1))
    expected = torch.tensor(loop_reference(votes, labels, hierarchy), dtype=torch.float64)
    torch.testing.assert_close(human_selection_frequency(votes, labels, hierarchy), expected, equal_nan=True)


def test_a_coarser_view_is_never_harder():
    votes = torch.randint(1, 20, (200, 10), generator=torch.Generator().manual_seed(2))
    labels = torch.arange(200) % 10
    fine = human_selection_frequency(votes, labels)
    coarse = human_selection_frequency(votes, labels, CIFAR10_HIERARCHY)
    assert (coarse >= fine).all()
    assert (coarse > fine).any()
    everything = Hierarchy.from_groups(CIFAR10_HIERARCHY.fine_names, {"thing": CIFAR10_HIERARCHY.fine_names})
    assert (human_selection_frequency(votes, labels, everything) == 1).all()


def test_votes_are_kept_and_labels_agree():
    votes = torch.rand(20, 100, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    coarse = CIFAR100_HIERARCHY.coarsen_votes(votes)
    torch.testing.assert_close(coarse.sum(1), votes.sum(1))
    labels = torch.arange(100)
    one_hot = torch.eye(100)
    assert torch.equal(CIFAR100_HIERARCHY.coarsen_votes(one_hot).argmax(1), CIFAR100_HIERARCHY.coarsen(labels))
    assert CIFAR100_HIERARCHY.coarsen(torch.tensor([-1, 0])).tolist() == [-1, 4]


def test_cifar100_has_twenty_fives():
    assert len(CIFAR100_CLASSES) == len(set(CIFAR100_CLASSES)) == 100
    assert [CIFAR100_HIERARCHY.parents.count(parent) for parent in range(20)] == [5] * 20
    people = CIFAR100_HIERARCHY.coarse_names.index("people")
    named = zip(CIFAR100_HIERARCHY.fine_names, CIFAR100_HIERARCHY.parents, strict=True)
    assert [fine for fine, parent in named if parent == people] == ["baby", "boy", "girl", "man", "woman"]


@pytest.mark.parametrize(
    "groups",
    [{"animal": ("cat",)}, {"animal": ("cat", "dog", "ship", "emu")}, {"a": ("cat", "dog"), "b": ("dog", "ship")}],
)
def test_every_fine_class_belongs_to_exactly_one(groups):
    with pytest.raises(ValueError, match="groups must hold every fine class exactly once"):
        Hierarchy.from_groups(("cat", "dog", "ship"), groups)


def test_parents_must_fit():
    with pytest.raises(ValueError, match="parents must name a coarse class for each of 2 fine ones; got 1"):
        Hierarchy(("a", "b"), ("c",), (0,))
    with pytest.raises(ValueError, match=r"parents must lie in \[0, 0\]"):
        Hierarchy(("a", "b"), ("c",), (0, 1))


def test_files(tmp_path):
    (tmp_path / "h.json").write_text(json.dumps({"animal": ["cat", "dog"], "vehicle": ["ship"]}))
    (tmp_path / "h.csv").write_text("fine,coarse\ncat,animal\nship,vehicle\ndog,animal\n")
    for name in ("h.json", "h.csv"):
        assert read_hierarchy(tmp_path / name, PETS.fine_names) == PETS
    (tmp_path / "bad.json").write_text('["cat"]')
    with pytest.raises(ValueError, match=r"bad.json must hold"):
        read_hierarchy(tmp_path / "bad.json", PETS.fine_names)
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"must have the columns fine and coarse; got \['a', 'b'\]"):
        read_hierarchy(tmp_path / "bad.csv", PETS.fine_names)


def test_labels_that_name_no_class_are_refused():
    for labels in ([-2], [10]):
        with pytest.raises(ValueError, match=r"labels must lie in \[-1, 9\]"):
            CIFAR10_HIERARCHY.coarsen(torch.tensor(labels))
        with pytest.raises(ValueError, match=r"labels must lie in \[-1, 9\]"):
            human_selection_frequency(torch.ones(1, 10), torch.tensor(labels))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("h.json", b"{", r"h\.json is not readable JSON"),
        ("h.json", b"[]", "must hold"),
        ("h.json", b"[" * 100_000, r"h\.json is not readable JSON"),
        ("h.json", b'{"x": ' * 100_000, r"h\.json is not readable JSON"),
        ("h.json", b'{"x": ' + b"9" * 5000 + b"}", r"h\.json is not readable JSON"),
        ("h.json", b'{"x": ["a"], "y": ["a", "b"]}', "one coarse class; 'a' has 'x' and 'y'"),
        ("h.json", b'{"x": ["a", "' + b"c" * 10_000 + b'"]}', "every fine class exactly once"),
        ("h.csv", b",".join(b"x%d" % at for at in range(9_000)) + b"\n", "must have the columns fine and coarse"),
        ("h.json", b'{"x": ["a", ["b"]]}', "must hold"),
        ("h.csv", b"\xff\xfe", r"h\.csv is truncated or is not a readable CSV table"),
        ("h.csv", b"fine,coarse\na,x\nb,\n", "row 3 must name a fine and a coarse class"),
    ],
)
def test_files_that_hold_no_hierarchy_are_named(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as refusal:
        read_hierarchy(tmp_path / name, ["a", "b"])
    assert str(tmp_path / name) in str(refusal.value)
    assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.float16, torch.float64])
def test_sums_of_votes_do_not_run_over_in_a_narrow_type(dtype):
    votes = torch.tensor([[120, 100, 60]]).to(dtype)
    coarse = human_selection_frequency(votes, torch.tensor([0]), PETS)
    assert coarse.tolist() == [220 / 280]
    assert PETS.coarsen_votes(votes).tolist() == [[220, 60]]
    # Half precision holds 60,000, and not its double.
    many = torch.tensor([[60_000.0, 60_000.0, 0.0]], dtype=torch.float16)
    half = float(torch.tensor(60_000.0, dtype=torch.float16))
    assert human_selection_frequency(many, torch.tensor([0])).tolist() == [half / (2 * half)]


def test_groups_from_both_formats(tmp_path):
    (tmp_path / "a.csv").write_text("\ufefffine;coarse\ncat;animal\n3;thing\n")
    (tmp_path / "b.json").write_text(json.dumps({"animal": ["cat"], "thing": [3]}))
    assert read_groups(tmp_path / "a.csv") == read_groups(tmp_path / "b.json") == {"animal": ["cat"], "thing": ["3"]}
    (tmp_path / "c.csv").write_text("fine,coarse\ncat,pet\nfox,wild\ncat,wild\n")
    with pytest.raises(ValueError, match="'cat' has 'pet' and 'wild'"):
        read_groups(tmp_path / "c.csv")
