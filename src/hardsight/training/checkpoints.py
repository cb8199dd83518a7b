"""Checkpoints: everything a training needs to go on to the same bits, each whole or not there at all.

    checkpoint/step-00001200/model.safetensors    the weights
    checkpoint/step-00001200/shared.*             optimiser, average, counters: the same in every process
    checkpoint/step-00001200/process-0.*          random states, position in the data, recorder: one set a process
    checkpoint/step-00001200/checksums.json       CRC-32 of each of these: neither format would notice another number
    checkpoint/best.safetensors                   weights of the epoch with the best test accuracy
    checkpoint/last.safetensors                   weights at the end

A checkpoint is written into a hidden folder, synced and renamed; only then the one before it goes.

A state is any nesting of dictionaries, lists and tuples over tensors, numbers, text and None: what `state_dict`
returns. Its tensors are safetensors, everything else is JSON: nothing is pickled, and reading it runs nothing.
"""

import contextlib
import json
import os
import random
import re
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from hardsight import records
from hardsight.distributed import together
from hardsight.files import plain_file, read_bytes

_NAME = re.compile(r"step-(\d+)$")
# What a run writes under its own name, and what it leaves under a hidden one when it is killed. A run's folder may
# hold other things, its owner's: nothing else is ever removed.
_OWN = re.compile(r"step-\d+|(best|last)\.safetensors")
_LEFT = re.compile(rf"\.(gone-)*({_OWN.pattern})")
# Settings of an optimiser that say how it computes, not what.
_OF_THE_DEVICE = ("fused", "foreach", "capturable")
_CHECKSUMS = "checksums.json"


class Checkpoints:
    """The checkpoints of one run, if it has a folder; every process calls each method, `rank` 0 makes and removes."""

    def __init__(self, folder: Path | None, rank: int = 0) -> None:
        self.folder, self.rank = None if folder is None else Path(folder) / "checkpoint", rank

    def latest(self) -> Path | None:
        """The newest complete checkpoint."""
        if self.folder is None or not self.folder.is_dir():
            return None
        found = [(int(match[1]), path) for path in self.folder.iterdir() if (match := _NAME.match(path.name))]
        return max(found)[1] if found else None

    def save(self, step: int, model: Mapping[str, Tensor], shared: Any, own: Any) -> Path:
        """Write the checkpoint of this step, then remove the earlier ones."""
        assert self.folder is not None
        final = self.folder / f"step-{step:08d}"
        draft = self.folder / f".{final.name}"
        with together():
            if self.rank == 0:
                self.folder.mkdir(parents=True, exist_ok=True)
                # What a killed process left of the same step.
                shutil.rmtree(draft, ignore_errors=True)
                draft.mkdir()
        try:
            with together():
                write_state(draft / f"process-{self.rank}", own)
                if self.rank == 0:
                    (draft / "model.safetensors").write_bytes(_as_bytes(model))
                    write_state(draft / "shared", shared)
            with together():
                if self.rank == 0:
                    sums = {path.name: _checksum(path) for path in sorted(draft.iterdir())}
                    (draft / _CHECKSUMS).write_text(json.dumps(sums), encoding="utf-8")
                    for path in draft.iterdir():
                        with path.open("rb") as written:
                            os.fsync(written.fileno())
                    records.sync_folder(draft)
                    if final.exists():
                        _discard(final)
                    draft.rename(final)
                    records.sync_folder(final.parent)
                    self.discard_before(step)
        except Exception:
            # A full disk: give back what the draft took; the checkpoint before it is untouched.
            if self.rank == 0:
                shutil.rmtree(draft, ignore_errors=True)
            raise
        return final

    def load(self, path: Path) -> tuple[dict[str, Tensor], Any, Any]:
        """Weights, shared state and this process's own state."""
        own = path / f"process-{self.rank}"
        if not own.with_suffix(".json").is_file():
            raise ValueError(f"{path} was written by fewer processes: it holds no state for process {self.rank}")
        states = ("shared.json", "shared.safetensors", f"{own.name}.json", f"{own.name}.safetensors")
        try:
            _check_whole(path, "model.safetensors", *states)
            return read_tensors(path / "model.safetensors"), read_state(path / "shared"), read_state(own)
        except ValueError as damage:
            raise ValueError(f"{path} is damaged and cannot be continued: {damage}; start over") from None

    def save_weights(self, name: str, model: Mapping[str, Tensor]) -> None:
        """Write `name`.safetensors; one process does."""
        if self.rank == 0 and self.folder is not None:
            with records.atomic_path(self.folder / f"{name}.safetensors") as temporary:
                temporary.write_bytes(_as_bytes(model))

    def discard_before(self, step: int | None) -> None:
        """Remove earlier checkpoints, and what a killed process left of one; one process does.

        None: remove them all, for a run that starts over must not be continued from an earlier one's.
        """
        if self.rank or self.folder is None or not self.folder.is_dir():
            return
        for path in list(self.folder.iterdir()):
            match = _NAME.match(path.name)
            earlier = _OWN.fullmatch(path.name) if step is None else match and int(match[1]) < step
            if earlier or _LEFT.fullmatch(path.name):
                _discard(path)


def check_fits(module: nn.Module, state: Mapping[str, Tensor], source: Path | str, kind: str = "model") -> None:
    """Reject the state of another module, naming the first tensor that does not fit; `kind` is what the module is."""
    wanted = module.state_dict()
    for name in [*wanted, *state]:
        theirs, ours = (_in_words(tensors.get(name)) for tensors in (state, wanted))
        if theirs != ours:
            raise ValueError(f"{source} must hold the weights of this {kind}; {name} is {theirs} there and {ours} here")


