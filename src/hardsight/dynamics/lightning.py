"""Lightning: a callback that records every training step and is saved in Lightning's checkpoints."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from hardsight.dynamics.recorder import Recorder
from hardsight.heads import Seen, observe

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError("the Lightning callback needs lightning: pip install lightning") from error

Unpack = Callable[[Any], tuple[Tensor, Tensor]]


def ids_and_labels(batch: Any) -> tuple[Tensor, Tensor]:
    """Ids and labels of a batch `(inputs, labels, ids)`, or of a mapping with `id` and `label`."""
    if isinstance(batch, Mapping) and {"id", "label"} <= batch.keys():
        return batch["id"], batch["label"]
    if isinstance(batch, tuple | list) and len(batch) == 3:
        return batch[2], batch[1]
    shown = f"keys {sorted(batch)}" if isinstance(batch, Mapping) else f"{type(batch).__name__}"
    raise ValueError(
        f"batch must be (inputs, labels, ids) or a mapping with 'id' and 'label', or unpack be given; got {shown}"
    )


class RecorderCallback(Callback):
    """Records what the head computes in every training step; `recorder.table()` afterwards has the scores.

    `unpack` returns the ids and labels of a batch. `model` names the submodule whose output are the logits (by default
    the module's only child with weights, else the module itself), `head` its final linear layer where that is not
    clear. Angles are recorded where the head is linear.
    """

    def __init__(
        self, recorder: Recorder, *, unpack: Unpack = ids_and_labels, model: str | None = None, head: str | None = None
    ) -> None:
        self.recorder, self.unpack, self.model, self.head = recorder, unpack, model, head
        self._open = ExitStack()
        self._seen: Seen | None = None
        self._waiting: tuple[Tensor, Tensor] | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Register the hooks."""
        self._seen = self._open.enter_context(observe(self._observed(pl_module), self.head))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Keep the batch's ids and labels."""
        self._waiting = self.unpack(batch)

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Record the forward that just ran: now, while the head's weights are still those that made the logits."""
        if self._waiting is not None and self._seen is not None:
            try:
                _ = self._seen.name
            except RuntimeError:
                names = ", ".join(name for name, _ in pl_module.named_children())
                raise ValueError(
                    f"model must name the submodule whose output are the logits, out of {names}; the step does not "
                    f"call {self.model or 'the module itself'}"
                ) from None
            self.recorder.update_seen(*self._waiting, self._seen)
        self._waiting = None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the recorder's epoch."""
        self.recorder.end_epoch()

    def on_train_end(self, *_: Any) -> None:
        """Remove the hooks."""
        self._open.close()

    def on_exception(self, *_: Any) -> None:
        """Remove the hooks."""
        self._open.close()

    def state_dict(self) -> dict[str, Any]:
        """The recorder's state, for Lightning's checkpoint: of all processes, since only the first one's is written."""
        return self.recorder.shared_state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        if state_dict:
            self.recorder.load_shared_state_dict(state_dict)

    def _observed(self, module: LightningModule) -> nn.Module:
        if self.model is not None:
            return module.get_submodule(self.model)
        # A training step need not call the module's own forward, but it does call that of the network it holds.
        children = [child for child in module.children() if next(child.parameters(), None) is not None]
        return children[0] if len(children) == 1 else module
