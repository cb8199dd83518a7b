"""Records every document, and on request every token, while Hugging Face's or TRL's trainer trains on them.

dataset, starts = number_tokens(dataset)      # packed by trl.pack_dataset, the numbers are packed too
trainer = Trainer(..., TrainingArguments(..., remove_unused_columns=False), train_dataset=dataset)
dynamics = record(trainer, starts)
trainer.train()
dynamics.documents.table()
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hardsight.dynamics.huggingface import RecordingCallback
from hardsight.dynamics.measures import ANGULAR, Cosines, Measured, measure
from hardsight.dynamics.recorder import Recorder
from hardsight.geometry import widen
from hardsight.language.columns import LABEL, NUMBER, TokenCollator, take_out
from hardsight.language.head import LanguageHead, language_head
from hardsight.language.targets import IGNORED
from hardsight.validation import check_count

DYNAMICS_SCORES = (
    "loss_mean", "loss_last", "avh_mean", "avh_last", "avh_slope", "angular_margin_mean", "angular_margin_last", "aum",
    "margin_last", "confidence_mean", "variability", "correctness", "forgetting_events", "learning_events",
    "first_learned",
)  # fmt: skip
# Tokens measured at a time: a chunk's logits stay in the caches of a CPU.
_CHUNK_ELEMENTS = 2**22
# Of a short document at least this many tokens are measured in an epoch.
_FEWEST = 4


class TokenDynamics:
    """What training does to every document (`documents`) and, where asked for, to every token (`tokens`): recorders.

    A document's measures are the means over its tokens. `every`: of each document every so many-th token is measured
    at a step, others in each epoch, and never fewer than four; 1 measures all. With `tokens` all are measured.
    """

    def __init__(
        self,
        starts: np.ndarray,
        vocabulary: int,
        *,
        every: int = 16,
        tokens: bool = False,
        scores: Sequence[str] = DYNAMICS_SCORES,
        **options: Any,
    ) -> None:
        check_count("every", every, "of so many tokens one is measured")
        self.starts, self.every = torch.as_tensor(starts), 1 if tokens else every
        self.documents = Recorder(len(starts) - 1, vocabulary, scores=scores, **options)
        self.tokens = Recorder(int(starts[-1]), vocabulary, scores=scores, **options) if tokens else None

    @property
    def recorders(self) -> dict[str, Recorder]:
        """Those that record."""
        return {"documents": self.documents} | ({} if self.tokens is None else {"tokens": self.tokens})

    @property
    def started(self) -> bool:
        """Whether anything was recorded or loaded."""
        return self.documents.started

    @torch.no_grad()
    def update(self, numbers: Tensor, labels: Tensor, features: Tensor, head: LanguageHead) -> None:
        """Record a step: token numbers and labels [batch, length], features [batch, length, dim].

        A token that does not follow the one before it in its own document, as at a seam of packed ones, is left out.
        """
        if head.causal:
            before, numbers, labels, features = (
                numbers[:, :-1],
                numbers[:, 1:].contiguous(),
                labels[:, 1:],
                features[:, :-1],
            )
            follows = numbers == before + 1
        else:
            follows = torch.ones_like(numbers, dtype=torch.bool)
        if self.starts.device != numbers.device:
            self.starts = self.starts.to(numbers.device)
        # The last start that is not behind the number; -1, where there is no token, belongs to none.
        document = torch.bucketize(numbers, self.starts, right=True) - 1
        inside = document.clamp(0, len(self.starts) - 2)
        place, length = numbers - self.starts[inside], self.starts[inside + 1] - self.starts[inside]
        step = (length // _FEWEST).clamp(1, self.every)
        chosen = (numbers >= 0) & (labels != IGNORED) & follows & ((place + self.documents.epoch) % step == 0)
        if head.causal:
            chosen &= place > 0
        numbers, labels, document = numbers[chosen], labels[chosen], document[chosen]
        features, weight, bias = features[chosen], widen(head.linear.weight), head.linear.bias
        lengths = torch.linalg.vector_norm(weight, dim=1)
        for rows in torch.arange(len(numbers), device=numbers.device).split(max(64, _CHUNK_ELEMENTS // head.size)):
            part = widen(features[rows])
            measured = measure_tokens(part, weight, bias, labels[rows], lengths, head, self.documents.measures)
            self.documents.update_measured(document[rows], torch.zeros_like(document[rows]), measured)
            if self.tokens is not None:
                self.tokens.update_measured(numbers[rows], labels[rows], measured)

    def end_epoch(self) -> None:
        """End the recorders' epoch."""
        for recorder in self.recorders.values():
            recorder.end_epoch()

    def discard_epoch(self) -> None:
        """Forget what the unfinished epoch recorded."""
        for recorder in self.recorders.values():
            recorder.discard_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to resume."""
        return {name: recorder.state_dict() for name, recorder in self.recorders.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of one with the same arguments."""
        if state.keys() != self.recorders.keys():
            raise ValueError(f"state must be of {', '.join(self.recorders)}; got {', '.join(state) or 'nothing'}")
        for name, recorder in self.recorders.items():
            recorder.load_state_dict(state[name])