def _in_words(tensor: Tensor | None) -> str:
    kind = "floating-point" if tensor is not None and tensor.is_floating_point() else "whole"
    return "missing" if tensor is None else f"{list(tensor.shape)} of {kind} numbers"


def random_states() -> dict[str, Any]:
    """The states of Python's, NumPy's and torch's global generators, the device's included."""
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 - a user's transforms draw from it
    version, internal, gauss = random.getstate()
    return {
        "python": (version, list(internal), gauss),
        "numpy": (name, torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
    }


def restore_random_states(states: Mapping[str, Any]) -> None:
    """Set the global generators to what `random_states` returned."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """`load_state_dict`, keeping the parameters' memory layout, and how this device steps: what a capture reads."""
    groups, saved = optimizer.param_groups, state["param_groups"]
    if len(groups) == len(saved):
        own = [{key: group[key] for key in _OF_THE_DEVICE if key in group} for group in groups]
        saved = [theirs | ours for theirs, ours in zip(saved, own, strict=True)]
    rates = [group["lr"] for group in groups]
    optimizer.load_state_dict(state | {"param_groups": saved})
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(rate, Tensor):
            rate.copy_(torch.as_tensor(group["lr"]))
            group["lr"] = rate
        for parameter in group["params"]:
            kept = optimizer.state.get(parameter, {})
            for name, value in kept.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    kept[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _as_bytes(model: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: own_copy(tensor) for name, tensor in model.items()})


def _checksum(path: Path) -> str:
    sums = 0
    with plain_file(path).open("rb") as file:
        while block := file.read(1 << 20):
            sums = zlib.crc32(block, sums)
    return f"{sums:08x}"


def _check_whole(folder: Path, *names: str) -> None:
    """Reject files that have changed since they were written; checkpoints of earlier versions have no checksums."""
    if not (folder / _CHECKSUMS).is_file():
        return
    written = records.read_json(folder / _CHECKSUMS)
    for name in names:
        if not (folder / name).is_file():
            raise ValueError(f"{name} is missing")
        if not isinstance(written, dict) or written.get(name) != _checksum(folder / name):
            raise ValueError(f"{name} is not as it was written")


def _discard(path: Path) -> None:
    """Renamed first: a removal that is interrupted never leaves half a checkpoint under a checkpoint's name."""
    gone = path.with_name(f".gone-{path.name.lstrip('.')}")
    with contextlib.suppress(OSError):
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        gone.unlink()


# One-key objects of the JSON for what JSON has not; a plain dictionary never starts with a `$`.
_TENSOR, _TUPLE, _PAIRS = "$tensor", "$tuple", "$pairs"


def write_state(stem: Path, state: Any) -> None:
    """Write `state` as `stem.json` and `stem.safetensors`; both are synced by whoever renames their folder."""
    tensors: dict[str, Tensor] = {}
    skeleton = _take_tensors(state, "", tensors)
    # As bytes through Python's own file: a full disk is then an OSError.
    stem.with_suffix(".safetensors").write_bytes(safetensors.torch.save(tensors))
    stem.with_suffix(".json").write_text(json.dumps(skeleton), encoding="utf-8")


def read_state(stem: Path) -> Any:
    """The state that `write_state` wrote, tensors on the CPU; ValueError where the files hold none."""
    tensors, path = read_tensors(stem.with_suffix(".safetensors")), stem.with_suffix(".json")
    skeleton = records.read_json(path)
    try:
        return _put_tensors(skeleton, tensors)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{path} must hold a state over the tensors of {stem.name}.safetensors; it does not") from None


def read_tensors(path: Path | str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU."""
    try:
        return safetensors.torch.load(read_bytes(path))
    # A KeyError: a kind of number that torch has not; a RuntimeError: sides that it cannot count.
    except (SafetensorError, KeyError, RuntimeError) as problem:
        raise ValueError(f"{path} must be a safetensors file: {problem}") from None


def own_copy(tensor: Tensor) -> Tensor:
    """The tensor on the CPU in memory of its own: safetensors rejects tensors that share memory, as tied weights do."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _take_tensors(state: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(state, np.ndarray | np.generic):
        state = torch.from_numpy(state) if isinstance(state, np.ndarray) else state.item()
    if isinstance(state, Tensor):
        # Keys may hold a slash, or differ in their type alone.
        name = path if path not in tensors else f"{path}#{len(tensors)}"
        tensors[name] = own_copy(state)
        return {_TENSOR: name}
    if isinstance(state, Mapping):
        taken = [(key, _take_tensors(value, f"{path}/{key}", tensors)) for key, value in state.items()]
        plain = all(isinstance(key, str) and not key.startswith("$") for key, _ in taken)
        return dict(taken) if plain else {_PAIRS: [list(pair) for pair in taken]}
    if isinstance(state, list | tuple):
        items = [_take_tensors(item, f"{path}/{index}", tensors) for index, item in enumerate(state)]
        return {_TUPLE: items} if isinstance(state, tuple) else items
    if state is None or isinstance(state, str | int | float | bool):
        return state
    raise TypeError(f"a state must be made of tensors, numbers, text, lists and dictionaries; {path} is {type(state)}")


def _put_tensors(skeleton: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(skeleton, list):
        return [_put_tensors(item, tensors) for item in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    if skeleton.keys() == {_TENSOR}:
        return tensors[skeleton[_TENSOR]]
    if skeleton.keys() == {_TUPLE}:
        return tuple(_put_tensors(item, tensors) for item in skeleton[_TUPLE])
    if skeleton.keys() == {_PAIRS}:
        return {key: _put_tensors(value, tensors) for key, value in skeleton[_PAIRS]}
    return {key: _put_tensors(value, tensors) for key, value in skeleton.items()}
