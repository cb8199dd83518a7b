"""Honest files of every format and the commands that read them; `fuzz.py` damages the files and runs the commands.

A world is a folder of small files and some command lines over them. `lib` in the place of a command names a reader of
the library that no command reaches.
"""

import io
import json
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from safetensors.torch import save_file

GENERATOR = np.random.default_rng(0)
MODEL = """
from torch import nn
class_names = None
def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
"""
TOML = """
name = "mine"
epochs = 1
folder = "run"
[data]
name = "digits"
limit = 40
batch_size = 20
shift = 1
flip = false
fill = "zero"
noise_std = 0.1
[noise]
kind = "symmetric"
rate = 0.2
exact = false
[model]
name = "digits_cnn"
[loss]
name = "gradient_rescaling"
[loss.options]
beta = 2.0
[optimizer]
lr = 0.01
momentum = 0.9
weight_decay = 5e-4
[schedule]
kind = "steps"
milestones = [1]
factor = 0.1
warm_up = 1
[record]
scores = ["avh"]
fit_every = 1
"""
# For each ending that Pillow writes, how.
PICTURES = ("png", "jpg", "bmp", "gif", "tiff", "webp", "ppm")


class World(NamedTuple):
    """`build` fills a folder, in which `commands` are run.

    Over honest files a command `ends` with one of these codes; the `weight` says how often a world is chosen.
    """

    build: Callable[[Path], None]
    commands: list[list[str]]
    ends: tuple[int, ...] = (0,)
    weight: float = 1


def features(folder: Path) -> None:
    x, w = GENERATOR.standard_normal((12, 5)).astype(np.float32), GENERATOR.standard_normal((3, 5)).astype(np.float32)
    arrays = {"features": x, "weight": w, "bias": w[:, 0], "labels": np.arange(12) % 3, "ids": np.arange(12) + 7}
    np.savez(folder / "f.npz", **arrays)
    np.savez_compressed(folder / "c.npz", **(arrays | {"ids": np.array([f"id {at}" for at in range(12)])}))
    np.savez(folder / "head.npz", weight=w, bias=w[:, 0])
    tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
    save_file(tensors | {"features": tensors["features"].bfloat16()}, folder / "f.safetensors")
    column = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 5)
    ids = pa.array([f"photos/{at}.jpg" for at in range(12)])
    table = pa.table({"features": column.cast(pa.list_(pa.float32())), "label": arrays["labels"], "id": ids})
    pq.write_table(table, folder / "f.parquet", compression="zstd")
    pq.write_table(table, folder / "g.parquet", data_page_version="2.0", row_group_size=5)


