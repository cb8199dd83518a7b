"""`score_tokens`: scores of every token of documents; each token is a sample, the vocabulary its classes."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hardsight.hardness import SCORES, Score, score
from hardsight.hardness.columns import SummaryColumns
from hardsight.hardness.registry import parts_of
from hardsight.hardness.scoring import choose_scores, scores_of_summary
from hardsight.hardness.summary import Head, summarise_outputs
from hardsight.heads import evaluating
from hardsight.language.head import LanguageHead, features_of, language_head
from hardsight.validation import check_count, check_integers

TOKEN_SCORES = ("log_probability", "entropy", "rank", "margin", "avh", "angular_margin", "norm")
IGNORED = -100
# The loss with its sign turned, which is how people know it of tokens.
_LOG_PROBABILITY = {
    "kind": "score",
    "title": "Log-probability (nats)",
    "direction": "larger is easier",
    "range": "[-inf, 0]",
    "source": "minus the cross-entropy",
}
# Elements of a chunk's logits (tokens x vocabulary): on a CPU 16 MiB, as larger ones leave its caches between passes.
_CHUNK_ELEMENTS = {"cpu": 2**22, "cuda": 2**25}
_FEWEST_TOKENS = 64


def score_tokens(
    model: nn.Module,
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    labels: Tensor | None = None,
    scores: Sequence[str] = TOKEN_SCORES,
    *,
    batch_tokens: int = 2**13,
) -> pa.Table:
    """One row per predicted token: document, position, token, one column per score; for Hugging Face models.

    A causal model predicts a token from those before it, so the first of a document has no row; a masked model predicts
    each in its place, and sees it unless `input_ids` hold the mask token there and `labels` the token.
    Positions that `attention_mask` or a label of -100 leaves out have no row. `scores` are `log_probability` and those
    of `hardsight.hardness.SCORES` that need one sample. The matrix of tokens x vocabulary never exists.

    The model runs in evaluation mode where it is, on `batch_tokens` tokens at a time.
    """
    chosen = choose_token_scores(scores)
    check_count("batch_tokens", batch_tokens, "tokens that the model reads at a time")
    head = language_head(model)
    known = head.model.get_input_embeddings().num_embeddings  # type: ignore[operator]
    mask = check_tokens(input_ids, attention_mask, labels, known, head.size)
    step = max(1, batch_tokens // input_ids.shape[1])
    parts: list[pa.RecordBatch] = []
    with evaluating(head.model):
        for start in range(0, len(input_ids), step):
            rows = slice(start, start + step)
            own = None if labels is None else labels[rows]
            parts.append(score_batch(head, input_ids[rows], mask[rows], own, chosen, first_document=start))
    table = pa.Table.from_batches(parts)
    if not len(table):
        where = ", after the first of a document" if head.causal else ""
        raise ValueError(
            f"attention_mask and labels must leave a token to score{where}; got none in {len(input_ids)} documents"
        )
    return table


def choose_token_scores(names: Iterable[str]) -> list[str]:
    """Names of scores that one token by itself has; others raise."""
    names = [names] if isinstance(names, str) else list(names)
    for one in choose_scores(["loss" if name == "log_probability" else name for name in names]):
        if one.tags:
            raise ValueError(f"scores must be ones of a token by itself; {one.name!r} {', '.join(sorted(one.tags))}")
    return list(dict.fromkeys(names))


def score_batch(
    head: LanguageHead,
    input_ids: Tensor,
    mask: Tensor,
    labels: Tensor | None,
    scores: Sequence[str],
    first_document: int = 0,
) -> pa.RecordBatch:
    """Scores of one batch, which the model reads at once; arguments are checked and the model is in evaluation mode."""
    device = head.linear.weight.device
    input_ids, mask = input_ids.to(device), mask.to(device)
    given: dict[str, Any] = {"input_ids": input_ids, "attention_mask": mask.long()}
    if (
        head.causal
        and not bool(mask[:, 0].all())
        and "position_ids" in inspect.signature(head.model.forward).parameters
    ):
        # Padding on the left moves no token.
        given["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
    tokens = input_ids if labels is None else labels.to(device)
    there = mask & (tokens != IGNORED)
    if head.causal:
        there[:, 1:] &= mask[:, :-1]
        there[:, :1] = False
    document, column = there.nonzero(as_tuple=True)
    # How many tokens of the document are before it: padding on the left does not count.
    position, token = mask.long().cumsum(1)[document, column] - 1, tokens[document, column].long()
    fields = [pa.field("document", pa.int64()), pa.field("position", pa.int32()), pa.field("token", pa.int32())]
    columns = [document + first_document, position.int(), token.int()]
    found = {}
    if len(token):
        features = features_of(head, **given)
        found = score_rows(head, features[document, column - int(head.causal)], token, scores)
    columns += [found[name].float() if name in found else torch.empty(0) for name in scores]
    fields += score_fields(scores, head.size)
    arrays = [pa.array(one.cpu().numpy(), field.type) for one, field in zip(columns, fields, strict=True)]
    return pa.record_batch(arrays, schema=pa.schema(fields, metadata={"classes": str(head.size)}))


def score_rows(
    head: LanguageHead,
    features: Float[Tensor, "tokens dim"],
    tokens: Int[Tensor, "tokens"],
    scores: Sequence[str],
) -> dict[str, Tensor]:
    """Scores of tokens from the features that predict them."""
    names = ["loss" if name == "log_probability" else name for name in scores]
    weight, bias = head.linear.weight.detach(), head.linear.bias
    if head.cap is None:
        # A factor of all logits is one of the features, and of the bias.
        scaled = features if head.scale == 1.0 else features * head.scale
        found = score(
            scaled, weight, tokens, None if bias is None else bias.detach() * head.scale, names, chunk=_chunk(head)
        )
        if "norm" in found:
            found["norm"] = found["norm"] / head.scale
    else:
        found = _score_capped(head, features, tokens, choose_scores(names))
    return {name: -found["loss"] if name == "log_probability" else found[name] for name in scores}


def _score_capped(head: LanguageHead, features: Tensor, tokens: Tensor, chosen: list[Score]) -> dict[str, Tensor]:
    """Angles from features and weight, the rest from the logits behind the cap: two products a chunk."""
    prepared, parts, columns = Head(head.linear.weight, head.linear.bias), parts_of(chosen), SummaryColumns(len(tokens))
    for rows in torch.arange(len(tokens)).split(_chunk(head)):
        part = features[rows]
        columns.add(summarise_outputs(part, head.logits(part), prepared, tokens[rows], parts, linear=False))
    return scores_of_summary(columns.summary(), chosen)


def _chunk(head: LanguageHead) -> int:
    """How many tokens a chunk has."""
    elements = _CHUNK_ELEMENTS.get(head.linear.weight.device.type, _CHUNK_ELEMENTS["cuda"])
    return max(_FEWEST_TOKENS, elements // head.size)


def score_fields(scores: Sequence[str], vocabulary: int) -> list[pa.Field]:
    """The scores' columns."""
    about = [_LOG_PROBABILITY if one == "log_probability" else SCORES[one].describe(vocabulary) for one in scores]
    return [pa.field(name, pa.float32(), metadata=said) for name, said in zip(scores, about, strict=True)]