def measure_tokens(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tokens: Tensor,
    lengths: Tensor,
    head: LanguageHead,
    wanted: tuple[str, ...],
) -> Measured:
    """The measures of a chunk of tokens: angles from the products, the rest from what the model makes of them."""
    products = nn.functional.linear(features, weight, None if bias is None else bias.to(weight))
    cosines = Cosines(torch.linalg.vector_norm(features, dim=1), lengths, bias)
    if head.cap is None and head.scale == 1.0:
        return measure(products, tokens, wanted, cosines, consume=True)
    of_angles, others = (tuple(one for one in wanted if (one in ANGULAR) == angular) for angular in (True, False))
    angles = measure(products, tokens, of_angles, cosines)
    rest = measure(head.shaped(products), tokens, others, consume=True)
    by_name = dict(zip((*of_angles, *others), (*angles.values, *rest.values), strict=True))
    return Measured([by_name[name] for name in wanted], rest.correct, angles.sound & rest.sound)


class TokenRecorderCallback(RecordingCallback):
    """Records the tokens of every training step."""

    recorder: TokenDynamics

    def watch(self, model: nn.Module, hooks: ExitStack) -> None:
        """Register the hooks."""
        head, carried, seen = language_head(model), dict[str, Tensor](), dict[str, Tensor]()
        backbone: nn.Module = head.model.base_model  # type: ignore[assignment]

        def at_head(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            seen["head"] = inputs[0]

        def at_backbone(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if isinstance(last := getattr(output, "last_hidden_state", None), Tensor):
                seen["backbone"] = last

        def record_step(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            features, given = dict(seen), dict(carried)
            seen.clear()
            carried.clear()
            if not module.training or not torch.is_grad_enabled():
                return
            if not given.keys() >= {NUMBER, LABEL}:
                raise ValueError(
                    f"batches must carry {NUMBER} and {LABEL}: number the tokens of the training set by number_tokens, "
                    "pack it by trl.pack_dataset if it is to be packed, and wrap the collator in TokenCollator"
                )
            self.recorder.update(given[NUMBER], given[LABEL], _features(features, given[LABEL], head), head)

        for handle in (
            take_out(head.model, (NUMBER, LABEL), carried),
            head.linear.register_forward_pre_hook(at_head),
            backbone.register_forward_hook(at_backbone),
            head.model.register_forward_hook(record_step),
        ):
            hooks.callback(handle.remove)


def _features(seen: Mapping[str, Tensor], labels: Tensor, head: LanguageHead) -> Tensor:
    """The head's input at every position, or, where a fused loss does not call it, the backbone's output."""
    for name in ("head", "backbone"):
        if name in seen and seen[name].shape[:2] == labels.shape and (name == "head" or head.causal):
            return seen[name].detach()
    raise ValueError(
        f"model must give its head the features of every token, {list(labels.shape)}; "
        f"got {[list(one.shape) for one in seen.values()]}"
    )


def record(trainer: Any, starts: np.ndarray, **options: Any) -> TokenDynamics:
    """Let a `Trainer` or `SFTTrainer` record: wraps its collator and adds the callback. Options as `TokenDynamics`."""
    dynamics = TokenDynamics(starts, language_head(trainer.model).size, **options)
    trainer.data_collator = TokenCollator(trainer.data_collator)
    trainer.add_callback(TokenRecorderCallback(dynamics))
    return dynamics
