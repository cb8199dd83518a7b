"""Nested states as plain files: tensors in safetensors, everything else in JSON. Nothing is pickled.

A state is any nesting of dictionaries, lists and tuples over tensors, numbers, text and None: what `state_dict`
returns. Reading one builds those things and runs nothing.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from hardsight import records
from hardsight.files import read_bytes

# One-key objects of the JSON that stand for what JSON has not; a plain dictionary never starts with a `$`.
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
    """The tensor on the CPU in memory of its own: safetensors refuses tensors that share memory, as tied weights do."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _take_tensors(state: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    if isinstance(state, np.ndarray):
        state = torch.from_numpy(state)
    if isinstance(state, np.generic):
        state = state.item()
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