def check_tokens(
    input_ids: Tensor, attention_mask: Tensor | None, labels: Tensor | None, known: int, classes: int
) -> Bool[Tensor, "documents length"]:
    """Ids are [documents, length] in [0, known), labels in [0, classes) or -100; gives the mask as booleans."""
    check_integers("input_ids", input_ids)
    if input_ids.ndim != 2 or input_ids.numel() == 0:
        raise ValueError(f"input_ids must be [documents, length] and not empty; got {list(input_ids.shape)}")
    for name, given in (("attention_mask", attention_mask), ("labels", labels)):
        if given is not None and given.shape != input_ids.shape:
            raise ValueError(
                f"{name} must be of the shape of input_ids, {list(input_ids.shape)}; got {list(given.shape)}"
            )
    _check_range("input_ids", input_ids, (input_ids < 0) | (input_ids >= known), known)
    if labels is not None:
        check_integers("labels", labels)
        _check_range("labels", labels, (labels != IGNORED) & ((labels < 0) | (labels >= classes)), classes)
    if attention_mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    return attention_mask.to(input_ids.device) != 0


def _check_range(name: str, values: Tensor, wrong: Tensor, limit: int) -> None:
    if bool(wrong.any()):
        row, column = (int(one) for one in wrong.nonzero()[0])
        also = " or be -100" if name == "labels" else ""
        raise ValueError(
            f"{name} must lie in [0, {limit}), the model's vocabulary{also}; "
            f"got {int(values[row, column])} in document {row} at position {column}"
        )