def photos(folder: Path) -> None:
    (folder / "mine.py").write_text(MODEL)
    for place, name in enumerate(("cat", "dog", "frog")):
        (folder / "photos" / name).mkdir(parents=True)
        for at, ending in enumerate(PICTURES[place::3]):
            pixels = GENERATOR.integers(0, 256, (12, 10, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{at}.{ending}")
    torch.manual_seed(0)
    own: dict[str, Callable] = {}
    exec(MODEL, own)
    state = own["build"]().state_dict()
    torch.save({"state_dict": state, "epoch": 3}, folder / "w.pt")
    torch.save(state, folder / "old.pth", _use_new_zipfile_serialization=False)
    save_file(state, folder / "w.safetensors")
    (folder / "classes.json").write_text(json.dumps({"cat": [0], "dog": [1], "frog": [2]}))


def hugging_face(folder: Path) -> None:
    (folder / "mine.py").write_text(MODEL)
    pictures = []
    for _ in range(9):
        stream = io.BytesIO()
        Image.fromarray(GENERATOR.integers(0, 256, (12, 10, 3), dtype=np.uint8)).save(stream, "PNG")
        pictures.append({"bytes": stream.getvalue(), "path": None})
    feature = {"label": {"_type": "ClassLabel", "names": ["cat", "dog", "frog"]}, "image": {"_type": "Image"}}
    said = {"huggingface": json.dumps({"info": {"features": feature}})}
    table = pa.table({"image": pictures, "label": np.arange(9) % 3}).replace_schema_metadata(said)
    (folder / "hf").mkdir()
    pq.write_table(table, folder / "hf" / "train-00000-of-00001.parquet")


def scores(folder: Path) -> None:
    table = pa.table(
        {
            "id": np.arange(30),
            "label": np.arange(30) % 3,
            "predicted": np.arange(30) * 7 % 3,
            "avh": GENERATOR.random(30).astype(np.float32),
            "confidence": GENERATOR.random(30).astype(np.float32),
            "path": [f"photos/{at}.jpg" for at in range(30)],
        }
    ).replace_schema_metadata({"class names": '["cat", "dog", "frog"]', "skipped": '["a.jpg: no such file"]'})
    pq.write_table(table, folder / "scores.parquet")
    believed = GENERATOR.dirichlet(np.ones(3), 30)
    probabilities = {"id": np.arange(30), "label": np.arange(30) % 3, "probabilities": list(believed)}
    pq.write_table(pa.table(probabilities), folder / "believed.parquet")
    (folder / "actions.csv").write_text("id,label,action,new_label\n1,dog,relabel,cat\n2,frog,drop,\n3,cat,keep,cat\n")
    record(folder / "runs" / "one", table)


def record(folder: Path, table: pa.Table) -> None:
    folder.mkdir(parents=True)
    details = {
        "name": "one", "status": "finished", "created": "2026-01-01T00:00:00+00:00", "seed": 1, "kind": "training",
        "class_names": ["cat", "dog", "frog"], "config": {"data": {"name": "digits", "train": "all"}},
        "results": {"test_accuracy": 0.5, "test_accuracy_best": 0.6}, "versions": {"torch": "2"}, "device": "cpu",
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(details))
    pq.write_table(table, folder / "samples.parquet")
    epochs = {"epoch": [1, 2], "train_loss": [1.0, 0.5], "test_accuracy": [0.4, 0.5], "seconds": [1.0, 1.0]}
    pq.write_table(pa.table(epochs), folder / "epochs.parquet")
    stream = io.BytesIO()
    Image.new("L", (8, 8)).save(stream, "PNG")
    pq.write_table(pa.table({"id": ["1", "2"], "png": [stream.getvalue()] * 2}), folder / "thumbnails.parquet")


def labelled(folder: Path) -> None:
    """Tables of labelled data, with features and probabilities in columns and in files beside them."""
    names = [("cat", "dog", "frog")[at % 3] for at in range(60)]
    x = (GENERATOR.standard_normal((60, 4)) + np.arange(60)[:, None] % 3 * 3).astype(np.float32)
    believed = GENERATOR.dirichlet(np.ones(3), 60)
    rows = [f'{at},{name},"a {name}, or so","photos/{at}.jpg"' for at, name in enumerate(names)]
    (folder / "t.csv").write_text("\n".join(["id,label,said,path", *rows]) + "\n", encoding="utf-8")
    np.save(folder / "x.npy", x)
    np.save(folder / "p.npy", believed)
    table = {"id": np.arange(60), "label": names, "x": list(x), "p": list(believed), "said": names, "seen": x[:, 0]}
    pq.write_table(pa.table(table), folder / "t.parquet", row_group_size=25)


def people(folder: Path) -> None:
    rows = [f"{at},{at % 3},{at / 40:.3f},{(at * 7 % 40) / 40:.3f}" for at in range(40)]
    (folder / "scores.csv").write_text("id,label,avh,confidence\n" + "\n".join(rows) + "\n")
    (folder / "humans.csv").write_text("id,hsf\n" + "\n".join(f"{at},{(at * 3 % 40) / 40}" for at in range(40)) + "\n")
    (folder / "coarse.json").write_text(json.dumps({"animal": ["0", "1"], "thing": ["2"]}))
    (folder / "coarse.csv").write_text("fine,coarse\n0,animal\n1,animal\n2,thing\n")
    scored = {"id": np.arange(40), "label": np.arange(40) % 3, "avh": GENERATOR.random(40)}
    pq.write_table(pa.table(scored), folder / "scores.parquet")


def archives(folder: Path) -> None:
    content = {"set/a.txt": b"1" * 3000, "set/inner/b.bin": bytes(range(256)), "notes.txt": b"3"}
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    for kind in ("", "gz", "bz2", "xz"):
        with tarfile.open(folder / f"a.tar{kind and '.'}{kind}", f"w:{kind}", format=tarfile.PAX_FORMAT) as archive:
            for name, data in content.items():
                member = tarfile.TarInfo(name)
                member.size, member.pax_headers = len(data), {"comment": "é" * 20}
                archive.addfile(member, io.BytesIO(data))


def training(folder: Path) -> None:
    (folder / "c.toml").write_text(TOML)


def library(folder: Path) -> None:
    from hardsight import models
    from hardsight.dynamics.detector import NoiseDetector

    NoiseDetector(5, 4, 1).save(folder / "detector.safetensors")
    state = {f"resnet20.{name}": value for name, value in models.create("resnet20").state_dict().items()}
    save_file(state, folder / "resnet.safetensors")
    (folder / "hierarchy.json").write_text('{"animal": ["cat", "dog"], "thing": ["car"]}')
    (folder / "hierarchy.csv").write_text("fine,coarse\ncat,animal\ndog,animal\ncar,thing\n")
    (folder / "frequency.json").write_text('{"ILSVRC2012_val_00000001": {"n01440764": 0.5}}')
    (folder / "frequency.csv").write_text("image,wnid,selection_frequency\na,n01440764,0.5\n")


SCORE = ["score", "-o", "out.parquet"]
SHOWN = [*SCORE, "--model", "mine:build"]
AUDIT = ["audit", "-o", "out"]
ALIGN = ["align", "-o", "out", "--resamples", "0", "--no-page"]
WORLDS: dict[str, World] = {
    "features": World(
        features,
        [[*SCORE, name] for name in ("f.npz", "c.npz", "f.safetensors")]
        + [[*SCORE, name, "--head", "head.npz"] for name in ("f.parquet", "g.parquet")],
    ),
    "photos": World(
        photos,
        [[*SHOWN, "--data", "photos", "--size", "8"], [*SHOWN, "--data", "photos"]]
        + [
            [*SHOWN, "--data", "photos", "--size", "8", "--weights", name]
            for name in ("w.pt", "old.pth", "w.safetensors")
        ]
        + [[*SHOWN, "--data", "photos", "--size", "8", "--classes", "classes.json"]]
        + [[*SHOWN, "--data", "photos/cat", "--size", "8", "--unlabelled"]]
        + [["adapt", "photos", "photos", "-o", "out", "--rounds", "1", "--source-epochs", "1", "--limit", "6"]],
    ),
    "hugging face": World(hugging_face, [[*SHOWN, "--data", "hf", "--size", "8"], [*SHOWN, "--data", "hf"]]),
    "scores": World(
        scores,
        [[*AUDIT, name, "--no-page"] for name in ("scores.parquet", "believed.parquet", "runs/one")]
        + [[*AUDIT, "scores.parquet", "--by", "label", "--json"], [*AUDIT, "scores.parquet", "--apply", "actions.csv"]]
        + [["runs", "runs"], ["runs", "runs", "--json"], ["report", "runs/one"], [*AUDIT, "runs/one"]],
    ),
    "labelled": World(
        labelled,
        [
            [*AUDIT, "t.csv", "--features", "x.npy", "--text", "said"],
            [*AUDIT, "t.csv", "--features", "x.npy", "--no-page", "--json"],
            [*AUDIT, "t.csv", "--probabilities", "p.npy", "--no-page"],
            [*AUDIT, "t.parquet", "--features", "x", "--show", "seen", "--no-page"],
            [*AUDIT, "t.parquet", "--features", "x.npy", "--probabilities", "p", "--no-page"],
            [*AUDIT, "t.parquet", "--probabilities", "p", "--by", "label", "--show", "said", "--no-page"],
        ],
    ),
    "people": World(
        people,
        [[*ALIGN, name, "humans.csv"] for name in ("scores.csv", "scores.parquet")]
        + [[*ALIGN, "scores.parquet", "humans.csv", "--coarse", name] for name in ("coarse.json", "coarse.csv")],
    ),
    "archives": World(
        archives,
        [["data", "unpack", name, "out"] for name in ("a.zip", "a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz")],
    ),
    # A training takes as long as its file asks for: here one epoch, whatever it asks for.
    "training": World(training, [["train", "c.toml", "--quiet", "--set", "epochs=1"]]),
    "library": World(
        library,
        [["lib", name] for name in ("detector.safetensors", "resnet.safetensors", "hierarchy.json", "hierarchy.csv")]
        + [["lib", name] for name in ("frequency.json", "frequency.csv")],
    ),
}


def layouts(builders: dict[str, Callable[[Path], None]]) -> dict[str, World]:
    """The public data sets in miniature, each read by two commands."""
    found = {}
    for name, build in builders.items():
        if name not in ("digits", "two-gaussians", "folder", "huggingface"):

            def whole(folder: Path, build: Callable[[Path], None] = build) -> None:
                (folder / "mine.py").write_text(MODEL.replace("Linear(4, 3)", "LazyLinear(1000)"))
                build(folder / "root")

            check = ["data", "check", "root", "--name", name, "--decode"]
            shown = [*SHOWN, "--data", "root", "--layout", name, "--size", "8", "--unlabelled"]
            found[name] = World(whole, [check, shown], ends=(0, 1), weight=0.15)
    return found


def read_in_library(name: str) -> None:
    """What `lib` runs."""
    from hardsight import datasets, models
    from hardsight.datasets.folders import read_selection_frequency
    from hardsight.dynamics.detector import NoiseDetector

    read: dict[str, Callable[[str], object]] = {
        "detector": lambda path: NoiseDetector.load(path),
        "resnet": lambda path: models.load_cifar10_resnet(20, path),
        "hierarchy": lambda path: datasets.read_hierarchy(path, ["cat", "dog", "car"]),
        "frequency": read_selection_frequency,
    }
    read[name.partition(".")[0]](name)


def files_of(folder: Path) -> list[Path]:
    """The files that a stranger wrote: all but the model's own source."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".py")


def chosen(worlds: dict[str, World], chance: random.Random) -> tuple[str, list[str]]:
    """A world, and one of its commands."""
    (name,) = chance.choices(list(worlds), [world.weight for world in worlds.values()])
    return name, chance.choice(worlds[name].commands)
