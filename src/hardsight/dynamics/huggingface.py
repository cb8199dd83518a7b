"""Hugging Face: the data set and the collator carry the ids, and a callback records every training step.

    trainer = Trainer(
        model,
        TrainingArguments(..., remove_unused_columns=False),
        train_dataset=WithIds(data),
        data_collator=IdCollator(),
        callbacks=[RecorderCallback(recorder)],
    )

The ids (and the labels, which a Trainer with its own loss does not give the model) are in the batch under names of
our own; a hook removes them before the model's forward, which needs no change.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from hardsight.dynamics.recorder import Recorder
from hardsight.heads import observe
from hardsight.records import atomic_path

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, default_data_collator
except ImportError as error:
    raise ImportError("the Hugging Face adapter needs transformers: pip install transformers") from error

ID, LABEL = "sample_id", "sample_label"


class WithIds(Dataset[dict[str, Any]]):
    """A map-style data set whose items also carry their index as `sample_id`."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {**self.data[index], ID: int(index)}


class IdCollator:
    """Any collator, with the ids and a copy of the labels added to its batch.

    Columns of text, which stay in the items because the Trainer is to remove none, are left out where the collator
    cannot take them, and out of the batch always: no model does.
    """

    def __init__(self, collator: Callable[..., Any] = default_data_collator) -> None:
        self.collator = collator

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The collator's batch, with `sample_id` and `sample_label`."""
        if any(ID not in item for item in items):
            raise ValueError(f"items must carry {ID!r}: wrap the data set in WithIds; got keys {sorted(items[0])}")
        plain = [{key: value for key, value in item.items() if key != ID} for item in items]
        text = {key for item in plain for key, value in item.items() if _is_text(value)}
        try:
            batch = self.collator(plain)
        except (ValueError, TypeError):
            if not text:
                raise
            batch = self.collator([{key: value for key, value in item.items() if key not in text} for item in plain])
        batch = {key: value for key, value in batch.items() if not _is_text(value)}
        if "labels" not in batch:
            raise ValueError(f"the collator must make 'labels', the class of each sample; got keys {sorted(batch)}")
        return batch | {ID: torch.tensor([item[ID] for item in items]), LABEL: batch["labels"]}


def _is_text(value: Any) -> bool:
    """Text, or a list of it, however deep."""
    if isinstance(value, list | tuple):
        return bool(value) and all(_is_text(one) for one in value)
    return isinstance(value, str | bytes)


class RecordingCallback(TrainerCallback):
    """Ends the epochs of a `Recorder`, or of several as one, and saves them beside every checkpoint.

    `watch` of a subclass records the steps.

    The files are `dynamics.pt` (of process 1 `dynamics-1.pt`, ...), read again when training resumes from a checkpoint
    in the same output folder; from another folder, load the recording first.
    """

    def __init__(self, recorder: Any) -> None:
        self.recorder = recorder
        self._open = ExitStack()

    def watch(self, model: nn.Module, hooks: ExitStack) -> None:
        """Register the hooks on the model, to be removed with the stack."""
        raise NotImplementedError

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Register the hooks, and load the checkpoint from which training resumes."""
        if args.remove_unused_columns:
            raise ValueError("remove_unused_columns must be False, or the Trainer drops the ids; got True")
        if state.global_step > 0:
            self._load(_file(args, state, args.process_index), _file(args, state, 0))
        self._open.close()
        self.watch(kwargs["model"], self._open)

    def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
        """End the recorder's epoch."""
        self.recorder.end_epoch()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save the recorder beside the checkpoint: each process, since each holds its share of an unfinished epoch."""
        with atomic_path(_file(args, state, args.process_index)) as temporary:
            torch.save(self.recorder.state_dict(), temporary)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Remove the hooks."""
        self._open.close()

    def _load(self, own: Path, first: Path) -> None:
        saved = own if own.exists() else first
        if not saved.exists():
            if self.recorder.started:
                # The caller has loaded it, resuming from another folder.
                return
            raise ValueError(
                f"the record of the epochs before must be in {saved}, beside the checkpoint that training resumes; "
                "it is not there: load it by recorder.load_state_dict, or train from the start"
            )
        self.recorder.load_state_dict(torch.load(saved, weights_only=True, map_location="cpu"))
        if saved != own:
            # More processes than before: finished epochs are equal in all, an unfinished one is not.
            self.recorder.discard_epoch()


class RecorderCallback(RecordingCallback):
    """Records what the head computes in every training step; `recorder.table()` afterwards has the scores."""

    def __init__(self, recorder: Recorder, *, head: str | None = None) -> None:
        super().__init__(recorder)
        self.head = head

    def watch(self, model: nn.Module, hooks: ExitStack) -> None:
        """Register the hooks on the model, to be removed with the stack."""
        carried: list[Tensor] = []

        def take_out(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            carried[:] = [kwargs.pop(name) for name in (ID, LABEL) if name in kwargs]
            return inputs, kwargs

        hooks.callback(model.register_forward_pre_hook(take_out, with_kwargs=True).remove)
        seen = hooks.enter_context(observe(model, self.head))

        def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if len(carried) == 2 and module.training:
                self.recorder.update_seen(*carried, seen)
            carried.clear()

        hooks.callback(model.register_forward_hook(record).remove)


def _file(args: TrainingArguments, state: TrainerState, process: int) -> Path:
    folder = Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"
    return folder / (f"dynamics-{process}.pt" if process else "dynamics.pt")
