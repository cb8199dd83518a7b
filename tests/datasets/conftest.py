"""Every public layout in miniature: the exact file names and formats, a handful of samples each.

Picture number i of a folder layout is one flat grey, `grey(i)`, so that a test can tell which picture it got.
"""

import bz2
import functools
import gzip
import io
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from scipy.io import savemat

BUILDERS: dict[str, Callable[[Path], None]] = {}


def builder(*names: str) -> Callable:
    def register(function: Callable[[Path], None]) -> Callable[[Path], None]:
        BUILDERS.update(dict.fromkeys(names, function))
        return function

    return register


def grey(number: int) -> int:
    return 20 + (37 * number) % 200


def picture(path: Path, number: int, size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (grey(number),) * 3).save(path)


def pictures(root: Path, paths: list[str]) -> None:
    for number, path in enumerate(paths):
        picture(root / path, number)


def idx_bytes(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def idx_arrays(count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(count)
    images = generator.integers(0, 256, (count, 28, 28), np.uint8)
    return images, (np.arange(count) % 10).astype(np.uint8)


def write_idx(folder: Path, packed: bool) -> None:
    folder.mkdir(parents=True)
    for prefix, count in (("train", 23), ("t10k", 11)):
        images, labels = idx_arrays(count)
        for name, values in ((f"{prefix}-images-idx3-ubyte", images), (f"{prefix}-labels-idx1-ubyte", labels)):
            data = idx_bytes(values)
            (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)


@builder("digits", "two-gaussians")
def nothing(root: Path) -> None:
    pass


@builder("mnist")
def mnist(root: Path) -> None:
    write_idx(root / "MNIST" / "raw", packed=False)


@builder("fashion-mnist")
def fashion_mnist(root: Path) -> None:
    write_idx(root / "FashionMNIST" / "raw", packed=True)


@builder("kmnist")
def kmnist(root: Path) -> None:
    write_idx(root / "KMNIST" / "raw", packed=True)


def usps_values(count: int) -> np.ndarray:
    levels = np.random.default_rng(count).integers(0, 256, (count, 256))
    return levels / 127.5 - 1


@builder("usps")
def usps(root: Path) -> None:
    (root / "USPS").mkdir(parents=True)
    for name, count in (("usps.bz2", 12), ("usps.t.bz2", 10)):
        lines = []
        for number, row in enumerate(usps_values(count)):
            cells = " ".join(f"{place}:{value:.4f}" for place, value in enumerate(row, start=1) if abs(value) > 1e-4)
            lines.append(f"{number % 10 + 1} {cells} \n")
        (root / "USPS" / name).write_bytes(bz2.compress("".join(lines).encode()))


def cifar_arrays(seed: int, count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 3072), np.uint8)
    return pixels, ((np.arange(count) * 7 + seed) % classes).astype(np.uint8)


CIFAR10_PARTS = [f"data_batch_{part}" for part in range(1, 6)] + ["test_batch"]


@builder("cifar10")
def cifar10(root: Path) -> None:
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for seed, name in enumerate(CIFAR10_PARTS):
        pixels, labels = cifar_arrays(seed, 4, 10)
        (folder / f"{name}.bin").write_bytes(np.column_stack([labels, pixels]).tobytes())


def coarse_of(fine: np.ndarray) -> np.ndarray:
    from hardsight.datasets.cifar import CIFAR100_HIERARCHY

    return np.array(CIFAR100_HIERARCHY.parents)[fine].astype(np.uint8)


@builder("cifar100", "vehicles10")
def cifar100(root: Path) -> None:
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(("train", "test")):
        pixels, fine = cifar_arrays(seed, 100, 100)
        (folder / f"{name}.bin").write_bytes(np.column_stack([coarse_of(fine), fine, pixels]).tobytes())


def python2_pickle(pixels: np.ndarray, labels: dict[str, list[int]]) -> bytes:
    """The bytes that Python 2's cPickle wrote, protocol 2: byte strings, numpy.core, no codec."""
    count = struct.pack("<I", len(pixels))
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85U\x01b\x87Rq\x04(K\x01"
        b"J" + count + b"M\x00\x0c\x86cnumpy\ndtype\nq\x05U\x02u1K\x00K\x01\x87Rq\x06"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + struct.pack("<I", pixels.size) + pixels.tobytes() + b"tb"
    )
    items = b"U\x04data" + array
    for key, values in labels.items():
        numbers = b"".join(b"K" + bytes([value]) for value in values)
        items += b"U" + bytes([len(key)]) + key.encode() + b"](" + numbers + b"e"
    return b"\x80\x02}q\x01(" + items + b"u."


def cifar10_python(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for seed, name in enumerate(CIFAR10_PARTS):
        pixels, labels = cifar_arrays(seed, 4, 10)
        (folder / name).write_bytes(python2_pickle(pixels, {"labels": labels.tolist()}))


def cifar100_python(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "test")):
        pixels, fine = cifar_arrays(seed, 100, 100)
        labels = {"fine_labels": fine.tolist(), "coarse_labels": coarse_of(fine).tolist()}
        (folder / name).write_bytes(python2_pickle(pixels, labels))


@builder("cifar10h")
def cifar10h(root: Path) -> None:
    cifar10(root)
    _, labels = cifar_arrays(5, 4, 10)
    votes = np.eye(10, dtype=np.int64)[labels] * 50 + np.eye(10, dtype=np.int64)[(labels + 1) % 10]
    np.save(root / "cifar-10-batches-bin" / "cifar10h-counts.npy", votes)


def human_labels(classes: int) -> dict[str, np.ndarray]:
    if classes == 10:
        clean = np.concatenate([cifar_arrays(seed, 4, 10)[1] for seed in range(5)]).astype(np.int64)
        names = ("aggre_label", "worse_label", "random_label1", "random_label2", "random_label3")
        return {"clean_label": clean} | {name: (clean + shift) % 10 for shift, name in enumerate(names)}
    clean = cifar_arrays(0, 100, 100)[1].astype(np.int64)
    noisy = (clean + 1) % 100
    coarse = {"clean_coarse_label": coarse_of(clean), "noisy_coarse_label": coarse_of(noisy)}
    return {"clean_label": clean, "noisy_label": noisy} | coarse


@builder("cifar10n")
def cifar10n(root: Path) -> None:
    cifar10(root)
    np.savez(root / "cifar-10-batches-bin" / "CIFAR-10_human.npz", **human_labels(10))


@builder("cifar100n")
def cifar100n(root: Path) -> None:
    cifar100(root)
    torch.save(human_labels(100), root / "CIFAR-100_human.pt")


@builder("svhn")
def svhn(root: Path) -> None:
    (root / "SVHN").mkdir(parents=True)
    for seed, name in enumerate(("train", "test", "extra")):
        images = np.random.default_rng(seed).integers(0, 256, (32, 32, 3, 12), np.uint8)
        digits = (np.arange(12) % 10 + 1).astype(np.uint8)[:, None]
        savemat(root / "SVHN" / f"{name}_32x32.mat", {"X": images, "y": digits}, do_compression=True)


PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


@builder("pacs")
def pacs(root: Path) -> None:
    folder = root / "PACS"
    number = 0
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        lists: dict[str, list[str]] = {"train": [], "crossval": []}
        for label, class_name in enumerate(PACS_CLASSES, start=1):
            for part in range(3):
                path = f"{domain}/{class_name}/pic_{part:03d}.png"
                picture(folder / path, number)
                lists["crossval" if part == 2 else "train"].append(f"{path} {label}")
                number += 1
        (folder / "splits").mkdir(exist_ok=True)
        for split, lines in lists.items():
            (folder / "splits" / f"{domain}_{split}_kfold.txt").write_text("\n".join(lines) + "\n")


def domains(folder: Path, places: tuple[str, ...], classes: tuple[str, ...]) -> None:
    pictures(
        folder, [f"{place}/{name}/frame_{part:04d}.png" for place in places for name in classes for part in (1, 2)]
    )


@builder("office-caltech10")
def office_caltech10(root: Path) -> None:
    domains(root / "office_caltech10", ("amazon", "caltech10", "dslr", "webcam"), ("bike", "mug"))


@builder("office31")
def office31(root: Path) -> None:
    folder = root / "office31"
    domains(folder, ("amazon/images", "dslr/images", "webcam/images"), ("back_pack", "bike", "mug"))
    for domain in ("amazon", "dslr", "webcam"):
        lines = [
            f"/somebody/office/{domain}/images/{name}/frame_{part:04d}.png {label}"
            for label, name in enumerate(("back_pack", "bike", "mug"))
            for part in (1, 2)
        ]
        (folder / f"{domain}_list.txt").write_text("\n".join(lines))


@builder("office-home")
def office_home(root: Path) -> None:
    domains(root / "OfficeHomeDataset_10072016", ("Art", "Clipart", "Product", "Real World"), ("Alarm_Clock", "Bed"))


@builder("visda17")
def visda17(root: Path) -> None:
    from hardsight.datasets import source

    for split in ("train", "validation", "test"):
        folder = root / "visda17" / split
        place = "trunk{:02d}/{}" if split == "test" else "{1}/src_{0}"
        paths = [place.format(label, name) + ".png" for label, name in enumerate(source("visda17").classes)]
        pictures(folder, paths)
        (folder / "image_list.txt").write_text("".join(f"{path} {label}\n" for label, path in enumerate(paths)))


@builder("clothing1m")
def clothing1m(root: Path) -> None:
    folder = root / "clothing1M"
    keys = [f"images/{part}/{part:02d}/{part},{part}.jpg" for part in range(9)]
    pictures(folder, keys)
    (folder / "category_names_eng.txt").write_text("\n".join(f"class {label}" for label in range(14)))
    (folder / "noisy_label_kv.txt").write_text("\n".join(f"{key} {part + 1}" for part, key in enumerate(keys[:6])))
    (folder / "clean_label_kv.txt").write_text("\n".join(f"{key} {part}" for part, key in enumerate(keys) if part > 2))
    for split, chosen in (("noisy_train", keys[:5]), ("clean_train", keys[4:7]), ("clean_val", keys[7:8])):
        (folder / f"{split}_key_list.txt").write_text("\n".join(chosen) + "\n")
    (folder / "clean_test_key_list.txt").write_text(keys[8])


MARS_TEST = {"00-1": (1,), "0000": (1,), "0002": (1, 2), "0004": (3, 5)}


@builder("mars")
def mars(root: Path) -> None:
    folder = root / "MARS"
    (folder / "info").mkdir(parents=True)
    for half, people in (("train", {"0001": (1, 2), "0003": (4,)}), ("test", MARS_TEST)):
        names, tracks = [], []
        for person, cameras in people.items():
            for camera in cameras:
                frames = [f"{person}C{camera}T0001F{frame:03d}.jpg" for frame in (1, 2)]
                tracks.append([len(names) + 1, len(names) + 2, -1 if person == "00-1" else int(person), camera])
                names += frames
        pictures(folder / f"bbox_{half}", [f"{name[:4]}/{name}" for name in names])
        (folder / "info" / f"{half}_name.txt").write_text("\n".join(names))
        savemat(folder / "info" / f"tracks_{half}_info.mat", {f"track_{half}_info": np.array(tracks, np.int32)})
    savemat(folder / "info" / "query_IDX.mat", {"query_IDX": np.array([[3, 6]], np.uint16)})


@builder("imagenet-val")
def imagenet_val(root: Path) -> None:
    wnids = ("n01440764", "n01443537")
    for number in range(6):
        name = f"{wnids[number % 2]}/ILSVRC2012_val_{number + 1:08d}.JPEG"
        picture(root / "imagenet" / "val" / name, number)
    lines = [f"ILSVRC2012_val_{number + 1:08d}.JPEG,{number / 10}" for number in range(5)]
    (root / "imagenet" / "selection_frequency.csv").write_text("image,selection_frequency\n" + "\n".join(lines))


@builder("imagenetv2")
def imagenet_v2(root: Path) -> None:
    folder = root / "imagenetv2-matched-frequency-format-val"
    pictures(folder, [f"{label}/{label:08x}.jpeg" for label in range(12)])


@builder("folder")
def image_folder(root: Path) -> None:
    for split in ("train", "val", "test"):
        pictures(root / split, [f"{name}/{part}.png" for name in ("cat", "dog") for part in range(3)])


@builder("huggingface")
def huggingface(root: Path) -> None:
    (root / "data").mkdir(parents=True)
    features = {
        "image": {"_type": "Image"},
        "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
        "breed": {"dtype": "int64", "_type": "Value"},
    }
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    for split, parts in (("train", 2), ("validation", 1), ("test", 1)):
        for part in range(parts):
            rows = range(5 * part, 5 * part + 5)
            encoded = []
            for number in rows:
                buffer = io.BytesIO()
                Image.new("RGB", (6, 4), (grey(number),) * 3).save(buffer, "PNG")
                encoded.append({"bytes": buffer.getvalue(), "path": f"{number}.png"})
            columns = {"image": encoded, "label": [number % 2 for number in rows], "breed": [100 + n for n in rows]}
            table = pa.table(columns).replace_schema_metadata(metadata)
            file = root / "data" / f"{split}-{part:05d}-of-{parts:05d}.parquet"
            pq.write_table(table, file, row_group_size=2)


@pytest.fixture
def build(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a data set's miniature and returns the root that holds it."""

    def make(name: str) -> Path:
        extra = {"cifar10-python": cifar10_python, "cifar100-python": cifar100_python}
        (BUILDERS | extra)[name](tmp_path)
        return tmp_path

    return make


@pytest.fixture(scope="session")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The root of a miniature that is written once and only read."""

    @functools.cache
    def make(name: str) -> Path:
        root = tmp_path_factory.mktemp(name)
        BUILDERS[name](root)
        return root

    return make


@pytest.fixture
def built_names() -> frozenset[str]:
    return frozenset(BUILDERS)


@pytest.fixture
def grey_of() -> Callable[[int], int]:
    return grey


@pytest.fixture
def save_picture() -> Callable[..., None]:
    return picture


class Bomb:
    """Writes a file when it is unpickled: a test sees whether code ran."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple:
        return Path.touch, (self.witness,)


@pytest.fixture
def bomb(tmp_path: Path) -> tuple[Bomb, Path]:
    """An object whose unpickling leaves a trace, and the trace to look for; the trace works when it is let run."""
    witness = tmp_path / "ran"
    pickle.loads(pickle.dumps(Bomb(witness)))
    assert witness.exists()
    witness.unlink()
    return Bomb(witness), witness
