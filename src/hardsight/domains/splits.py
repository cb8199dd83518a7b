"""One domain to test on, the others to train and validate on."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from hardsight.datasets import ArrayDataset
from hardsight.names import check_name


@dataclass(frozen=True)
class Split:
    """Training and validation samples of the other domains, and all samples of the one left out."""

    held_out: str
    train: ArrayDataset
    validation: ArrayDataset
    test: ArrayDataset


def leave_one_domain_out(
    data: ArrayDataset, held_out: str, *, validation: float | ArrayDataset = 0.1, generator: torch.Generator
) -> Split:
    """All of `held_out` to test on, the rest to train on but for the share `validation` of each domain and class.

    `validation` may be a data set of its own, as PACS's lists have it: then its samples of the other domains validate,
    and its samples of the domain left out are tested on too.
    """
    if data.domains is None or len(data.domain_names) < 2:
        raise ValueError(f"data must have at least two domains; {data.name} has {max(1, len(data.domain_names))}")
    check_name("held_out", held_out, data.domain_names, "domains")
    if isinstance(validation, ArrayDataset):
        if validation.class_names != data.class_names or validation.domain_names != data.domain_names:
            raise ValueError("validation must have the classes and domains of data, by name and in their order")
        train, kept = _without(data, held_out), _without(validation, held_out)
        test = _joined(data.in_domain(held_out), validation.in_domain(held_out))
    else:
        if not 0 < validation < 1:
            raise ValueError(f"validation must lie in (0, 1), the share of training samples; got {validation!r}")
        rest = _labelled(_without(data, held_out), "training domains")
        places = _share_of_groups(rest, validation, generator)
        train, kept = rest.subset(places[1]), rest.subset(places[0])
        test = data.in_domain(held_out)
    _check_classes(_labelled(train, "training domains"), test, held_out)
    _labelled(kept, "validation samples")
    if not bool((test.labels >= 0).any()):
        raise ValueError(f"held_out must name a domain with labelled samples; {held_out} has none")
    return Split(held_out, train, kept, test)


def _labelled(data: ArrayDataset, called: str) -> ArrayDataset:
    if not len(data):
        raise ValueError(f"the {called} must hold at least one sample; they hold none")
    unknown = int((data.labels < 0).sum())
    if unknown:
        raise ValueError(f"the {called} must be labelled throughout; {unknown} of {len(data)} samples have no label")
    return data


def _without(data: ArrayDataset, held_out: str) -> ArrayDataset:
    assert data.domains is not None
    return data.subset((data.domains != data.domain_names.index(held_out)).nonzero().squeeze(1))


def _joined(one: ArrayDataset, other: ArrayDataset) -> ArrayDataset:
    """Samples of two sets with the same classes; their ids are new, because each set counted its own."""
    assert one.domains is not None
    assert other.domains is not None
    return dataclasses.replace(
        one,
        images=torch.cat([one.images, other.images]),
        labels=torch.cat([one.labels, other.labels]),
        domains=torch.cat([one.domains, other.domains]),
        ids=torch.arange(len(one) + len(other)),
        columns={},
    )


def _share_of_groups(data: ArrayDataset, share: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Places of the share of every domain and class, and the places left; a group of two or more gives at least one."""
    assert data.domains is not None
    order = torch.randperm(len(data), generator=generator)
    groups = (data.domains * data.num_classes + data.labels)[order]
    by_group = order[groups.argsort(stable=True)]
    counts = torch.bincount(groups)
    rank = torch.cat([torch.arange(count) for count in counts.tolist()])
    size = counts.repeat_interleave(counts)
    taken = (share * size).round().clamp_min(1).minimum(size - 1)
    chosen = rank < taken
    return by_group[chosen].sort().values, by_group[~chosen].sort().values


def _check_classes(train: ArrayDataset, test: ArrayDataset, held_out: str) -> None:
    assert train.domains is not None
    for number in train.domains.unique().tolist():
        classes = train.labels[train.domains == number].unique()
        if len(classes) < 2:
            raise ValueError(
                f"every training domain must hold at least two classes; {train.domain_names[number]} has 1"
            )
    unknown = sorted(set(test.labels.unique().tolist()) - set(train.labels.unique().tolist()) - {-1})
    if unknown:
        names = ", ".join(train.class_names[label] for label in unknown)
        raise ValueError(f"the training domains must hold every class of {held_out}; they have no {names}")
