"""Whether the weight that a linear head holds made its logits: all angles to the classes rest on that."""

import torch
from torch import Tensor

from hardsight.validation import may_look

# How many samples and classes are looked at: enough to notice, and little to compute.
_SAMPLES, _CLASSES = 32, 1024
# How far a layer of one's own may be from its weight: a weight that is rounded to 8 bits on its way is.
_OWN_FORWARD = 0.06


@torch.no_grad()
def check_weight_made(
    logits: Tensor, features: Tensor, weight: Tensor, bias: Tensor | None, *, name: str, linear: bool
) -> None:
    """Refuse logits that are not features @ weight.T + bias, but for rounding.

    Where the layer has a forward of its own (not `linear`), logits that rise with the cosine to each class pass too.
    """
    if not may_look(features) or not may_look(logits):
        return
    tolerance = _tolerance(logits, features, weight)
    classes = torch.linspace(0, len(weight) - 1, min(len(weight), _CLASSES)).long()
    features, logits = (part.reshape(-1, part.shape[-1])[:_SAMPLES].cpu().double() for part in (features, logits))
    logits, weight = logits[:, classes], weight[classes.to(weight.device)].cpu().double()
    shift = torch.zeros(len(classes)) if bias is None else bias[classes.to(bias.device)].cpu()
    made = features @ weight.T + shift.double()
    # As large as the sum is from independently rounded summands.
    size = (features.square() @ weight.square().T).sqrt() + logits.abs() + shift.double().abs()
    # What is not finite has sentences of its own.
    known = made.isfinite() & logits.isfinite()
    error = torch.where(known, (made - logits).abs() / size.clamp_min(torch.finfo(torch.float32).tiny), 0.0)
    of_class = error.square().mean(0).sqrt()
    if bool((of_class <= (tolerance if linear else max(tolerance, _OWN_FORWARD))).all()):
        return
    if not linear and _rise_with_cosine(logits, features, weight, tolerance):
        return
    worst = int(of_class.argmax())
    row = int(error[:, worst].argmax())
    gives, got = float(made[row, worst]), float(logits[row, worst])
    raise ValueError(
        f"weight must be what made the logits, features @ weight.T + bias; that of {name!r} gives {gives:.4g} where "
        f"class {int(classes[worst])} got the logit {got:.4g}: look at the model while the weight is in force, or give "
        "features, weight and logits of your own"
    )


def _tolerance(logits: Tensor, features: Tensor, weight: Tensor) -> float:
    """What rounding may do, of the shortest type on the way, that of autocast or TF32 included."""
    eps = max(torch.finfo(part.dtype).eps for part in (logits, features, weight))
    kind = logits.device.type
    if torch.is_autocast_enabled(kind):
        eps = max(eps, torch.finfo(torch.get_autocast_dtype(kind)).eps)
    if logits.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        eps = max(eps, torch.finfo(torch.bfloat16).eps)
    # In half precision it is the rounding of numbers that counts, above it that of their sums.
    return 8 * eps if eps > 1e-5 else 1e3 * eps


def _rise_with_cosine(logits: Tensor, features: Tensor, weight: Tensor, tolerance: float) -> bool:
    """Whether, from class to class, the logit of every sample rises with the cosine."""
    cosines = torch.nn.functional.normalize(features) @ torch.nn.functional.normalize(weight).T
    along = logits.gather(1, cosines.argsort(1))
    slack = tolerance * (logits.amax(1) - logits.amin(1))
    return bool((along.diff(dim=1) >= -slack.unsqueeze(1)).all())
