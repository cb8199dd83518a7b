"""`data list` and `data check`: what they say of whole, partial, damaged and absent sets."""

import dataclasses
import hashlib
import json
import zipfile

import pytest
from typer.testing import CliRunner

from hardsight.cli.data import data_app
from hardsight.datasets import names
from hardsight.datasets.registry import SOURCES, check

BY_NAME = {source.name: source for source in SOURCES}


@pytest.fixture
def expecting(monkeypatch):
    """Let a source expect the miniature's numbers, so that a miniature can be complete."""

    def change(name, **fields):
        changed = tuple(dataclasses.replace(source, **fields) if source.name == name else source for source in SOURCES)
        monkeypatch.setattr("hardsight.datasets.registry.SOURCES", changed)
        monkeypatch.setattr("hardsight.datasets.registry.SOURCES", changed)

    return change


def only(root, name, **options):
    (state,) = check(root, [name], **options)
    return state


def command(*words):
    return CliRunner().invoke(data_app, list(words))


def test_an_empty_root_has_nothing(tmp_path):
    states = list(check(tmp_path))
    assert {state.state for state in states} == {"absent"}
    assert {state.name for state in states} == set(names()) - {"digits", "two-gaussians", "folder", "huggingface"}


def test_a_whole_set_is_complete_with_its_checksums(build, expecting):
    root = build("mnist")
    labels = root / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    right = hashlib.md5(labels.read_bytes()).hexdigest()
    md5 = {"train-labels-idx1-ubyte": right, "t10k-labels-idx1-ubyte": "0" * 32, "absent": "0" * 32}
    expecting("mnist", splits={"train": 23, "test": 11}, md5=md5)
    state = only(root, "mnist")
    assert state.state == "complete"
    assert [split.found for split in state.splits] == [23, 11]
    assert state.checksums == {"train-labels-idx1-ubyte": "match", "t10k-labels-idx1-ubyte": "differs"}


def test_too_few_samples_are_incomplete(build):
    state = only(build("mnist"), "mnist")
    assert state.state == "incomplete"
    assert state.problems == ("train: 23 samples instead of 60000", "test: 11 samples instead of 10000")


def test_a_missing_file_is_named(build, expecting):
    root = build("cifar10")
    expecting("cifar10", splits={"train": 20, "test": 4})
    (root / "cifar-10-batches-bin" / "test_batch.bin").unlink()
    state = only(root, "cifar10")
    assert state.state == "incomplete"
    assert "test_batch" in state.problems[0]


def test_votes_that_are_not_there_make_the_set_absent_and_not_the_images(build, expecting):
    root = build("cifar10")
    assert only(root, "cifar10h").state == "absent"
    assert "cifar10h-counts.npy" in only(root, "cifar10h").problems[0]


def test_an_optional_split_may_lack(build, expecting):
    root = build("svhn")
    expecting("svhn", splits={"train": 12, "test": 12, "extra": 12})
    (root / "SVHN" / "extra_32x32.mat").unlink()
    assert only(root, "svhn").state == "complete"
    (root / "SVHN" / "extra_32x32.mat").write_bytes(b"cut")
    assert only(root, "svhn").state == "incomplete"


def test_decoding_finds_the_damaged_file(build, expecting):
    root = build("office31")
    expecting("office31", splits={"all": 18})
    (root / "office31" / "dslr" / "images" / "mug" / "frame_0001.png").write_bytes(b"cut")
    assert only(root, "office31").state == "complete"
    state = only(root, "office31", decode=True)
    assert state.state == "incomplete"
    assert [one for one in ("1 files", "dslr/images/mug/frame_0001.png") if one not in state.problems[0]] == []


class TestCommand:
    def test_list_names_every_source(self):
        lines = command("list").stdout.splitlines()
        assert [line.split("\t")[0] for line in lines] == list(names())
        assert [row["name"] for row in json.loads(command("list", "--json").stdout)] == list(names())

    def test_check_says_what_is_there(self, build, expecting):
        expecting("mnist", splits={"train": 23, "test": 11}, md5={})
        done = command("check", str(build("mnist")))
        assert done.exit_code == 0
        lines = dict(line.split("\t")[:2] for line in done.stdout.splitlines())
        assert lines["mnist"] == "complete"
        assert lines["cifar10"] == "absent"

    def test_incomplete_is_exit_code_one(self, build):
        done = command("check", str(build("mnist")), "--name", "mnist", "--json")
        assert done.exit_code == 1
        (state,) = json.loads(done.stdout)
        assert state["state"] == "incomplete"
        assert state["splits"][0] == {
            "split": "train",
            "found": 23,
            "expected": 60000,
            "problem": "23 samples instead of 60000",
        }

    @pytest.mark.parametrize(
        "words", [("check", "nowhere"), ("check", ".", "--name", "cifar11"), ("unpack", "no.zip", ".")]
    )
    def test_bad_input_is_one_sentence_and_exit_code_two(self, words):
        done = command(*words)
        assert done.exit_code == 2
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1

    def test_the_root_may_come_from_the_environment(self, build, monkeypatch):
        monkeypatch.setenv("HARDSIGHT_DATA", str(build("mnist")))
        assert command("check", "--name", "mnist").exit_code == 1

    def test_brackets_in_a_path_are_no_markup(self, build, save_picture):
        root = build("office31")
        save_picture(root / "office31" / "dslr" / "images" / "mug" / "[" / "red].png", 0)
        (root / "office31" / "dslr" / "images" / "mug" / "[" / "red].png").write_bytes(b"cut")
        done = command("check", str(root), "--name", "office31", "--decode")
        assert done.exit_code == 1
        assert "mug/[/red].png" in done.stdout

    def test_unpack_prints_what_it_put_there(self, tmp_path):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("set/x", "1")
        done = command("unpack", str(tmp_path / "a.zip"), str(tmp_path / "data"))
        assert done.stdout.strip() == str(tmp_path / "data" / "set")


def test_a_folder_of_ones_own_lacks_no_split(tmp_path, save_picture):
    for name in ("cat", "dog"):
        save_picture(tmp_path / "photos" / name / "0.png", 0)
    assert only(tmp_path / "photos", "folder").state == "complete"
    assert only(tmp_path / "photos", "huggingface").state == "absent"
    assert only(tmp_path / "photos", "huggingface").problems == ()
