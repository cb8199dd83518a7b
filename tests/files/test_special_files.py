"""Pipes, devices, folders and huge files in the place of a file: refused in one sentence, never waited for or read."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hardsight import cleaning, datasets, models
from hardsight.alignment.tables import read_joined
from hardsight.cleaning.reading import read_samples
from hardsight.datasets.cifar import load_human_labels, read_cifar10
from hardsight.datasets.digits import read_idx
from hardsight.datasets.folders import read_selection_frequency, text_lines
from hardsight.datasets.formats import load_arrays, load_matlab
from hardsight.datasets.hierarchy import read_groups
from hardsight.datasets.huggingface import read_huggingface
from hardsight.datasets.interface import FileDataset
from hardsight.dynamics.detector import NoiseDetector
from hardsight.engines.files import read_features
from hardsight.models.weights import read_tensors as read_weights
from hardsight.records import read_json
from hardsight.report.reading import read_run
from hardsight.training.checkpoints import read_tensors
from hardsight.training.config import TrainingConfig
from hardsight.training.reading import read_settings

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and sparse files of POSIX")

HUGE = 1 << 43  # more than any memory


def _image(path: Path) -> Any:
    labels, described = torch.tensor([0]), {"name": "one", "split": "all", "class_names": ("a",)}
    images = FileDataset(root=path.parent, paths=(path.name,), labels=labels, size=8, **described)
    raise ValueError(f"{path}: {images.unreadable()[0].reason}")


DOORS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "configuration": ("c.toml", lambda path: read_settings(TrainingConfig, path)),
    "JSON": ("results.json", read_json),
    "checkpoint": ("model.safetensors", read_tensors),
    "coarse classes, JSON": ("coarse.json", read_groups),
    "coarse classes, CSV": ("coarse.csv", read_groups),
    "aligned scores, CSV": ("scores.csv", lambda path: read_joined(path, path)),
    "aligned scores, Parquet": ("scores.parquet", lambda path: read_joined(path, path)),
    "list of actions": ("actions.csv", cleaning.read_actions),
    "audited scores": ("scores.parquet", read_samples),
    "detector": ("detector.safetensors", NoiseDetector.load),
    "features, npz": ("features.npz", read_features),
    "features, safetensors": ("features.safetensors", read_features),
    "features, Parquet": ("features.parquet", read_features),
    "weights, safetensors": ("weights.safetensors", read_weights),
    "weights, torch": ("weights.pt", read_weights),
    "public weights": ("weights.safetensors", lambda path: models.load_cifar10_resnet(20, path)),
    "image": ("image.png", _image),
    "hierarchy, JSON": ("hierarchy.json", lambda path: datasets.read_hierarchy(path, ["cat"])),
    "hierarchy, CSV": ("hierarchy.csv", lambda path: datasets.read_hierarchy(path, ["cat"])),
    "IDX": ("train-images-idx3-ubyte", read_idx),
    "list of images": ("list.txt", text_lines),
    "human labels, npz": ("labels.npz", load_human_labels),
    "human labels, torch": ("labels.pt", load_human_labels),
    "frequencies, JSON": ("frequencies.json", read_selection_frequency),
    "frequencies, CSV": ("frequencies.csv", read_selection_frequency),
    "MATLAB": ("lists.mat", lambda path: load_matlab(path, "tracks")),
    "pickle": ("data_batch_1", load_arrays),
    "CIFAR, binary": ("test_batch.bin", lambda path: read_cifar10(path.parent, "test")),
    "CIFAR, Python": ("test_batch", lambda path: read_cifar10(path.parent, "test")),
    "Hugging Face": ("train-00000-of-00001.parquet", lambda path: read_huggingface(path.parent)),
    "archive": ("data.tar", lambda path: datasets.unpack(path, path.parent / "unpacked")),
}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Whoever asks for more than two gigabytes is refused, before the machine suffers."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 31), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def _refusal(read: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises((ValueError, OSError)) as refused:
        read(path)
    sentence = str(refused.value)
    assert path.name in sentence
    assert len(sentence.replace(str(path), "")) < 300
    return sentence


@pytest.mark.parametrize(("name", "read"), DOORS.values(), ids=DOORS)
def test_a_pipe_is_not_waited_for(name: str, read: Callable[[Path], Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    waited = threading.Event()

    def let_go() -> None:
        # Who waits gets an empty file, so that this test fails and does not hang.
        waited.set()
        os.close(os.open(tmp_path / name, os.O_RDWR | os.O_NONBLOCK))

    timer = threading.Timer(5, let_go)
    timer.start()
    try:
        assert "a pipe" in _refusal(read, tmp_path / name)
    finally:
        timer.cancel()
    assert not waited.is_set()


@pytest.mark.parametrize(("name", "read"), DOORS.values(), ids=DOORS)
def test_a_link_to_a_device_is_not_read(name: str, read: Callable[[Path], Any], tmp_path: Path) -> None:
    # /dev/zero is the same to who looks, and without an end to who does not.
    (tmp_path / name).symlink_to("/dev/null")
    refusal = _refusal(read, tmp_path / name)
    # Of a set of images no link may lead out of its folder.
    assert "a device" in refusal or "outside the root" in refusal


@pytest.mark.parametrize(("name", "read"), DOORS.values(), ids=DOORS)
def test_a_folder_is_no_file(name: str, read: Callable[[Path], Any], tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    _refusal(read, tmp_path / name)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(("name", "read"), DOORS.values(), ids=DOORS)
def test_a_file_without_an_end_is_not_read_to_it(name: str, read: Callable[[Path], Any], tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        try:
            file.truncate(HUGE)
        except OSError:
            pytest.skip("this disk has no sparse files of that size")
    _refusal(read, tmp_path / name)


@pytest.mark.parametrize("name", ["run.json", "samples.parquet", "epochs.parquet"])
def test_a_record_with_a_pipe_in_it_is_not_waited_for(name: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    timer = threading.Timer(5, lambda: os.close(os.open(tmp_path / name, os.O_RDWR | os.O_NONBLOCK)))
    timer.start()
    with pytest.raises(ValueError, match=f"{name} must be a plain file; it is a pipe"):
        read_run(tmp_path)
    timer.cancel()


@pytest.mark.parametrize("command", [("train", "endless.toml"), ("report", "."), ("audit", "endless.parquet")])
def test_a_command_does_not_read_a_device_without_an_end(command: tuple[str, str], tmp_path: Path) -> None:
    for name in ("endless.toml", "run.json", "endless.parquet"):
        (tmp_path / name).symlink_to("/dev/zero")
    done = subprocess.run(
        [sys.executable, "-m", "hardsight", *command], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36)),
    )  # fmt: skip
    assert done.returncode == 2
    assert "it is a device" in done.stderr
    assert len(done.stderr.splitlines()) == 1
