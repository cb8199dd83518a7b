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
from hardsight.language.scoring import IGNORED
from hardsight.validation import check_count

DYNAMICS_SCORES = (
    "loss_mean", "loss_last", "avh_mean", "avh_last", "avh_slope", "angular_margin_mean", "angular_margin_last", "aum",
    "margin_last", "confidence_mean", "variability", "correctness", "forgetting_events", "learning_events",
    "first_learned",
)  # fmt: skip
# Logits measured at a time: they and their cosines stay in the last cache of a CPU.
_ELEMENTS = 2**20
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
    def update(
        self, numbers: Tensor, labels: Tensor, features: Tensor, head: LanguageHead, products: Tensor | None = None
    ) -> None:
        """Record a step: token numbers and labels [batch, length], features [batch, length, dim].

        `products` are what the head's linear layer made of the features, where it did so; in single precision they
        save the matrix product. A token that does not follow the one before it in its own document, as at a seam of
        packed ones, is left out.
        """
        rows, document = self._chosen(numbers, labels, head.causal)
        numbers, labels = numbers.flatten()[rows], labels.flatten()[rows]
        features = features.flatten(0, 1)
        # A causal model predicts a token from the place before it.
        rows = rows - int(head.causal)
        found = self._measured(features, rows, labels, head, None if products is None else products.flatten(0, 1))
        self.documents.update_measured(document, torch.zeros_like(document), found)
        if self.tokens is not None:
            self.tokens.update_measured(numbers, labels, found)

    def _chosen(self, numbers: Tensor, labels: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
        """The places of a batch that are measured, and the documents of their tokens."""
        self.starts = self.starts.to(numbers.device)
        # The last start that is not behind the number; -1, where there is no token, belongs to none.
        document = torch.bucketize(numbers, self.starts, right=True) - 1
        inside = document.clamp(0, len(self.starts) - 2)
        place, length = numbers - self.starts[inside], self.starts[inside + 1] - self.starts[inside]
        step = (length // _FEWEST).clamp(1, self.every)
        chosen = (numbers >= 0) & (labels != IGNORED) & ((place + self.documents.epoch) % step == 0)
        if causal:
            chosen[:, 0] = False
            chosen[:, 1:] &= (numbers[:, 1:] == numbers[:, :-1] + 1) & (place[:, 1:] > 0)
        rows = chosen.flatten().nonzero().squeeze(1)
        return rows, document.flatten()[rows]

    def _measured(
        self, features: Tensor, rows: Tensor, labels: Tensor, head: LanguageHead, products: Tensor | None
    ) -> Measured:
        """The measures of some rows of a batch, a few at a time in the same memory."""
        weight, bias = widen(head.linear.weight), head.linear.bias
        lengths = torch.linalg.vector_norm(weight, dim=1)
        if products is not None and products.dtype != weight.dtype:
            # Half-precision products are too coarse for an angle.
            products = None
        count, wanted = max(1, _ELEMENTS // head.size), self.documents.measures
        of_angles, others = (tuple(one for one in wanted if (one in ANGULAR) == angular) for angular in (True, False))
        memory, scratch = (weight.new_empty(min(count, len(rows)), head.size) for _ in range(2))
        parts = []
        for some, tokens in zip(rows.split(count), labels.split(count), strict=True):
            part, here = widen(features[some]), memory[: len(some)]
            if products is not None:
                torch.index_select(products, 0, some, out=here)
            else:
                torch.mm(part, weight.T, out=here)
                here += 0.0 if bias is None else bias
            cosines = Cosines(torch.linalg.vector_norm(part, dim=1), lengths, bias)
            if head.cap is None and head.scale == 1.0:
                parts.append(measure(here, tokens, wanted, cosines, consume=True, scratch=scratch[: len(some)]))
                continue
            # Angles from the products, the rest from what the model makes of them.
            angles = measure(here, tokens, of_angles, cosines, scratch=scratch[: len(some)])
            rest = measure(head.shaped(here), tokens, others, consume=True, scratch=scratch[: len(some)])
            by_name = dict(zip((*of_angles, *others), (*angles.values, *rest.values), strict=True))
            parts.append(Measured([by_name[name] for name in wanted], rest.correct, angles.sound & rest.sound))
        columns = [torch.cat(one) for one in zip(*(part.values for part in parts), strict=True)]
        return Measured(columns, *(torch.cat([getattr(part, name) for part in parts]) for name in ("correct", "sound")))

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


class TokenRecorderCallback(RecordingCallback):
    """Records the tokens of every training step."""

    def watch(self, model: nn.Module, hooks: ExitStack) -> None:
        """Register the hooks."""
        head, carried, seen = language_head(model), dict[str, Tensor](), dict[str, Tensor]()
        backbone: nn.Module = head.model.base_model  # type: ignore[assignment]

        def at_head(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            seen.update(head=inputs[0].detach(), products=output.detach())

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
            shape = given[LABEL].shape
            here = next(
                (one for one in ("head", "backbone") if one in features and features[one].shape[:2] == shape), ""
            )
            if not here or (here == "backbone" and not head.causal):
                raise ValueError(
                    f"model must give its head the features of every token, {list(shape)}; "
                    f"got {[list(one.shape) for one in features.values()]}"
                )
            # A fused loss does not call the head: then the backbone's output is what it would be given.
            products = features["products"] if here == "head" else None
            self.recorder.update(given[NUMBER], given[LABEL], features[here].detach(), head, products)

        for handle in (
            take_out(head.model, (NUMBER, LABEL), carried),
            head.linear.register_forward_hook(at_head),
            backbone.register_forward_hook(at_backbone),
            head.model.register_forward_hook(record_step),
        ):
            hooks.callback(handle.remove)


def record(trainer: Any, starts: np.ndarray, **options: Any) -> TokenDynamics:
    """Let a `Trainer` or `SFTTrainer` record: wraps its collator and adds the callback. Options as `TokenDynamics`."""
    dynamics = TokenDynamics(starts, language_head(trainer.model).size, **options)
    trainer.data_collator = TokenCollator(trainer.data_collator)
    trainer.add_callback(TokenRecorderCallback(dynamics))
    return dynamics
