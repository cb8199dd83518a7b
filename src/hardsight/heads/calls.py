"""Which of a model's layers is its head: by its structure, or by the layers' calls in one forward."""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardsight.names import unknown_name


def find_head(model: nn.Module, head: str | None = None) -> tuple[str, nn.Module]:
    """Name and module of the final linear layer, where the model's structure leaves no choice."""
    inner, _ = unwrap(model)
    candidates = candidates_of(inner)
    name = known_head(inner, candidates, head)
    if name is None:
        raise ValueError(which_one(candidates, "head must be chosen where a model has several linear layers"))
    return name, candidates[name]


def unwrap(model: nn.Module) -> tuple[nn.Module, bool]:
    """The model inside DataParallel, DistributedDataParallel and torch.compile, and whether it was compiled."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}")
    compiled = getattr(model, "_compiled_call_impl", None) is not None
    while True:
        if hasattr(model, "_orig_mod"):
            model, compiled = model._orig_mod, True  # type: ignore[assignment]
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model, compiled or getattr(model, "_compiled_call_impl", None) is not None


def candidates_of(model: nn.Module) -> dict[str, nn.Module]:
    """Every layer that could be a head: a leaf with a weight row for each output (Linear, angular and cosine heads)."""
    modules = dict(model.named_modules())
    compiled = [name for name, module in modules.items() if isinstance(module, torch.jit.ScriptModule)]
    found = {name: module for name, module in modules.items() if name not in compiled and _is_linear_like(module)}
    if compiled and not found:
        raise ValueError(
            f"model must not be TorchScript ({type(modules[compiled[0]]).__name__}), whose layers cannot be watched: "
            "give the model that it was made from"
        )
    if not found:
        raise ValueError(f"model must end in a linear layer; {type(model).__name__} has none")
    return found


def _is_linear_like(module: nn.Module) -> bool:
    if isinstance(module, nn.Linear):
        return True
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) or next(module.children(), None) is not None:
        return False
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 2


def known_head(model: nn.Module, candidates: dict[str, nn.Module], head: str | None) -> str | None:
    if head is not None:
        if head not in candidates:
            raise unknown_name("head", head, candidates, "linear layers of the model")
        return head
    if len(candidates) == 1:
        return next(iter(candidates))
    # timm's models name it.
    own = getattr(model, "get_classifier", None)
    if callable(own):
        chosen = own()
        return next((name for name, module in candidates.items() if module is chosen), None)
    return None


def which_one(candidates: dict[str, nn.Module], sentence: str) -> str:
    names = list(candidates)
    shown = [f"{name} {list(candidates[name].weight.shape)}" for name in names[-6:]]  # type: ignore[arg-type]
    more = f" and {len(names) - 6} earlier ones" if len(names) > 6 else ""
    return f'{sentence}; candidates are {", ".join(shown)}{more}: choose with head="{names[-1]}"'


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


def view_of(outputs: list[Tensor], calls: list[Call], mean: bool) -> Call:
    """The head's call, the only one with a row for each of the model's output; or the `mean` of its views.

    Of a linear head the views' mean features and mean logits belong together.
    """
    last, made = calls[-1], made_first(outputs, calls)
    fewer = _with_fewer_rows(outputs, last)
    if made is not None or (len(calls) == 1 and fewer is None):
        return last if made is None else made
    if not mean:
        raise ValueError(
            f"head must be called once, with a row for each sample; {_shapes(outputs, calls)}. Where these are several "
            'views of a sample, views="mean" takes the mean of their features and logits'
        )
    if len(calls) > 1 and len({call.output.shape for call in calls}) == 1:
        features = torch.stack([call.features for call in calls]).mean(0)
        return last._replace(features=features, logits=torch.stack([call.logits for call in calls]).mean(0))
    if len(calls) == 1 and fewer is not None and not len(last.output) % len(fewer):
        # A sample's views side by side, or all samples' first views before the second ones.
        for dim, shape in ((1, (len(fewer), -1)), (0, (-1, len(fewer)))):
            features, logits = (part.unflatten(0, shape).mean(dim) for part in (last.features, last.logits))
            rounding = 8 * max(torch.finfo(part.dtype).eps for part in (logits, fewer)) * logits.detach().abs().amax()
            if bool((logits.detach() - fewer.detach()).abs().amax() <= rounding):
                return last._replace(features=features, logits=logits)
    raise ValueError(
        f"views must be as many of each sample, and the model give the mean of their logits; {_shapes(outputs, calls)}"
    )


def _shapes(outputs: list[Tensor], calls: list[Call]) -> str:
    given = " and ".join(str(list(call.output.shape)) for call in calls[:4])
    return f"{calls[0].name!r} gave {given}, the model {list(outputs[0].shape)}"


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
