"""Columns with a number for each token, how they travel to the model's forward and no further, and the weighted loss.

A token's number counts the tokens of all documents in order; so it says which document it belongs to and where it
stands in it, wherever packing, padding and shuffling put it.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from hardsight.language.head import language_head
from hardsight.language.scoring import IGNORED
from hardsight.losses.rescaling import linear_gradient_rescaling
from hardsight.names import check_name
from hardsight.validation import check_share

NUMBER, WEIGHT, REFERENCE, LABEL = "token_number", "token_weight", "reference_loss", "token_label"
# What a position without a token holds.
_FILL = {NUMBER: -1, WEIGHT: 0.0, REFERENCE: 0.0}
LOSSES = ("cross_entropy", "gradient_rescaling", "selective")


def number_tokens(dataset: Any) -> tuple[Any, np.ndarray]:
    """The data set with a column `token_number`, and where each document begins in that count, with its end.

    `dataset` is a `datasets.Dataset` or a list of dicts with `input_ids`, one row per document.
    """
    lengths = _lengths(dataset)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    return _with_column(dataset, NUMBER, [list(range(*ends)) for ends in itertools.pairwise(starts.tolist())]), starts


def with_weights(dataset: Any, table: pa.Table, weights: Any) -> Any:
    """The data set with a column `token_weight`: `weights` has one number for each row of `table`.

    Rows are tokens where the table has a `position` (tokens without a row weigh 1), else documents by `document` or
    `id`, whose tokens all weigh the same.
    """
    return _with_values(dataset, table, np.asarray(weights, dtype=np.float32), WEIGHT, 1.0)


def with_reference_loss(dataset: Any, tokens: pa.Table) -> Any:
    """The data set with a column `reference_loss`, from `score_tokens` of the same documents by a reference model."""
    if "log_probability" not in tokens.column_names:
        raise ValueError(f"tokens must have a column 'log_probability'; got {', '.join(tokens.column_names)}")
    return _with_values(dataset, tokens, -tokens.column("log_probability").to_numpy(), REFERENCE, 0.0)


def _with_values(dataset: Any, table: pa.Table, values: np.ndarray, name: str, missing: float) -> Any:
    if values.shape != (table.num_rows,):
        raise ValueError(f"weights must be one number for each of the {table.num_rows} rows; got {list(values.shape)}")
    if not np.isfinite(values).all() or (name == WEIGHT and (values < 0).any()):
        raise ValueError(f"{name} must be finite and not negative; got {values.min()} to {values.max()}")
    lengths = _lengths(dataset)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    document = table.column("document" if "document" in table.column_names else "id").to_numpy()
    if len(document) and not (document.min() >= 0 and document.max() < len(lengths)):
        raise ValueError(
            f"documents must lie in [0, {len(lengths)}), the rows of the data set; "
            f"got {document.min()} to {document.max()}"
        )
    every = np.full(starts[-1], missing, dtype=np.float32)
    if "position" in table.column_names:
        position = table.column("position").to_numpy()
        beyond = position >= lengths[document]
        if beyond.any():
            first = int(beyond.argmax())
            raise ValueError(
                f"positions must lie within the data set's documents; got {position[first]} in document "
                f"{document[first]}, which has {lengths[document[first]]} tokens"
            )
        every[starts[document] + position] = values
    else:
        of_document = np.full(len(lengths), missing, dtype=np.float32)
        of_document[document] = values
        every = np.repeat(of_document, lengths)
    return _with_column(dataset, name, [part.tolist() for part in np.split(every, starts[1:-1])])


def _lengths(dataset: Any) -> np.ndarray:
    rows = dataset["input_ids"] if hasattr(dataset, "add_column") else [row.get("input_ids") for row in dataset]
    if not len(rows) or any(row is None for row in rows):
        raise ValueError("dataset must hold at least one document, each with its input_ids; it does not")
    return np.array([len(row) for row in rows], dtype=np.int64)


def _with_column(dataset: Any, name: str, rows: list[list[Any]]) -> Any:
    if hasattr(dataset, "add_column"):
        return dataset.add_column(name, rows)
    return [{**item, name: row} for item, row in zip(dataset, rows, strict=True)]


class TokenCollator:
    """Any collator, with the columns of this module brought to the shape of its `input_ids`, and a copy of the labels.

    Columns of text, which stay in the items because the Trainer is to remove none, are left out.
    """

    def __init__(self, collator: Callable[..., Any]) -> None:
        self.collator = collator

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The collator's batch with `token_label` and those of the columns that the items carry."""
        names = [name for name in _FILL if name in items[0]]
        plain = [
            {key: one for key, one in item.items() if key not in _FILL and not isinstance(one, str)} for item in items
        ]
        batch = dict(self.collator(plain))
        if "labels" not in batch:
            raise ValueError(f"the collator must make 'labels', one for each token; got keys {sorted(batch)}")
        for name in names:
            batch[name] = _aligned(name, items, batch)
        return batch | {LABEL: batch["labels"].clone()}


