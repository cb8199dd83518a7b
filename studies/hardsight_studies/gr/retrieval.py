"""Retrieval of people across cameras: tracklets ranked by cosine, mean average precision and CMC.

As MARS evaluates (Zheng et al. 2016, after Market-1501): from a query's ranking everything of the same person seen by
the same camera is taken out, and so is junk (identity -1: detections of nobody in particular). What is left of the
query's person is a match; distractors (identity 0) and other people are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hardsight.geometry import directions

JUNK = -1


class Tracklets(NamedTuple):
    """One row a tracklet: its number, who it shows, who saw it, and its feature of length 1."""

    numbers: Int[Tensor, "tracklets"]
    identities: Int[Tensor, "tracklets"]
    cameras: Int[Tensor, "tracklets"]
    features: Float[Tensor, "tracklets dim"]


def average_tracklets(
    features: Float[Tensor, "frames dim"],
    tracklets: Int[Tensor, "frames"],
    identities: Int[Tensor, "frames"],
    cameras: Int[Tensor, "frames"],
) -> Tracklets:
    """The mean feature of each tracklet's frames, scaled to length 1; tracklets in the order of their numbers."""
    numbers, place = tracklets.unique(return_inverse=True)
    counts = place.bincount(minlength=len(numbers))
    sums = features.new_zeros(len(numbers), features.shape[1]).index_add_(0, place, features)
    first = torch.full((len(numbers),), len(place), device=place.device)
    first.scatter_reduce_(0, place, torch.arange(len(place), device=place.device), "amin")
    for name, column in (("identity", identities), ("camera", cameras)):
        odd = (column != column[first][place]).nonzero()
        if len(odd):
            raise ValueError(f"tracklets must have one {name} each; {int(tracklets[odd[0]])} has several")
    return Tracklets(numbers, identities[first], cameras[first], directions(sums / counts.unsqueeze(1)))


@dataclass(frozen=True)
class Retrieval:
    """How well people are found again. `cmc[k]`: share of queries with a match among the first k.

    `average_precisions`: one a query, NaN for a query without any match in the gallery; those, `unmatched` in number,
    count nowhere.
    """

    mean_average_precision: float
    cmc: dict[int, float]
    average_precisions: Float[Tensor, "queries"]
    unmatched: int


def retrieve(
    query: Tracklets,
    gallery: Tracklets,
    *,
    ranks: Sequence[int] = (1, 5, 10, 20),
    precision: Literal["steps", "trapezoid"] = "steps",
    queries_at_once: int = 256,
) -> Retrieval:
    """Rank the gallery for every query by cosine; equally similar ones stay in the gallery's order.

    `precision`: the mean of the precisions at the matches ("steps"), or, as in the evaluation code of MARS, at each
    match the mean of the precision there and one place before it, which is 1 before the first ("trapezoid").
    """
    if precision not in ("steps", "trapezoid"):
        raise ValueError(f'precision must be "steps" or "trapezoid"; got {precision!r}')
    if not len(query.numbers) or not len(gallery.numbers):
        raise ValueError("query and gallery must hold at least one tracklet each; got an empty one")
    judged = [
        _judge(query.features[rows], query.identities[rows], query.cameras[rows], gallery, precision)
        for rows in torch.arange(len(query.numbers)).split(queries_at_once)
    ]
    averages, first = (torch.cat(parts) for parts in zip(*judged, strict=True))
    known = ~averages.isnan()
    unmatched = int((~known).sum())
    if unmatched == len(averages):
        raise ValueError("query must hold a person whom another camera saw in the gallery; got none")
    cmc = {rank: float((first[known] <= rank).double().mean()) for rank in ranks}
    return Retrieval(float(averages[known].mean()), cmc, averages, unmatched)


def _judge(
    features: Tensor, identities: Tensor, cameras: Tensor, gallery: Tracklets, precision: str
) -> tuple[Tensor, Tensor]:
    """Average precision of each query, NaN without a match, and the place of its first match, counted from 1."""
    order = (features @ gallery.features.T).argsort(dim=1, descending=True, stable=True)
    same_person = gallery.identities[order] == identities.unsqueeze(1)
    same_camera = gallery.cameras[order] == cameras.unsqueeze(1)
    kept = ~(same_person & same_camera) & (gallery.identities[order] != JUNK)
    hits = same_person & kept
    places, found = kept.cumsum(1).double(), hits.cumsum(1).double()
    at_hit = found / places.clamp_min(1)
    if precision == "trapezoid":
        before = torch.where(places > 1, (found - 1) / (places - 1).clamp_min(1), 1.0)
        at_hit = (at_hit + before) / 2
    matches = hits.sum(1)
    averages = torch.where(matches > 0, (hits * at_hit).sum(1) / matches, torch.nan)
    first = torch.where(hits, places, torch.inf).amin(1)
    return averages, first
