"""`score`: any of the registered scores for a whole data set, in chunks; and `score_rows`, which is the same in parts.

A matrix product rounds a row otherwise among few rows than among many, by several threads than by one, and where a row
does not begin with a register of the processor. In `score_rows` every product has as many rows, the last ones zeros
where there are no more samples, is made by one thread, and of rows that fill registers: so shards, batches, threads and
processes of any number agree to the bit.
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from torch import Tensor

from hardsight.class_shards import ShardedHead
from hardsight.distributed import together, wait_for_all
from hardsight.geometry import widen
from hardsight.hardness.columns import ClassSummary
from hardsight.hardness.registry import Score, model_scores, named_scores, parts_of
from hardsight.hardness.sharded import summarise_shards
from hardsight.hardness.summary import SAFE_NORMS, Head, summarise, summarise_chunk
from hardsight.validation import check_count, check_features_and_weight, check_finite, check_labels

DEFAULT_SCORES = ("avh", "confidence", "norm")
# Elements of one block (samples x classes), and bounds of its samples.
_ELEMENTS, _FEWEST, _MOST = 2**20, 64, 4096
# A row's numbers are a multiple of these.
_REGISTER = 16


def score(
    features: Tensor, weight: Tensor | ShardedHead, labels: Tensor | None = None, bias: Tensor | None = None,
    scores: Sequence[str] = DEFAULT_SCORES, *, chunk: int | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Each named score of every sample, on the features' device; without labels, against the predicted class.

    Equals the score's own definition, but works through chunks of samples (`chunk` rows at a time), so the matrix of
    all samples x all classes never exists. With a `ShardedHead` as weight, each process gives its own samples.

    >>> import torch
    >>> features, weight = torch.eye(3), torch.eye(3)
    >>> score(features, weight, torch.tensor([0, 1, 0]), scores=("avh",))
    {'avh': tensor([0.0000, 0.0000, 0.5000])}
    """
    chosen = choose_scores(scores)
    if isinstance(weight, ShardedHead):
        return _score_by_shards(features, weight, labels, bias, chosen, chunk)
    check_features_and_weight(features, weight, bias)
    if labels is not None:
        check_labels(labels, len(features), len(weight))
    if chunk is not None:
        check_count("chunk", chunk, "the samples worked on at a time")
    summary = summarise(features, weight, labels, bias, parts=parts_of(chosen), chunk=chunk)
    return scores_of_summary(summary, chosen)


def _score_by_shards(
    features: Tensor, head: ShardedHead, labels: Tensor | None, bias: Tensor | None, chosen: list[Score],
    chunk: int | None,
) -> dict[str, Tensor]:  # fmt: skip
    """The same where every process has a part of the classes and its own samples."""
    whole = [one.name for one in chosen if one.tags]
    with together(functools.partial(wait_for_all, group=head.group)):
        if bias is not None:
            raise ValueError("bias must be None with a ShardedHead, which has its own; got a tensor")
        if whole:
            raise ValueError(f"scores must be of samples by themselves with a ShardedHead; {whole[0]!r} is of all")
        check_finite("features", features)
        if labels is not None:
            check_labels(labels, len(features), head.classes)
        if chunk is not None:
            check_count("chunk", chunk, "the samples worked on at a time")
    return scores_of_summary(summarise_shards(features, head, labels, parts_of(chosen), chunk), chosen)


def choose_scores(names: Iterable[str]) -> list[Score]:
    """The scores of these names; unknown ones raise, and those that need more than one forward pass."""
    chosen = named_scores(names, [one.name for one in model_scores()])
    for one in chosen:
        if one.from_summary is None:
            needs = "a Recorder of a training run" if one.measures is not None else ", ".join(one.needs)
            also = f": call hardsight.hardness.{one.definition.__name__}" if "features" in one.needs else ""
            raise ValueError(
                f"scores must be ones that a model gives sample by sample; {one.name!r} needs {needs}{also}"
            )
    return chosen


