"""Small files made to become large, or to keep a reader busy; each with the commands that read it."""

import base64
import bz2
import gzip
import io
import json
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image

MIB, GIB = 1 << 20, 1 << 30
HEAD = np.ones((3, 64), np.float32)
SCORE, AUDIT = ["score", "-o", "out.parquet"], ["audit", "-o", "out", "--no-page"]
SHOWN = [*SCORE, "--model", "mine:build"]
MODEL = """
from torch import nn
def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
"""

Bomb = Callable[[Path], list[str]]
BOMBS: dict[str, Bomb] = {}


def bomb(name: str) -> Callable[[Bomb], Bomb]:
    def register(build: Bomb) -> Bomb:
        BOMBS[name] = build
        return build

    return register


def member(descr: str, shape: str, content: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def zeros(path: Path, members: dict[str, tuple[bytes, int]]) -> None:
    """An .npz whose members are a header and so many zeros, packed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, (header, count) in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                file.write(header)
                for _ in range(count // MIB):
                    file.write(bytes(MIB))


@bomb("an npz of zeros")
def _(folder: Path) -> list[str]:
    zeros(
        folder / "f.npz",
        {"features": (member("'<f4'", "(4194304, 64)"), GIB), "weight": (member("'<f4'", "(0, 64)"), 0)},
    )
    np.savez(folder / "head.npz", weight=HEAD)
    return [*SCORE, "f.npz", "--head", "head.npz"]


@bomb("an npz of 50 members of zeros")
def _(folder: Path) -> list[str]:
    head = {name: (member("'<f4'", f"({200 * MIB // 256}, 64)"), 200 * MIB) for name in ("features", "weight", "bias")}
    zeros(folder / "f.npz", head | {"labels": (member("'|i1'", f"({200 * MIB},)"), 200 * MIB)})
    return [*SCORE, "f.npz"]


@bomb("an npz of ids of one letter")
def _(folder: Path) -> list[str]:
    rows = 16 * MIB
    ids = {"ids": (member("'<U1'", f"({rows},)"), 4 * rows), "weight": (member("'<f4'", "(0, 1)"), 0)}
    zeros(folder / "f.npz", ids | {"features": (member("'<f4'", f"({rows}, 1)"), 4 * rows)})
    np.savez(folder / "head.npz", weight=HEAD[:, :1])
    return [*SCORE, "f.npz", "--head", "head.npz"]


@bomb("an npz that promises 10^12 rows")
def _(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "f.npz", "w") as archive:
        archive.writestr("features.npy", member("'<f4'", "(1000000000000, 64)", bytes(64)))
        archive.writestr("weight.npy", member("'<f4'", "(3, 64)", bytes(768)))
    return [*SCORE, "f.npz"]


@bomb("an npz with a header of brackets")
def _(folder: Path) -> list[str]:
    header = b"(" * 60_000
    with zipfile.ZipFile(folder / "f.npz", "w") as archive:
        archive.writestr("features.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    return [*SCORE, "f.npz"]


@bomb("an npz of 100,000 members")
def _(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "f.npz", "w") as archive:
        for number in range(100_000):
            archive.writestr(str(number), b"")
    return [*SCORE, "f.npz"]


@bomb("a safetensors header of brackets")
def _(folder: Path) -> list[str]:
    header = b"[" * 1_000_000
    (folder / "f.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    return [*SCORE, "f.safetensors"]


@bomb("a safetensors file of many tensors")
def _(folder: Path) -> list[str]:
    header = json.dumps(
        {str(at): {"dtype": "F32", "shape": [], "data_offsets": [0, 4]} for at in range(100_000)}
    ).encode()
    (folder / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    return shown(folder, "--weights", "w.safetensors")


@bomb("a Parquet file of one number repeated")
def _(folder: Path) -> list[str]:
    column = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(1 << 28, np.float32)), 64)
    pq.write_table(pa.table({"features": column}), folder / "f.parquet", compression="zstd")
    np.savez(folder / "head.npz", weight=HEAD)
    return [*SCORE, "f.parquet", "--head", "head.npz"]


@bomb("a Parquet file with one long list")
def _(folder: Path) -> list[str]:
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1 << 27, (1 << 27) + 1], pa.int32()), pa.array(np.zeros((1 << 27) + 1, np.float32))
    )
    pq.write_table(pa.table({"features": lists}), folder / "f.parquet", compression="zstd")
    np.savez(folder / "head.npz", weight=HEAD)
    return [*SCORE, "f.parquet", "--head", "head.npz"]


@bomb("a Parquet head of zeros")
def _(folder: Path) -> list[str]:
    text = b'{"weight":{"dtype":"F8_E4M3","shape":[3,4],"data_offsets":[0,12]}}'
    head = base64.b64encode(struct.pack("<Q", len(text)) + text + bytes(12))
    table = pa.table({"features": [[0.5] * 4] * 3}).replace_schema_metadata({"hardsight.head": head})
    pq.write_table(table, folder / "f.parquet")
    return [*SCORE, "f.parquet"]


@bomb("a table of ids that count by themselves")
def _(folder: Path) -> list[str]:
    rows = 3_000_000
    table = pa.table({"id": np.arange(rows), "label": np.zeros(rows, np.int8), "avh": np.zeros(rows, np.float32)})
    encodings = {"id": "DELTA_BINARY_PACKED"}
    pq.write_table(
        table, folder / "s.parquet", use_dictionary=["label", "avh"], column_encoding=encodings, compression="zstd"
    )
    return [*AUDIT, "s.parquet"]


@bomb("a table of one long path")
def _(folder: Path) -> list[str]:
    path = pa.DictionaryArray.from_arrays(pa.array(np.zeros(1_000_000, np.int32)), pa.array(["x" * 100_000]))
    columns = {
        "id": np.arange(1_000_000),
        "label": np.zeros(1_000_000, np.int64),
        "avh": np.zeros(1_000_000),
        "path": path,
    }
    pq.write_table(pa.table(columns), folder / "s.parquet")
    return [*AUDIT, "s.parquet"]


@bomb("a table of 20,000 columns")
def _(folder: Path) -> list[str]:
    pq.write_table(
        pa.table({f"c{at}": [0.5] for at in range(20_000)} | {"id": [1], "label": [0]}), folder / "s.parquet"
    )
    return [*AUDIT, "s.parquet"]


@bomb("a table of classes numbered 10^9")
def _(folder: Path) -> list[str]:
    columns = {
        "id": np.arange(10),
        "label": np.arange(10) * 10**9,
        "predicted": np.arange(10),
        "avh": np.linspace(0, 1, 10),
    }
    pq.write_table(pa.table(columns), folder / "s.parquet")
    return ["audit", "-o", "out", "s.parquet"]


@bomb("a CSV of a million columns")
def _(folder: Path) -> list[str]:
    (folder / "s.csv").write_text("," * 1_000_000 + "\n" + "," * 1_000_000 + "\n")
    (folder / "h.csv").write_text("id,hsf\n1,0.5\n")
    return ["align", "-o", "out", "s.csv", "h.csv"]


@bomb("JSON nested 100,000 deep")
def _(folder: Path) -> list[str]:
    (folder / "run.json").write_text("[" * 100_000 + "]" * 100_000)
    return ["report", "."]


@bomb("JSON nested 500 deep in a record")
def _(folder: Path) -> list[str]:
    (folder / "run.json").write_text('{"results": ' + '{"a": ' * 500 + "1" + "}" * 500 + "}")
    return ["runs", ".", "--json"]


@bomb("TOML of a key with 30,000 parts")
def _(folder: Path) -> list[str]:
    (folder / "c.toml").write_text("epochs" + ".a" * 30_000 + " = 1\n")
    return ["train", "c.toml"]


def setting(text: str) -> Bomb:
    def build(folder: Path) -> list[str]:
        (folder / "c.toml").write_text(
            'epochs = 1\nmodel = "digits_cnn"\nfolder = "run"\n[data]\nname = "digits"\nlimit = 40\n' + text
        )
        return ["train", "c.toml", "--quiet"]

    return build


BOMBS |= {
    f"TOML with {text.splitlines()[-1]}": setting(text)
    for text in (
        "batch_size = 9223372036854775807", "shift = 1000000",
        "[loss]\nname = \"gradient_rescaling\"\noptions.beta = 1e308",
        "noise_std = 1e38", "test_batch_size = 9223372036854775807", "class_balanced = [1000000000, 1000000000]",
    )
}  # fmt: skip


@bomb("TOML with a device that only pretends")
def _(folder: Path) -> list[str]:
    return [*setting("")(folder), "--set", "device=meta"]


def shown(folder: Path, *more: str) -> list[str]:
    (folder / "mine.py").write_text(MODEL)
    for name in ("cat", "dog", "frog"):
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 9)).save(folder / "photos" / name / "0.png")
    return [*SHOWN, "--data", "photos", "--size", "8", *more]


@bomb("a checkpoint of zeros")
def _(folder: Path) -> list[str]:
    torch.save({"a": torch.zeros(1)}, folder / "a.pt")
    with (
        zipfile.ZipFile(folder / "a.pt") as whole,
        zipfile.ZipFile(folder / "w.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in whole.namelist():
            packed.writestr(name, bytes(GIB) if name.endswith("data/0") else whole.read(name))
    return shown(folder, "--weights", "w.pt")


@bomb("a checkpoint of one number repeated")
def _(folder: Path) -> list[str]:
    torch.save({"a": torch.zeros(1).as_strided((1 << 40,), (0,))}, folder / "w.pt")
    return shown(folder, "--weights", "w.pt")


@bomb("a checkpoint that makes an array by its length")
def _(folder: Path) -> list[str]:
    with zipfile.ZipFile(folder / "w.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.")
        archive.writestr("a/version", b"3\n")
    return shown(folder, "--weights", "w.pt")


@bomb("a pickle that remembers at place 2^31")
def _(folder: Path) -> list[str]:
    place = folder / "root" / "cifar-10-batches-py"
    place.mkdir(parents=True)
    for name in (*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"):
        (place / name).write_bytes(b"\x80\x02]r\xff\xff\xff\x7f.")
    return ["data", "check", "root", "--name", "cifar10"]


@bomb("a pickle of lists nested in themselves")
def _(folder: Path) -> list[str]:
    nested: list = []
    for _ in range(100):
        nested = [nested] * 10
    place = folder / "root" / "cifar-10-batches-py"
    place.mkdir(parents=True)
    for name in (*(f"data_batch_{part}" for part in range(1, 6)), "test_batch"):
        (place / name).write_bytes(pickle.dumps(nested))
    return ["data", "check", "root", "--name", "cifar10"]


@bomb("an IDX file of zeros")
def _(folder: Path) -> list[str]:
    place = folder / "root" / "MNIST" / "raw"
    place.mkdir(parents=True)
    with gzip.open(place / "train-images-idx3-ubyte.gz", "wb", compresslevel=1) as file:
        file.write(struct.pack(">BBBBIII", 0, 0, 8, 3, 1 << 20, 32, 32))
        for _ in range(1024):
            file.write(bytes(MIB))
    return ["data", "check", "root", "--name", "mnist"]


@bomb("USPS of lines of one letter")
def _(folder: Path) -> list[str]:
    (folder / "root" / "USPS").mkdir(parents=True)
    (folder / "root" / "USPS" / "usps.bz2").write_bytes(bz2.compress(b"1\n" * 10_000_000))
    return ["data", "check", "root", "--name", "usps"]


@bomb("a MATLAB file of zeros")
def _(folder: Path) -> list[str]:
    (folder / "root" / "SVHN").mkdir(parents=True)
    size = 512 * MIB
    flags = struct.pack("<IIII", 6, 8, 9, 0) + struct.pack("<II4i", 5, 16, 32, 32, 3, size // 3072)
    inner = flags + struct.pack("<I4s", 1 << 16 | 1, b"X\0\0\0") + struct.pack("<II", 2, size)
    packer = zlib.compressobj(1)
    packed = packer.compress(struct.pack("<II", 14, len(inner) + size) + inner)
    packed += b"".join(packer.compress(bytes(MIB)) for _ in range(512)) + packer.flush()
    header = b"MATLAB 5.0".ljust(124) + struct.pack("<H2s", 0x0100, b"IM")
    (folder / "root" / "SVHN" / "train_32x32.mat").write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)
    return ["data", "check", "root", "--name", "svhn"]


@bomb("a picture of 13,000 x 13,000")
def _(folder: Path) -> list[str]:
    command = shown(folder)
    Image.new("1", (13_000, 13_000), 1).save(folder / "photos" / "dog" / "0.png")
    return command


@bomb("a picture at its own size of 9,000 x 9,000")
def _(folder: Path) -> list[str]:
    command = shown(folder)
    for name in ("cat", "dog", "frog"):
        Image.new("1", (9_000, 9_000), 1).save(folder / "photos" / name / "0.png")
    return [word for word in command if word not in ("--size", "8")]


@bomb("a picture that is a thread")
def _(folder: Path) -> list[str]:
    command = shown(folder)
    Image.new("1", (60_000_000, 1), 1).save(folder / "photos" / "cat" / "0.png")
    return command


@bomb("a picture repeated in Parquet")
def _(folder: Path) -> list[str]:
    shown(folder)
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)).save(stream, "PNG")
    one = pa.array([{"bytes": stream.getvalue(), "path": None}])
    (folder / "hf").mkdir()
    table = pa.table({"image": one.take(pa.array(np.zeros(3000, np.int64))), "label": np.arange(3000) % 3})
    pq.write_table(table, folder / "hf" / "train-00000-of-00001.parquet")
    return [*SHOWN, "--data", "hf", "--size", "8"]


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type = size, kind
    return entry.tobuf(tarfile.GNU_FORMAT)


@bomb("a tar with a pax header of 2^60 bytes")
def _(folder: Path) -> list[str]:
    (folder / "a.tar").write_bytes(header("pax", 1 << 60, tarfile.XHDTYPE) + bytes(1024))
    return ["data", "unpack", "a.tar", "out"]


@bomb("a tar with 5,000 headers of headers")
def _(folder: Path) -> list[str]:
    (folder / "a.tar").write_bytes(header("x", 0, tarfile.XHDTYPE) * 5000 + header("a") + bytes(1024))
    return ["data", "unpack", "a.tar", "out"]


@bomb("a tar of zeros")
def _(folder: Path) -> list[str]:
    with gzip.open(folder / "a.tar.gz", "wb", compresslevel=1) as file:
        file.write(header("a/b", GIB))
        for _ in range(1024):
            file.write(bytes(MIB))
        file.write(bytes(1024))
    return ["data", "unpack", "a.tar.gz", "out"]


@bomb("a zip of zeros")
def _(folder: Path) -> list[str]:
    with (
        zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a/b", "w") as file,
    ):
        for _ in range(1024):
            file.write(bytes(MIB))
    return ["data", "unpack", "a.zip", "out"]
