"""One optimiser step: forward, loss, backward, update, weight average, sums of the epoch and the recorder.

One function of tensors that reads no value, so that it can be captured whole on a GPU (see `feed`).
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hardsight.distributed import rank_and_count, several
from hardsight.losses.accumulation import AccumulatedRescaling
from hardsight.losses.automatic import AutomaticRescaling
from hardsight.losses.rescaling import GradientRescaling
from hardsight.losses.terms import label_count
from hardsight.training.checkpoints import load_optimizer
from hardsight.training.evaluation import gather
from hardsight.training.network import IGNORED, Batch, BatchShare, Network, WeightAverage, same_weights
from hardsight.training.progress import Meter
from hardsight.training.schedules import Plan, Position, Steps


@dataclass
class Step:
    """Parts of a step. `call` is the network as it is called: wrapped for several processes, compiled, or itself."""

    network: Network
    call: nn.Module
    optimizer: torch.optim.Optimizer
    meter: Meter
    precision: torch.dtype = torch.float32
    scaler: torch.amp.GradScaler | None = None
    clip: float | None = None
    average: WeightAverage | None = None
    recorder: Any = None
    # What was last written to a learning rate on the device: writing it again would be a launch for nothing.
    _rates: dict[int, float] = field(default_factory=dict)

    def __call__(self, group: Sequence[Batch]) -> None:
        """Take one step on a group of batches: the gradient is that of all its samples at once."""
        parts = self.parts([labels for _, labels, _ in group])
        for index, (batch, part) in enumerate(zip(group, parts, strict=True), start=1):
            # Several processes average the gradients of a group once, after its last batch.
            hold = None if index == len(group) else getattr(self.call, "no_sync", None)
            with contextlib.nullcontext() if hold is None else hold():
                self._follow(batch, part)
        self.update()

    def _follow(self, batch: Batch, part: BatchShare) -> None:
        images, labels, ids = batch
        with torch.autocast(images.device.type, self.precision, enabled=self.precision != torch.float32):
            seen = self.call(images, labels, ids, part)
        followed = seen.losses.followed
        if self.scaler is not None:
            # Without the factor for the average over processes, which `update` brings back: twice as large as in one
            # process, a gradient in fp16 would overflow where that one's does not, and the step be left out.
            followed = self.scaler.scale(followed / rank_and_count()[1])
        followed.backward()
        self.account(seen.losses.reported, seen.logits, seen.features, labels, ids, part.known)

    @torch.no_grad()
    def account(
        self,
        loss: Tensor,
        logits: Tensor,
        features: Tensor | None,
        labels: Tensor,
        ids: Tensor | None,
        known: Tensor | None = None,
    ) -> None:
        """Count a batch in: the sums of the epoch, and the recorder; `known` as the meter has it."""
        self.meter.add(loss, logits, labels, ids, known)
        if self.recorder is None:
            return
        head, lengths = self.network.head if features is not None else None, {}
        if features is not None and head is not None and type(head).forward is nn.Linear.forward:
            # Of any other layer the logits are no products of features and weights, and have no cosines.
            norms = (torch.linalg.vector_norm(rows.float(), dim=1) for rows in (features, head.weight))
            lengths = dict(zip(("features_norm", "weight_norm"), norms, strict=True)) | {"bias": head.bias}
        self.recorder.update(ids, logits, labels, **lengths)

    def update(self) -> None:
        """Follow the gradients that the parameters hold, and let go of them."""
        if several():
            for name, parameter in self.network.named_parameters():
                if parameter.requires_grad and parameter.grad is None:
                    # The average over the processes would wait for it for ever.
                    raise ValueError(
                        "every parameter must have a part in the loss where several processes train, or be set aside "
                        f"by requires_grad_(False); {name} has none"
                    )
            if self.scaler is not None:
                held = [parameter.grad for parameter in self.network.parameters() if parameter.grad is not None]
                torch._foreach_mul_(held, rank_and_count()[1])
        if self.clip is not None:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.clip)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update()
        self.meter.steps += 1

    def follow(self, plan: Plan, position: Position) -> None:
        """Set the learning rate, beta1 and the weight of the feature loss to what the plan says for this position."""
        factor = plan.learning_rate(position)
        beta1 = None if plan.beta1 is None else plan.beta1(position)
        for group in self.optimizer.param_groups:
            rate = factor * group["initial_lr"]
            if not isinstance(group["lr"], Tensor):
                group["lr"] = rate
            elif self._rates.get(id(group)) != rate:
                group["lr"].fill_(rate)
                self._rates[id(group)] = rate
            if beta1 is not None:
                if "betas" not in group:
                    raise ValueError("plan.beta1 needs an optimiser with betas, Adam or AdamW")
                group["betas"] = (beta1, group["betas"][1])
        self.network.objective.scale_features(plan.feature_loss(position))

    def settings(self) -> list[dict[str, Any]]:
        """The optimiser's settings but the learning rate: numbers that a captured step holds as constants."""
        left_out = ("params", "lr", "initial_lr")
        groups = self.optimizer.param_groups
        return [{key: value for key, value in group.items() if key not in left_out} for group in groups]

    def parts(self, group: Sequence[Tensor]) -> list[BatchShare]:
        """How much each batch of labels counts in a step of all batches of the group, in all processes."""
        if len(group) == 1 and not several():
            return [BatchShare()]
        objective, processes = self.network.objective, rank_and_count()[1]
        wide = torch.float32 if group[0].device.type == "mps" else torch.float64
        # A mean runs over the samples that have a label, or over what the loss makes of them.
        known = torch.stack([(labels != IGNORED).sum() for labels in group]).to(wide)
        counted = [
            torch.stack([label_count(loss, labels) for labels in group]).to(wide)
            for loss in (objective.loss, objective.feature_loss)
        ]
        rows = torch.tensor([len(labels) for labels in group], dtype=wide, device=known.device)
        counts = torch.stack([known, *counted, rows])
        batches = counts.clone()
        if several():
            dist.all_reduce(batches)
        step = batches.sum(1, keepdim=True)
        of_step = counts * processes / step.where(step != 0, 1.0)
        of_batch = counts / batches.where(batches != 0, 1.0)
        of_rows = step[3, 0] if len(group) > 1 else None
        return [
            BatchShare(of_step[:3, at], of_batch[:3, at], batches[0, at], rows[at], of_rows, processes)
            for at in range(len(group))
        ]

    def first_bad(self, steps: int, group: Sequence[Any] | None) -> tuple[str, int, list[int]] | None:
        """What is no finite number, from which step on, and the ids of its samples; None where all is well.

        A finite loss can have a gradient that is not: with the `group` of the last of so many `steps` the weights, the
        same in every process, are looked at before a checkpoint takes the place of the last good one.
        """
        found = self.meter.first_bad()
        if found is not None:
            return "the loss is not a finite number at", *found
        if group is None or bool(torch.stack([one.isfinite().all() for one in self.network.parameters()]).all()):
            return None
        # What is not made yet, a `feed.Place`, is made now.
        every = (one[2] if isinstance(one, tuple) else one.batch()[2] for one in group)
        (ids,) = gather([torch.cat([ids.cpu() for ids in every if ids is not None] or [torch.empty(0)])])
        return "the weights are no finite numbers after", steps - 1, ids.tolist()

    def states(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a checkpoint keeps of the step beside the weights: the same in every process, and each process's own."""
        shared = {
            "optimizer": self.optimizer.state_dict(),
            "optimizer_kind": type(self.optimizer).__name__,
            "objective": self.network.objective.state_dict(),
            "average": None if self.average is None else self.average.model.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }
        recorder = None if self.recorder is None else self.recorder.state_dict()
        return shared, {"meter": self.meter.state_dict(), "recorder": recorder}

    def load_states(self, shared: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Go back to what `states` returned."""
        self.network.objective.load_state_dict(shared["objective"])
        load_optimizer(self.optimizer, shared["optimizer"])
        if self.average is not None:
            self.average.model.load_state_dict(shared["average"])
        if self.scaler is not None:
            self.scaler.load_state_dict(shared["scaler"])
        self.meter.load_state_dict(own["meter"])
        if self.recorder is not None:
            self.recorder.load_state_dict(own["recorder"])

    def parts_of(self, shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
        """The parts that these states and this step must have alike: what each has, by name."""
        optimizer = type(self.optimizer).__name__
        return {
            "optimizer": (shared.get("optimizer_kind", optimizer), optimizer),
            "average_decay": (_given(shared["average"]), _given(self.average)),
            "precision fp16": (_given(shared["scaler"]), _given(self.scaler)),
            "recorder": (_given(own["recorder"]), _given(self.recorder)),
        }


class _Accumulated(nn.Module):
    """Gradient rescaling whose sum of weights runs over all parts of a step."""

    mean_over = "step"
    value_over = "labels"

    def __init__(self, loss: GradientRescaling, network: Network) -> None:
        super().__init__()
        self.inner = loss
        self._summed = AccumulatedRescaling(loss, list(network.parameters()))

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self._summed(logits, labels)

    def label_count(self, labels: Tensor) -> Tensor:
        """By what the mean that is reported divides."""
        return label_count(self.inner, labels)


def make_step(
    network: Network,
    optimizer: torch.optim.Optimizer | None = None,
    steps: Steps | None = None,
    *,
    batch_size: int = 1024,
    recorder: Any = None,
) -> Step:
    """The step of a network; `network.connected` is what several processes call."""
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("model must have a parameter that takes a gradient; it has none")
    device, steps = next(network.parameters()).device, steps or Steps()
    optimizer = optimizer or torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", float(group["lr"]))
    objective, parts = network.objective, list(network.objective.modules())
    if steps.accumulate > 1 and any(isinstance(one, AutomaticRescaling) for one in parts):
        raise ValueError(f'accumulate must be 1 with beta and lam "auto"; got {steps.accumulate}')
    by_weight = [one for one in parts if isinstance(one, GradientRescaling) and one.reduction == "weight"]
    if steps.accumulate > 1 and by_weight:
        if by_weight != [objective.loss] or objective.feature_loss is not None:
            # As the sum of weights grows it shrinks every gradient held so far, those of another summand too.
            raise ValueError(
                'accumulate must be 1 where gradient rescaling of reduction "weight" is a part of the loss and not all '
                f'of it (reduction "mean" can be accumulated); got {steps.accumulate}'
            )
        objective.loss = _Accumulated(by_weight[0], network)
    same_weights(network)
    precision = steps.precision_on(device)
    return Step(
        network,
        call=network,
        optimizer=optimizer,
        meter=Meter(device, batch_size),
        precision=precision,
        scaler=torch.amp.GradScaler(device.type) if precision == torch.float16 else None,
        clip=steps.clip,
        average=None if steps.average_decay is None else WeightAverage(network.model, steps.average_decay),
        recorder=recorder,
    )


def _given(part: object) -> str:
    return "not given" if part is None else "given"
