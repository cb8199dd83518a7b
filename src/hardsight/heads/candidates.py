"""Which of a model's layers may be its head, judged by its structure."""

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
