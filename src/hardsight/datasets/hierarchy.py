"""Class hierarchies: fine classes gathered under coarse ones, for labels and for human votes."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int64, Num
from torch import Tensor

from hardsight.files import quoted, read_json


@dataclasses.dataclass(frozen=True)
class Hierarchy:
    """Fine classes, coarse classes, and for each fine class the index of its coarse one."""

    fine_names: tuple[str, ...]
    coarse_names: tuple[str, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.fine_names):
            fine = len(self.fine_names)
            raise ValueError(f"parents must name a coarse class for each of {fine} fine ones; got {len(self.parents)}")
        if not set(self.parents) <= set(range(len(self.coarse_names))):
            raise ValueError(f"parents must lie in [0, {len(self.coarse_names) - 1}]; got {sorted(set(self.parents))}")

    @classmethod
    def from_groups(cls, fine_names: Sequence[str], groups: Mapping[str, Sequence[str]]) -> "Hierarchy":
        """From the fine names in each coarse class, e.g. {"animal": ["cat", "dog"], "vehicle": ["ship"]}."""
        parent = {fine: index for index, members in enumerate(groups.values()) for fine in members}
        missing = [fine for fine in fine_names if fine not in parent]
        unknown = [fine for fine in parent if fine not in fine_names]
        names = sum(len(members) for members in groups.values())
        if missing or unknown or len(parent) != names:
            got = f"missing {quoted(missing)}, unknown {quoted(unknown)}, {names} names in all"
            raise ValueError(f"groups must hold every fine class exactly once; {got}")
        return cls(tuple(fine_names), tuple(groups), tuple(parent[fine] for fine in fine_names))

    def coarsen(self, labels: Int64[Tensor, "*shape"]) -> Int64[Tensor, "*shape"]:
        """The coarse label of each fine one; -1 (no label) stays -1."""
        _check_labels(labels, len(self.fine_names))
        table = torch.tensor([*self.parents, -1], device=labels.device)
        return table[labels]

    def coarsen_votes(self, votes: Num[Tensor, "samples fine"]) -> Num[Tensor, "samples coarse"]:
        """Votes (or probabilities) of each coarse class: the sum over its fine classes, of counts in int64."""
        # As torch sums whole numbers: 300 votes do not fit a byte.
        votes = votes if votes.is_floating_point() else votes.long()
        parents = torch.tensor(self.parents, device=votes.device)
        return votes.new_zeros(len(votes), len(self.coarse_names)).index_add_(1, parents, votes)


def human_selection_frequency(
    votes: Num[Tensor, "samples classes"], labels: Int64[Tensor, " samples"], hierarchy: Hierarchy | None = None
) -> Float[Tensor, " samples"]:
    """Share of people who chose the labelled class (AVH, Definition 3); with a hierarchy, its coarse class (Fig. 19).

    In [0, 1], larger is easier; NaN for a sample without votes or without a label.
    """
    if labels.shape != votes.shape[:1]:
        raise ValueError(f"labels must be one for each of the {len(votes)} samples with votes; got {len(labels)}")
    _check_labels(labels, votes.shape[1])
    # Before any sum: twice 60,000 votes do not fit half precision.
    votes = votes.to(torch.float64)
    if hierarchy is not None:
        votes, labels = hierarchy.coarsen_votes(votes), hierarchy.coarsen(labels)
    chosen = votes.gather(1, labels.clamp_min(0).unsqueeze(1)).squeeze(1)
    return torch.where(labels < 0, torch.nan, chosen / votes.sum(1))


def read_hierarchy(path: Path | str, fine_names: Sequence[str]) -> Hierarchy:
    """A hierarchy of these fine classes from a file as `read_groups` takes it: WordNet's for ImageNet, say."""
    groups = read_groups(path)
    try:
        return Hierarchy.from_groups(fine_names, groups)
    except ValueError as problem:
        raise ValueError(f"{path}: {problem}") from None


def read_groups(path: Path | str) -> dict[str, list[str]]:
    """The fine classes of each coarse one, from JSON ({"coarse": ["fine", ...]}) or CSV (columns fine, coarse)."""
    path = Path(path)
    groups: dict[str, list[str]] = {}
    if path.suffix.lower() == ".json":
        listed = read_json(path)
        sides = list(listed.values()) if isinstance(listed, dict) else [None]
        if not all(isinstance(side, list) and all(isinstance(one, str | int) for one in side) for side in sides):
            raise ValueError(f'{path} must hold {{"coarse": ["fine", ...]}}')
        groups = {coarse: list(map(str, members)) for coarse, members in listed.items()}
    else:
        for fine, coarse in _csv_pairs(path):
            groups.setdefault(coarse, []).append(fine)
    coarse_of: dict[str, str] = {}
    for coarse, members in groups.items():
        for fine in members:
            if coarse_of.setdefault(fine, coarse) != coarse:
                both = f"{quoted(coarse_of[fine])} and {quoted(coarse)}"
                raise ValueError(f"{path} must give every class one coarse class; {quoted(fine)} has {both}")
    return groups


def _csv_pairs(path: Path) -> Iterator[tuple[str, str]]:
    from hardsight.files.plain import read_csv

    table = read_csv(path, column_types=dict.fromkeys(("fine", "coarse"), "string"))
    if not {"fine", "coarse"} <= set(table.column_names):
        raise ValueError(f"{path} must have the columns fine and coarse; got {quoted(table.column_names)}")
    pairs = zip(table["fine"].to_pylist(), table["coarse"].to_pylist(), strict=True)
    for number, (fine, coarse) in enumerate(pairs, start=2):
        if not fine or not coarse:
            raise ValueError(f"{path}, row {number} must name a fine and a coarse class")
        yield fine, coarse


def _check_labels(labels: Tensor, classes: int) -> None:
    if labels.numel() and not -1 <= int(labels.min()) <= int(labels.max()) < classes:
        got = f"{int(labels.min())} to {int(labels.max())}"
        raise ValueError(f"labels must lie in [-1, {classes - 1}], -1 for none; got {got}")
