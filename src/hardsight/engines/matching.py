"""Which of a model's classes are the data's: by number, by name, or as a person says."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hardsight.engines.model_spec import LoadedModel
from hardsight.engines.streaming import reason_of
from hardsight.heads import observe, unwrap

Groups = Mapping[str, Sequence[int | str] | int | str]
"""For each class of the data the model's classes that it means, as numbers or names."""

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Matched:
    """The head's name, the rows of each class of the data (None: the head stays as it is), and the classes' names."""

    model: nn.Module
    head: str
    rows: Rows | None
    names: tuple[str, ...] | None

    @contextmanager
    def reduced(self) -> Iterator[None]:
        """The head reduced to the data's classes, as `class_row` says; as it was after the block."""
        if self.rows is None:
            yield
            return
        layer = unwrap(self.model)[0].get_submodule(self.head)
        before = dict(layer.named_parameters(recurse=False))
        if "weight" not in before:
            raise ValueError(
                f"head must hold its weight as a parameter to be reduced to the data's classes; {self.head!r} makes it "
                "of others (weight norm, say): torch.nn.utils.parametrize.remove_parametrizations ends that"
            )
        try:
            for name in ("weight", "bias"):
                values = before.get(name)
                if values is not None:
                    reduced = torch.stack([class_row(values.detach()[list(each)]) for each in self.rows])
                    setattr(layer, name, nn.Parameter(reduced, requires_grad=False))
            yield
        finally:
            for name, values in before.items():
                setattr(layer, name, values)


def class_row(members: Tensor) -> Tensor:
    """One row for several: the mean of their directions, at the mean of their lengths; of biases the mean.

    A plain mean of many rows is short, because they point apart, and a class of many members would lose to one of few.
    """
    if members.ndim == 1:
        return members.mean()
    if len(members) == 1:
        return members[0]
    lengths = torch.linalg.vector_norm(members, dim=1, keepdim=True)
    direction = (members / lengths.clamp_min(torch.finfo(members.dtype).tiny)).mean(0)
    length: Tensor = torch.linalg.vector_norm(direction)
    member: Tensor = direction * (lengths.mean() / length.clamp_min(torch.finfo(members.dtype).tiny))
    return member


def match_classes(
    loaded: LoadedModel,
    class_names: Sequence[str],
    image: Tensor,
    classes: Groups | None = None,
    labelled: bool = True,
    head: str | None = None,
) -> Matched:
    """Find the rows of the head that belong to the data's classes; `image` is one input, to see the head at work.

    As `classes` says where given; else by name where the model names its classes and has all of the data's; else by
    number where there are equally many and no name says otherwise. Else nobody can tell, and one sentence says so.
    """
    model = loaded.model
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    with torch.no_grad(), observe(model, head) as seen:
        try:
            model(image.unsqueeze(0).to(device))
        except ValueError:
            # Ours, of a head that is not clear.
            raise
        except Exception as error:  # a user's model, timm's assertions
            raise ValueError(
                f"the model does not take images of shape {list(image.shape)} (--size, --mean): {reason_of(error)}"
            ) from None
        name, outputs = seen.name, len(seen.weight)
    if not labelled:
        return Matched(model, name, None, loaded.class_names)
    names = tuple(class_names)
    return Matched(model, name, _matching_rows(names, loaded.class_names or (), outputs, classes), names)


def _matching_rows(names: Sequence[str], own: Sequence[str], outputs: int, classes: Groups | None) -> Rows | None:
    """For each class of the data the rows of the model's head that it is; None where the head is right as it is."""
    wanted, known = [_plain(each) for each in names], _numbers(own)
    few = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
    if classes is not None:
        unknown = sorted(set(classes) - set(names))
        if unknown:
            raise ValueError(f"classes must be named as the data names them, {few}; got {unknown[0]!r}")
        return tuple(_rows(one, classes, known, outputs) for one in names)
    if len(names) == outputs and wanted == [_plain(each) for each in own]:
        return None
    if known and all(each in known for each in wanted):
        if len(set(wanted)) < len(wanted):
            twice = next(each for each in names if wanted.count(_plain(each)) > 1)
            raise ValueError(f"classes must differ by more than case, spaces and underscores; {twice!r} is there twice")
        return tuple((_only(known, each),) for each in names)
    if len(names) != outputs:
        raise ValueError(
            f"the model has {outputs} classes and the data {len(names)} ({few}): "
            "say which belongs to which with --classes, or score against the predictions with --unlabelled"
        )
    moved = next((at for at, one in enumerate(wanted) if at not in known.get(one, [at])), None)
    if moved is not None:
        raise ValueError(
            f"the model does not name all of the data's classes, and {names[moved]!r}, {moved} of the data's, is "
            f"{known[wanted[moved]][0]} of its own: say which belongs to which with --classes"
        )
    return None


def _rows(one: str, classes: Groups, known: Mapping[str, list[int]], outputs: int) -> tuple[int, ...]:
    meant = classes.get(one, ())
    members = meant if isinstance(meant, list | tuple) else (meant,)
    found = [_only(known, at) if isinstance(at, str) and _plain(at) in known else at for at in members]
    if not found or not all(type(at) is int and 0 <= at < outputs for at in found):
        raise ValueError(
            f"classes must list, for each class of the data, numbers or names of the model's {outputs} classes; for "
            f"{one!r} got {meant!r}"
        )
    return tuple(int(at) for at in found)


def _numbers(names: Sequence[str]) -> dict[str, list[int]]:
    """The numbers of the classes of each name: ImageNet has two cranes."""
    found: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        found.setdefault(_plain(name), []).append(at)
    return found


def _only(known: Mapping[str, list[int]], name: str) -> int:
    numbers = known[_plain(name)]
    if len(numbers) > 1:
        listed = " and ".join(map(str, numbers))
        raise ValueError(f"the model names its classes {listed} alike, {name!r}: say which is meant with --classes")
    return numbers[0]


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())
