"""A user's weights, put into a model: from a safetensors file or a checkpoint that holds tensors only.

A checkpoint that would need unpickling is refused: a pickle is a program.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hardsight.files.arrays import load_tensors
from hardsight.files.pickled import load_checkpoint
from hardsight.models import first_mismatch

# Where trainers put the weights inside a checkpoint, and what wrappers put before the names.
_NESTS = ("state_dict", "model_state_dict", "model", "net", "weights")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")


def load_weights(model: nn.Module, path: Path | str, without: Sequence[str] = ()) -> None:
    """Put the tensors of a safetensors file or a tensors-only checkpoint into the model; all must fit.

    Layers named in `without`, a head that the model lacks, are passed over.
    """
    tensors = read_tensors(path)
    passed_over = tuple(f"{layer}." for layer in without)
    # Wrappers lie in wrappers, in either order: a compiled model in a distributed one, or that one compiled.
    while True:
        fitting = {name: tensor for name, tensor in tensors.items() if not name.startswith(passed_over)}
        mismatch, prefix = first_mismatch(model, fitting), _shared_prefix(tensors)
        if not mismatch or prefix is None:
            break
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    if mismatch:
        raise ValueError(f"weights must fit the model; in {path} {mismatch}")
    model.load_state_dict(fitting, strict=False)


def _shared_prefix(tensors: Mapping[str, Tensor]) -> str | None:
    """What a wrapper put before every name, or None."""
    return next((prefix for prefix in _PREFIXES if tensors and all(name.startswith(prefix) for name in tensors)), None)


def read_tensors(path: Path | str) -> dict[str, Tensor]:
    """The named tensors of a weights file; nothing in it can run."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"the weights file {path} is not there")
    if path.suffix == ".safetensors":
        return load_tensors(path)
    return _state_of(load_checkpoint(path), path)


def _state_of(content: Any, path: Path) -> dict[str, Tensor]:
    for _ in range(3):
        if isinstance(content, Mapping) and content and all(isinstance(value, Tensor) for value in content.values()):
            return {str(name): tensor for name, tensor in content.items()}
        nest = next(
            (key for key in _NESTS if isinstance(content, Mapping) and isinstance(content.get(key), Mapping)), None
        )
        if nest is None:
            break
        content = content[nest]
    raise ValueError(
        f"{path} must hold a state_dict, tensors by name, at its top or under {', '.join(_NESTS)}; it does not"
    )
