"""The calls of a model's layers in one forward, and which of them made the model's output."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardsight.heads.candidates import which_one


class Call(NamedTuple):
    """One call of a layer: its input, its output, and a copy of the output from before anything changed it."""

    name: str
    features: Tensor
    output: Tensor
    logits: Tensor
    # The layer's own, where it holds them: `functional_call` puts others in their place for as long as a forward takes.
    weight: Tensor | None
    bias: Tensor | None


def made_first(outputs: list[Tensor], calls: list[Call]) -> Call | None:
    """The call whose output is the first of the model's outputs that any of them made."""
    return next((call for output in outputs for call in reversed(calls) if _made(call, output)), None)


def _made(call: Call, output: Tensor) -> bool:
    return call.output is output or _same_memory(call.output, output)


def maker_of(outputs: list[Tensor], calls: list[Call], candidates: dict[str, nn.Module]) -> str:
    """The layer whose output is the model's output, or was its last step before something like a softmax."""
    makers = [call for call in (made_first([output], calls) for output in outputs) if call is not None]
    # The input of another candidate is the features, which the model returns beside the logits.
    makers = [call for call in makers if not any(_same_memory(call.output, other.features) for other in makers)]
    if len({call.output.shape[-1] for call in makers}) > 1:
        several = {call.name: candidates[call.name] for call in calls if call.name in {one.name for one in makers}}
        raise ValueError(which_one(several, "head must be chosen, several layers make this model's outputs"))
    if makers:
        return makers[0].name
    same_shape = {call.name for call in calls if call.output.shape == outputs[0].shape}
    fewer_rows = {call.name for call in calls if _with_fewer_rows(outputs[:1], call) is not None}
    of_a_token = {call.name for call in calls if token_taken(outputs[:1], call) is not None}
    for fitting in (same_shape, fewer_rows, of_a_token):
        if len(fitting) == 1:
            return fitting.pop()
    if not calls:
        raise ValueError("model must end in a linear layer; none of its layers ran in this forward")
    raise ValueError(which_one(candidates, "head must be chosen, no single linear layer makes this model's output"))


def check_only_one(outputs: list[Tensor], call: Call, weight: Tensor) -> None:
    """Raise where a model returns as many rows as its only linear layer, but none of that layer's width."""
    rows, width = len(call.output), call.output.shape[-1]
    others = [output for output in outputs if output.ndim == 2 and len(output) == rows]
    if others and not any(output.shape[-1] == width or _made(call, output) for output in others):
        raise ValueError(
            f"model must end in a linear layer; its only one, {call.name!r} {list(weight.shape)}, makes no output of "
            f"shape {list(others[0].shape)}: score features and weight, or say head={call.name!r} if it is the head"
        )


def token_taken(outputs: list[Tensor], call: Call) -> Call | None:
    """The call at one token of each sample, whose logits are the model's output: GPT-2 classifies by the last one."""
    wanted = call.output.shape[:1] + call.output.shape[2:]
    for output in outputs if call.output.ndim == 3 else ():
        if output.shape == wanted:
            same = (call.logits.detach() == output.detach().unsqueeze(1)).all(2)
            if bool(same.any(1).all()):
                # Of several equal ones the first: what differs in no logit has the same features.
                sample, token = torch.arange(len(same), device=same.device), same.int().argmax(1)
                return call._replace(features=call.features[sample, token], logits=call.logits[sample, token])
    return None


def only_view(outputs: list[Tensor], calls: list[Call]) -> Call:
    """The head's call, where it is the only one and has a row for each of the model's output."""
    made = made_first(outputs, calls)
    if made is None and (len(calls) > 1 or _with_fewer_rows(outputs, calls[0]) is not None):
        raise ValueError(
            f"head must be called once, with a row for each sample; {_shapes(outputs, calls)}. Where these are several "
            'views of a sample, views="mean" takes the mean of their features and logits'
        )
    return calls[-1] if made is None else made


def mean_of_views(outputs: list[Tensor], calls: list[Call]) -> Call:
    """The head's calls as one, of the views' mean features and logits; of a linear head these belong together."""
    made = made_first(outputs, calls)
    if made is not None:
        return made
    last = calls[-1]
    if len(calls) > 1 and len({call.output.shape for call in calls}) == 1:
        features = torch.stack([call.features for call in calls]).mean(0)
        return last._replace(features=features, logits=torch.stack([call.logits for call in calls]).mean(0))
    mean = _with_fewer_rows(outputs, last)
    if len(calls) == 1 and mean is None:
        return last
    if len(calls) == 1 and mean is not None and not len(last.output) % len(mean):
        # A sample's views side by side, or all samples' first views before the second ones.
        for dim, shape in ((1, (len(mean), -1)), (0, (-1, len(mean)))):
            features, logits = (part.unflatten(0, shape).mean(dim) for part in (last.features, last.logits))
            if _same_numbers(logits.detach(), mean.detach()):
                return last._replace(features=features, logits=logits)
    raise ValueError(
        f"views must be as many of each sample, and the model give the mean of their logits; {_shapes(outputs, calls)}"
    )


def _shapes(outputs: list[Tensor], calls: list[Call]) -> str:
    given = " and ".join(str(list(call.output.shape)) for call in calls[:4])
    return f"{calls[0].name!r} gave {given}, the model {list(outputs[0].shape)}"


def _same_numbers(one: Tensor, other: Tensor) -> bool:
    rounding = 8 * max(torch.finfo(part.dtype).eps for part in (one, other))
    return bool((one - other).abs().amax() <= rounding * one.abs().amax())


def _with_fewer_rows(outputs: list[Tensor], call: Call) -> Tensor | None:
    """The first output as wide as the call's, which may have several rows for each of its rows."""
    wide = call.output.shape[1:]
    return next(
        (one for one in outputs if one.ndim == 2 and one.shape[1:] == wide and len(one) < len(call.output)), None
    )


def outputs_of(output: Any) -> list[Tensor]:
    """Tensors of a model's output: its `logits` alone where it names them."""
    if isinstance(output, tuple) and hasattr(output, "_asdict"):
        output = output._asdict()
    elif is_dataclass(output) and not isinstance(output, Mapping):
        output = vars(output)
    logits = list(tensors_in(output.get("logits"))) if isinstance(output, Mapping) else []
    return logits or list(tensors_in(output))


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Every tensor in a model's arguments or outputs, in order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, Mapping):
        for value in values.values():
            yield from tensors_in(value)
    elif isinstance(values, tuple | list):
        for value in values:
            yield from tensors_in(value)


def _same_memory(one: Tensor, other: Tensor) -> bool:
    # A view (squeeze, reshape) of the logits is still the logits.
    return one.numel() > 0 and one.numel() == other.numel() and one.data_ptr() == other.data_ptr()
