"""MARS: frames of people in tracklets, `bbox_{train,test}/<identity>/<identity>C<camera>T<tracklet>F<frame>.jpg`.

The authors' `info/` gives the frame order, the tracklets and which of them are queries. Without it the tracklets
come from the file names; the queries cannot. Identity 00-1 is junk (label -1), 0000 a distractor.
"""

import re
from pathlib import Path

import numpy as np
import torch

from hardsight.datasets.folders import collect, images_below, subfolders, text_lines
from hardsight.datasets.formats import load_matlab
from hardsight.datasets.interface import FileDataset, Size
from hardsight.files import quoted
from hardsight.names import check_name

_NAME = re.compile(r"(?P<identity>\d{4}|00-1)C(?P<camera>\d)T(?P<tracklet>\d{4})F(?P<frame>\d+)\.jpe?g")


def read_mars(folder: Path | str, split: str = "train", *, size: Size = None) -> FileDataset:
    """MARS frames; columns `tracklet`, `camera` and `identity`; labels count the identities of the split's half.

    "train"; "test": every tracklet of the test half; "query": the authors' queries; "gallery": the rest of "test".
    """
    folder = Path(folder)
    check_name("split", split, ("train", "query", "gallery", "test"))
    half = "train" if split == "train" else "test"
    listed, frames = folder / "info" / f"{half}_name.txt", folder / f"bbox_{half}"
    if listed.is_file():
        names = text_lines(listed)
    else:
        names = [Path(path).name for person in subfolders(frames) for path in images_below(frames, person)]
    parsed = [_parse(name, folder) for name in names]
    identity = np.array([-1 if part["identity"] == "00-1" else int(part["identity"]) for part in parsed])
    camera = np.array([int(part["camera"]) for part in parsed])
    tracklet = _tracklets(folder, half, names, parsed, identity, camera)
    people = np.unique(identity[identity >= 0])
    labels = np.where(identity < 0, -1, np.searchsorted(people, identity))
    chosen = _chosen(folder, split, tracklet)
    columns = {"tracklet": tracklet, "camera": camera, "identity": identity}
    return collect(
        folder,
        [f"bbox_{half}/{parsed[index]['identity']}/{names[index]}" for index in chosen],
        torch.from_numpy(labels[chosen]),
        columns={key: torch.from_numpy(column[chosen]) for key, column in columns.items()},
        class_names=tuple(f"{person:04d}" for person in people),
        name="mars",
        split=split,
        size=size,
    )


def _parse(name: str, folder: Path) -> re.Match[str]:
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"a frame of {folder} must be named like 0001C1T0001F001.jpg; got {quoted(name)}")
    return match


def _tracklets(
    folder: Path, half: str, names: list[str], parsed: list[re.Match[str]], identity: np.ndarray, camera: np.ndarray
) -> np.ndarray:
    """The number of each frame's tracklet; a table that disagrees with the file names is rejected."""
    table = folder / "info" / f"tracks_{half}_info.mat"
    if not table.is_file():
        keys = [(part["identity"], part["camera"], part["tracklet"]) for part in parsed]
        number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        return np.array([number_of[key] for key in keys])
    tracks = load_matlab(table, f"track_{half}_info").astype(np.int64)
    if tracks.ndim != 2 or tracks.shape[1] != 4:
        raise ValueError(f"{table} must hold [tracklets, 4]: first frame, last frame, identity, camera")
    first, last = tracks[:, 0] - 1, tracks[:, 1]
    if (first < 0).any() or (last > len(names)).any() or (first >= last).any():
        raise ValueError(f"{table} must name frames 1 to {len(names)}, those of {half}_name.txt")
    tracklet = np.full(len(names), -1)
    for number, (start, stop) in enumerate(zip(first, last, strict=True)):
        tracklet[start:stop] = number
    if (tracklet < 0).any():
        raise ValueError(f"{table} must give every frame a tracklet; {names[int((tracklet < 0).argmax())]} has none")
    if (tracks[tracklet, 2] != identity).any() or (tracks[tracklet, 3] != camera).any():
        wrong = int(((tracks[tracklet, 2] != identity) | (tracks[tracklet, 3] != camera)).argmax())
        raise ValueError(f"{table} must agree with the file names; it does not for {names[wrong]}")
    return tracklet


def _chosen(folder: Path, split: str, tracklet: np.ndarray) -> np.ndarray:
    if split in ("train", "test"):
        return np.arange(len(tracklet))
    table = folder / "info" / "query_IDX.mat"
    if not table.is_file():
        raise FileNotFoundError(f"{table} is not there, and only it says which tracklets are queries")
    queries = load_matlab(table, "query_IDX").astype(np.int64).reshape(-1) - 1
    if not len(queries):
        raise ValueError(f"{table} must name at least one tracklet; it is empty")
    wrong = queries[(queries < 0) | (queries > tracklet.max())]
    if len(wrong):
        raise ValueError(f"{table} must name tracklets 1 to {tracklet.max() + 1}; got {wrong[0] + 1}")
    return np.isin(tracklet, queries, invert=split == "gallery").nonzero()[0]
