"""Weights from files, put into a model: safetensors, or a checkpoint that holds tensors only.

A checkpoint that would need unpickling is rejected: a pickle is a program.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from hardsight.files import RefusedError
from hardsight.files.arrays import load_tensors
from hardsight.files.pickled import load_checkpoint
from hardsight.models.branched import CifarResNet


def load_cifar10_resnet(depth: int, path: Path | str) -> CifarResNet:
    """The public CIFAR-10 ResNet of 20, 32, 44 or 56 layers, in evaluation mode.

    The file holds each tensor under `resnet<depth>.<name>`. The network expects RGB / 255, normalised with the mean
    (0.485, 0.456, 0.406) and standard deviation (0.229, 0.224, 0.225).
    """
    model, prefix = CifarResNet(depth), f"resnet{depth}."
    try:
        held = load_tensors(path)
    except (RefusedError, IsADirectoryError) as error:
        raise ValueError(f"path must be a safetensors file; {error}") from error
    tensors = {name.removeprefix(prefix): tensor for name, tensor in held.items() if name.startswith(prefix)}
    _fill(model, tensors, f"path must hold the weights of ResNet-{depth}; in {path}")
    return model.eval()


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], otherwise: str) -> None:
    """Put the tensors into the model; all must fit, or a ValueError begins with `otherwise`."""
    mismatch = first_mismatch(model, tensors)
    if mismatch:
        raise ValueError(f"{otherwise} {mismatch}")
    model.load_state_dict(tensors, strict=False)


def first_mismatch(model: nn.Module, tensors: Mapping[str, Tensor]) -> str | None:
    """The first tensor, in the model's order, that `tensors` lack, have otherwise (shape, kind) or too many; or None.

    The batch counters of batch normalization may be missing: they do not change what the network computes.
    """
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in tensors:
            if name.endswith("num_batches_tracked"):
                continue
            return f"{name} is missing"
        if tensors[name].shape != tensor.shape:
            return f"{name} has the shape {list(tensors[name].shape)} instead of {list(tensor.shape)}"
        if tensor.is_floating_point() and not tensors[name].is_floating_point():
            held, wanted = (str(one.dtype).removeprefix("torch.") for one in (tensors[name], tensor))
            return f"{name} holds {held} instead of {wanted}"
    unknown = next((name for name in tensors if name not in expected), None)
    return f"{unknown} belongs to another network" if unknown else None


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
        prefix = next((one for one in _PREFIXES if tensors and all(name.startswith(one) for name in tensors)), None)
        if first_mismatch(model, fitting) is None or prefix is None:
            break
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    _fill(model, fitting, f"weights must fit the model; in {path}")


def read_tensors(path: Path | str) -> dict[str, Tensor]:
    """The named tensors of a weights file; nothing in it can run."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"the weights file {path} is not there")
    if path.suffix == ".safetensors":
        return load_tensors(path)
    content = load_checkpoint(path)
    for _ in range(3):
        if isinstance(content, Mapping) and content and all(isinstance(value, Tensor) for value in content.values()):
            return {str(name): tensor for name, tensor in content.items()}
        inner = content if isinstance(content, Mapping) else {}
        content = next((inner[key] for key in _NESTS if isinstance(inner.get(key), Mapping)), None)
    raise ValueError(
        f"{path} must hold a state_dict, tensors by name, at its top or under {', '.join(_NESTS)}; it does not"
    )
