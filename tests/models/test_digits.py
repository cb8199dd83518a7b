"""The network of the demo: small, and good enough to learn the digits in a few epochs."""

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

from hardsight.models.plain import DigitsCNN


def test_it_has_40_506_parameters() -> None:
    # By hand: 9 * (1*16 + 16*32 + 32*64) = 23,184 in the convolutions, 2 * (16 + 32 + 64) = 224 in the batch
    # normalizations, 256 * 64 + 64 = 16,448 in the embedding, 64 * 10 + 10 = 650 in the head.
    assert sum(parameter.numel() for parameter in DigitsCNN().parameters()) == 40_506


def test_it_learns_the_digits_in_five_epochs() -> None:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    torch.manual_seed(0)
    order = torch.randperm(len(labels))
    train, test = order[:1437], order[1437:]
    model = DigitsCNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(5):
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    model.eval()
    with torch.inference_mode():
        accuracy = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
    assert accuracy > 0.95