def scores_of_summary(summary: ClassSummary, chosen: Iterable[Score]) -> dict[str, Tensor]:
    """Each score's values from a summary that holds its parts."""
    return {one.name: one.from_summary(summary) for one in chosen if one.from_summary is not None}


def block_rows(classes: int) -> int:
    """How many samples are multiplied together: a power of two."""
    return max(_FEWEST, min(_MOST, 1 << (max(1, _ELEMENTS // classes).bit_length() - 1)))


def block_head(weight: Tensor, bias: Tensor | None) -> Head:
    """The head of `score_rows`: its rows fill registers."""
    return Head(_filled(weight, len(weight)), bias)


@torch.no_grad()
def score_rows(
    features: Tensor, head: Head, labels: Tensor | None, chosen: Sequence[Score]
) -> tuple[dict[str, Tensor], Tensor]:
    """`predicted` and the scores of every sample by name, and which samples have them: none with NaN or infinity has.

    What stands for a sample without scores is not defined. Without labels, against the predicted class.
    """
    rows = block_rows(len(head.weight))
    columns: dict[str, Tensor] = {}
    usable, extreme = (torch.full((len(features),), value, device=features.device) for value in (True, False))

    def put(places: slice | Tensor, block: Tensor, by: Head) -> None:
        # At most `rows` samples, from a product of so many.
        given = None if labels is None else F.pad(labels[places], (0, rows - len(block)))
        summary = summarise_chunk(_filled(block, rows), by, given, parts_of(chosen) | {"predicted"})
        for name, values in {"predicted": summary.predicted, **scores_of_summary(summary, chosen)}.items():
            if name not in columns:
                columns[name] = values.new_empty(len(features))
            columns[name][places] = values[: len(block)]

    def score_blocks(starts: Sequence[int], by: Head) -> None:
        for start in starts:
            place = slice(start, start + rows)
            # Widened a block at a time, while it is in the cache.
            block = widen(features[place].detach()).to(by.weight.dtype)
            norms = torch.linalg.vector_norm(block, dim=1)
            odd = ~((norms > SAFE_NORMS[0]) & (norms < SAFE_NORMS[1]))
            if bool(odd.any()):
                usable[place] = block.isfinite().all(1)
                # These are multiplied in another way, with all that are in their block: apart from the others.
                extreme[place] = odd & usable[place] & (block != 0).any(1)
                block = block.masked_fill(odd.unsqueeze(1), 0.0)
            put(place, block, by)

    starts = range(0, max(1, len(features)), rows)
    with _one_thread_a_product(features.device) as threads:
        # The first one alone: it makes the columns.
        score_blocks(starts[:1], head)
        parts = [starts[1 + at :: threads] for at in range(min(threads, len(starts) - 1))]
        if len(parts) > 1:
            # What a head computes in is one thread's.
            heads = [head, *(Head(head.weight, head.bias) for _ in parts[1:])]
            with ThreadPoolExecutor(len(parts), initializer=torch.set_num_threads, initargs=(1,)) as pool:
                list(pool.map(torch.no_grad()(score_blocks), parts, heads))
        elif parts:
            score_blocks(parts[0], head)
        if bool(extreme.any()):
            for places in extreme.nonzero().squeeze(1).split(rows):
                put(places, widen(features[places].detach()).to(head.weight.dtype), head)
    return columns, usable


@contextlib.contextmanager
def _one_thread_a_product(device: torch.device) -> Iterator[int]:
    """Several blocks at once instead, as many as torch may have threads."""
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield 1
        return
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


def _filled(matrix: Tensor, rows: int) -> Tensor:
    """With zeros below, as many rows as a block has, and beside them, to the end of a register."""
    beside, below = -matrix.shape[1] % _REGISTER, rows - len(matrix)
    return F.pad(matrix, (0, beside, 0, below)) if beside or below else matrix
