"""`record_head`: a small network trained on features once, and what it said of each sample while it learned."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.heads.minimising import Rows
from hardsight.validation import check_count

# All chosen on development sets: so strong a pull to small weights that a wrong label is not memorised while it is
# recorded. Of 1,500 samples 1e-2 to 4e-2 were best, of 4,000 1e-2, of 10,000 5e-3 and of 60,000 1e-3; errors between
# lookalikes on pixels asked for less.
_WIDTH, _LEARNING_RATE, _BATCH, _LENGTH = 512, 0.1, 128, 8.0
_WEIGHT_DECAY, _STRONGEST = 3.75, 1e-2
# Beyond so many samples batches grow, so that the number of steps does not; of few samples they are smaller.
_STEPPED, _FEWEST = 2**17, 16


def record_head(
    features: Any,
    labels: Any,
    *,
    num_classes: int | None = None,
    epochs: int = 20,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Float[Tensor, "samples classes"]:
    """What a network with one hidden layer believed of every sample while it learned, averaged over its epochs.

    Each belief is of the moment before the sample was learned from. Features are centred and of one length; they may
    lie on disk (`numpy.memmap`). Nothing is held out: wrong labels show because they are learned late.

    >>> features = torch.nn.functional.one_hot(torch.arange(60) % 3).float() + 0.1 * torch.rand(60, 3)
    >>> labels = torch.arange(60) % 3
    >>> labels[7] = 2
    >>> int(record_head(features, labels)[torch.arange(60), labels].argmin())
    7
    """
    check_count("epochs", epochs, "how often each sample is learned from", least=1)
    rows, labels = Rows.of(features, device), torch.as_tensor(labels).long()
    if labels.shape != (len(rows),):
        raise ValueError(f"labels must be one class for each of {len(rows)} samples; got shape {list(labels.shape)}")
    classes = int(labels.max()) + 1 if num_classes is None else num_classes
    generator = torch.Generator().manual_seed(seed)
    network = _network(rows, classes, generator)
    weights, biases = network[::2], network[1::2]
    decay = min(_STRONGEST, _WEIGHT_DECAY / len(rows) ** 0.75)
    groups: list[dict[str, Any]] = [{"params": weights, "weight_decay": decay}, {"params": biases}]
    optimizer = torch.optim.SGD(groups, _LEARNING_RATE, momentum=0.9)
    batch = min(_BATCH, max(_FEWEST, len(rows) // 32)) * max(1, math.ceil(len(rows) / _STEPPED))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * math.ceil(len(rows) / batch))
    beliefs = torch.zeros(len(rows), classes, dtype=rows.dtype)
    for _ in range(epochs):
        for places in torch.randperm(len(rows), generator=generator).split(batch):
            hidden = torch.relu(_LENGTH * rows.take(places) @ weights[0] + biases[0])
            logits = hidden @ weights[1] + biases[1]
            beliefs[places] += logits.detach().softmax(1).cpu()
            optimizer.zero_grad()
            nn.functional.cross_entropy(logits, labels[places].to(rows.device)).backward()
            optimizer.step()
            schedule.step()
    return beliefs / epochs


def _network(rows: Rows, classes: int, generator: torch.Generator) -> list[Tensor]:
    """Weight and bias of the hidden layer and of the last one, which begins small: all classes as probable."""
    found = []
    for inner, outer, gain in ((rows.dim, _WIDTH, math.sqrt(2)), (_WIDTH, classes, 0.1)):
        weight = torch.randn(inner, outer, generator=generator, dtype=rows.dtype) * gain / math.sqrt(inner)
        found += [weight.to(rows.device), torch.zeros(outer, dtype=rows.dtype, device=rows.device)]
    return [one.requires_grad_() for one in found]