def _aligned(name: str, items: Sequence[Mapping[str, Any]], batch: Mapping[str, Any]) -> Tensor:
    """A column as a tensor like `input_ids`: padded on the same side, or one row where the collator made one of all."""
    for item in items:
        length, given = len(item["input_ids"]), len(item[name])
        if given != length:
            raise ValueError(
                f"{name} must have one entry for each of the {length} input_ids; got {given}: cut documents before "
                "their tokens are numbered"
            )
    rows, length = batch["input_ids"].shape
    values = [list(item[name]) for item in items]
    if rows == 1:
        values = [[one for part in values for one in part]]
    mask = batch.get("attention_mask")
    left = mask is not None and mask.ndim == 2 and not bool(mask[:, 0].all())
    out = torch.full((rows, length), _FILL[name], dtype=torch.int64 if name == NUMBER else torch.float32)
    for row, part in enumerate(values):
        out[row, length - len(part) if left else 0 : length if left else len(part)] = torch.tensor(part).to(out.dtype)
    return out


def take_out(module: nn.Module, names: Sequence[str], into: dict[str, Tensor]) -> Any:
    """Let no column of these names reach the model's forward; the latest ones are put `into`. Returns the hook."""

    def hook(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        into.clear()
        into.update({name: kwargs.pop(name) for name in names if name in kwargs})
        return inputs, kwargs

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def weights_by_rank(values: Any, keep: float, *, largest: bool = False) -> np.ndarray:
    """1 for the share `keep` of smallest (or largest) values, 0 for the others; of equal values the first are kept.

    A value that is missing (NaN) is not kept.
    """
    check_share("keep", keep, "the share of rows whose weight is 1")
    numbers = np.asarray(values, dtype=np.float64)
    order = np.argsort(-numbers if largest else numbers, kind="stable")
    weights = np.zeros(len(numbers), dtype=np.float32)
    weights[order[: round(keep * len(numbers))]] = 1.0
    weights[np.isnan(numbers)] = 0.0
    return weights


def weights_by_threshold(values: Any, low: float = -np.inf, high: float = np.inf) -> np.ndarray:
    """1 for values in [low, high], 0 for the others and for missing ones."""
    if not low <= high:
        raise ValueError(f"low must not exceed high; got {low!r} and {high!r}")
    numbers = np.asarray(values, dtype=np.float64)
    return ((numbers >= low) & (numbers <= high)).astype(np.float32)


def weights_by_rescaling(log_probability: Any, *, beta: float = 6.0, lam: float = 0.5) -> np.ndarray:
    """Gradient rescaling's own weights, exp(beta p^lam (1 - p)), divided by their mean (GR, Eq. 6)."""
    p = np.exp(np.asarray(log_probability, dtype=np.float64))
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(
            f"log_probability must lie in [-inf, 0]; got {np.min(log_probability)} to {np.max(log_probability)}"
        )
    logs = beta * p**lam * (1 - p)
    weights = np.exp(logs - logs.max())
    found: np.ndarray = (weights / weights.mean()).astype(np.float32)
    return found


class TokenLoss:
    """A `compute_loss_func` for `Trainer` and `SFTTrainer` that weighs every token by the column `token_weight`.

    "cross_entropy": the weighted mean. "gradient_rescaling": `losses.linear_gradient_rescaling` from the features of
    the head, for which the model makes no logits in training. "selective": cross-entropy on the share `keep` of a
    batch's tokens whose loss exceeds the column `reference_loss` most: those that a reference model shows to be
    learnable (Lin et al. 2024, Rho-1). A batch without the column `token_weight` weighs all tokens by 1. `options` are
    those of gradient rescaling, as `beta` and `lam`.

        loss = TokenLoss(model, "gradient_rescaling", beta=6.0)
        trainer = Trainer(model, ..., compute_loss_func=loss, data_collator=TokenCollator(collator))
    """

    def __init__(self, model: nn.Module, kind: str = "cross_entropy", *, keep: float = 0.6, **options: Any) -> None:
        check_name("kind", kind, LOSSES)
        check_share("keep", keep, "the share of tokens to train on")
        if options and kind != "gradient_rescaling":
            raise ValueError(
                f"options must be given to gradient_rescaling alone; got {', '.join(options)} with {kind!r}"
            )
        self.kind, self.keep, self.options = kind, keep, options
        self.head = language_head(model)
        if kind == "gradient_rescaling" and self.head.cap is not None:
            raise ValueError("model must not cap its logits where gradients are rescaled; got one with a soft cap")
        self._columns: dict[str, Tensor] = {}
        self._features: list[Tensor] = []
        self._hooks = ExitStack()
        self._hooks.callback(take_out(self.head.model, (WEIGHT, REFERENCE), self._columns).remove)
        self._hooks.callback(self.head.linear.register_forward_pre_hook(self._at_head).remove)

    def close(self) -> None:
        """Remove the hooks from the model."""
        self._hooks.close()

    def _at_head(self, module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        # A fused loss of the trainer's own may run the model again for its metrics, without gradients.
        if torch.is_grad_enabled() and self.head.model.training:
            self._features[:] = [inputs[0]]
            if self.kind == "gradient_rescaling":
                return (inputs[0][:1, :1], *inputs[1:])
        return None

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The loss of a batch; `num_items_in_batch`, where given, counts the tokens of all accumulated batches."""
        columns, features = dict(self._columns), list(self._features)
        self._features.clear()
        shift = int(self.head.causal)
        targets = labels[:, shift:]
        there = targets != IGNORED
        tokens = targets[there]
        rows = slice(None, -1 if shift else None)
        weight = (
            columns[WEIGHT][:, shift:][there] if WEIGHT in columns else torch.ones(len(tokens), device=labels.device)
        )
        if self.kind == "gradient_rescaling" and features:
            head, scale = self.head.linear, self.head.scale
            bias = None if head.bias is None else head.bias * scale
            loss = linear_gradient_rescaling(
                features[0][:, rows][there] * scale, head.weight, bias, tokens, sample_weight=weight,
                across_processes=False, **self.options,
            )  # fmt: skip
        else:
            losses = nn.functional.cross_entropy(outputs.logits[:, rows][there].float(), tokens, reduction="none")
            if self.kind == "selective":
                if REFERENCE not in columns:
                    raise ValueError(
                        f"batches must carry {REFERENCE}: add it by with_reference_loss, and TokenCollator"
                    )
                excess = losses.detach() - columns[REFERENCE][:, shift:][there]
                weight = weight * most_learnable(excess, self.keep, weight > 0)
            loss = (weight * losses).sum() / weight.sum().clamp(min=torch.finfo(torch.float32).tiny)
        # A mean over the weights of this batch, in its share of the tokens that are accumulated.
        return loss if num_items_in_batch is None else loss * (len(tokens) / num_items_in_batch)


def most_learnable(excess: Tensor, keep: float, among: Tensor) -> Tensor:
    """1 for the share `keep` of tokens with the largest excess loss, of those `among` which to choose; 0 for others."""
    chosen = torch.zeros_like(excess)
    count = round(keep * int(among.sum()))
    order = torch.where(among, excess, -torch.inf).argsort(descending=True, stable=True)
    chosen[order[:count]] = 1.0
    return chosen
