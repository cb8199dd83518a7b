"""A network and its step made ready for a device and a number of processes: layout, precision, sharing, capture."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from hardsight.distributed import rank_and_count, several
from hardsight.training.averaging import WeightAverage
from hardsight.training.between_epochs import check_samples, looks_at_samples
from hardsight.training.capture import CapturedStep, can_capture, make_capturable
from hardsight.training.meter import Meter
from hardsight.training.network import Network, Objective
from hardsight.training.processes import data_parallel, share_batch_statistics
from hardsight.training.step import Step, accumulated, check_parts

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def ready_network(
    model: nn.Module,
    loss: Callable[..., Tensor] | Objective | None,
    device: torch.device,
    *,
    samples: Iterable[Any] | None,
    recorder: Any,
    head: str | None,
    channels_last: bool | None,
) -> Network:
    """The model with its objective, on the device; its features are watched where something looks at them."""
    objective = loss if isinstance(loss, Objective) else Objective(loss)
    check_samples(objective.loss, samples)
    watched = recorder is not None or objective.needs_features or looks_at_samples(objective.loss)
    network = Network(model, objective, features=watched, head=head)
    network.to(device)
    if device.type == "cuda" if channels_last is None else channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def ready_step(
    network: Network,
    optimizer: torch.optim.Optimizer | None,
    *,
    precision: torch.dtype,
    accumulate: int,
    batch_size: int,
    clip: float | None,
    average_decay: float | None,
    recorder: Any,
) -> Step:
    """The step of a network, shared between the processes where there are several."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("model must have a parameter that takes a gradient; it has none")
    device = next(network.parameters()).device
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", float(group["lr"]))
    if accumulate > 1 or several():
        check_parts(network)
    if accumulate > 1:
        accumulated(network, accumulate)
    call: nn.Module = network
    if several():
        share_batch_statistics(network)
        call = data_parallel(network, device)
    return Step(
        network,
        call=call,
        optimizer=optimizer,
        meter=Meter(device, batch_size),
        precision=precision,
        scaler=torch.amp.GradScaler(device.type) if precision == torch.float16 else None,
        clip=clip,
        average=None if average_decay is None else WeightAverage(network.model, average_decay),
        recorder=recorder,
    )


def captured(step: Step, accumulate: int) -> CapturedStep | None:
    """The step in its captured form; None where it cannot be captured."""
    if not can_capture(step, accumulate, rank_and_count()[1]):
        return None
    make_capturable(step.optimizer, next(step.network.parameters()).device)
    return CapturedStep(step)


def precision_of(wanted: str, device: torch.device) -> torch.dtype:
    """The precision by its name; "auto" is bf16 on CUDA."""
    if wanted == "auto":
        wanted = "bf16" if device.type == "cuda" else "float32"
    if wanted not in PRECISIONS:
        raise ValueError(f"precision must be auto, {', '.join(PRECISIONS)}; got {wanted!r}")
    return PRECISIONS[wanted]
