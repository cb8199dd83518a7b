"""Which of a model's classes are the data's: by number, by name, or as a person says."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hardsight.engines.model_spec import LoadedModel
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
    length = torch.linalg.vector_norm(direction)
    return direction * (lengths.mean() / length.clamp_min(torch.finfo(members.dtype).tiny))


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
    number where there are equally many. Otherwise nobody can tell, and one sentence says so.
    """
    name, outputs = _look_at_head(loaded.model, image, head)
    if not labelled:
        return Matched(loaded.model, name, None, loaded.class_names)
    names = tuple(class_names)
    if classes is not None:
        unknown = sorted(set(classes) - set(names))
        if unknown:
            raise ValueError(f"classes must be named as the data names them, {_few(names)}; got {unknown[0]!r}")
        rows = tuple(_rows(one, classes, loaded.class_names, outputs) for one in names)
        return Matched(loaded.model, name, rows, names)
    known = {_plain(each): at for at, each in enumerate(loaded.class_names or ())}
    wanted = [_plain(each) for each in names]
    if known and all(each in known for each in wanted):
        if len(set(wanted)) < len(wanted):
            twice = next(each for each in names if wanted.count(_plain(each)) > 1)
            raise ValueError(f"classes must differ by more than case, spaces and underscores; {twice!r} is there twice")
        order = tuple((known[each],) for each in wanted)
        same = [one[0] for one in order] == list(range(outputs))
        return Matched(loaded.model, name, None if same else order, names)
    if len(names) == outputs:
        return Matched(loaded.model, name, None, names)
    raise ValueError(
        f"the model has {outputs} classes and the data {len(names)} ({_few(names)}): "
        "say which belongs to which with --classes, or score against the predictions with --unlabelled"
    )


def _look_at_head(model: nn.Module, image: Tensor, head: str | None) -> tuple[str, int]:
    parameter = next(model.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    with torch.inference_mode(), observe(model, head) as seen:
        try:
            model(image.unsqueeze(0).to(device))
        except ValueError:
            # Ours, of a head that is not clear.
            raise
        except Exception as error:  # a user's model, timm's assertions
            shape, reason = list(image.shape), (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(f"the model does not take images of shape {shape} (--size, --mean): {reason}") from None
        return seen.name, len(seen.weight)


def _rows(one: str, classes: Groups, model_names: Sequence[str] | None, outputs: int) -> tuple[int, ...]:
    if one not in classes:
        raise ValueError(f"classes must say what each class of the data means; {one!r} is missing")
    meant = classes[one]
    members = [*meant] if isinstance(meant, list | tuple) else [meant]
    if not members:
        raise ValueError(
            f"classes must name at least one of the model's classes for each of the data's; {one!r} has none"
        )
    known = {_plain(each): at for at, each in enumerate(model_names or ())}
    found = []
    for member in members:
        at = known.get(_plain(member)) if isinstance(member, str) else member
        if at is None or isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < outputs:
            spelled = "a number" if not model_names else "a number or a name"
            raise ValueError(f"classes must be {spelled} of the model's {outputs} classes; for {one!r} got {member!r}")
        found.append(at)
    return tuple(found)


def _plain(name: str) -> str:
    return " ".join(name.lower().replace("_", " ").split())


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
