"""Public weights, read as safetensors: nothing is unpickled."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from hardsight.files import RefusedError, check_unpacked
from hardsight.files.arrays import tensor_arrays
from hardsight.models.residual import DEPTHS, CifarResNet


def load_cifar10_resnet(depth: int, path: Path | str) -> CifarResNet:
    """The public CIFAR-10 ResNet of 20, 32, 44 or 56 layers, in evaluation mode.

    The file holds each tensor under `resnet<depth>.<name>`. The network expects RGB / 255, normalised with the mean
    (0.485, 0.456, 0.406) and standard deviation (0.229, 0.224, 0.225).
    """
    if depth not in DEPTHS:
        raise ValueError(f"depth must be one of {', '.join(map(str, DEPTHS))}; got {depth!r}")
    if Path(path).is_dir():
        raise ValueError(f"path must be a safetensors file; {path} is a folder")
    prefix = f"resnet{depth}."
    try:
        arrays = {key.removeprefix(prefix): one for key, one in tensor_arrays(path).items() if key.startswith(prefix)}
        check_unpacked(path, sum(one.size for one in arrays.values()))
        tensors = {key: one.tensor_of(one.read()) for key, one in arrays.items()}
    except RefusedError as error:
        raise ValueError(f"path must be a safetensors file; {path} is not: {error}") from error
    model = CifarResNet(depth)
    mismatch = first_mismatch(model, tensors)
    if mismatch:
        raise ValueError(f"path must hold the weights of ResNet-{depth}; in {path} {mismatch}")
    model.load_state_dict(tensors, strict=False)
    return model.eval()


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
            return f"{name} holds {_kind(tensors[name])} instead of {_kind(tensor)}"
    unknown = next((name for name in tensors if name not in expected), None)
    return f"{unknown} belongs to another network" if unknown else None


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
