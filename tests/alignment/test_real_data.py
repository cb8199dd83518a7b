"""CIFAR-10H and the public ResNet-20: AVH and confidence follow human selection frequency as once measured."""

from pathlib import Path

import numpy as np
import pytest
import torch

import hardsight as hs
from hardsight.alignment import compare_correlations, correlate, correlate_in_bins, partial_correlation
from hardsight.datasets.cifar import read_cifar10h
from hardsight.datasets.hierarchy import human_selection_frequency
from hardsight.models import load_cifar10_resnet

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
DEVIATION = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

Columns = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def columns(data_root: Path) -> Columns:
    """Scores of all 10,000 test images in float64: in float32 confidence rounds to 1 and its ranks tie."""
    folder = data_root / "cifar-10-batches-bin"
    images = read_cifar10h(folder)
    model = load_cifar10_resnet(20, folder / "resnets.safetensors").to(memory_format=torch.channels_last)
    features, logits = [], []
    with torch.inference_mode(), hs.observe(model) as seen:
        for batch in images.images.split(250):
            pictures = batch if batch.shape[1] == 3 else batch.permute(0, 3, 1, 2)
            model(((pictures / 255 - MEAN) / DEVIATION).to(memory_format=torch.channels_last))
            features.append(seen.features.double())
            logits.append(seen.logits.double())
        weight = seen.weight.double()
    outputs = torch.cat(logits)
    return {
        "avh": hs.angular_visual_hardness(torch.cat(features), weight, images.labels).numpy(),
        "confidence": hs.model_confidence(outputs, images.labels).numpy(),
        "correct": (outputs.argmax(1) == images.labels).double().numpy(),
        "frequency": human_selection_frequency(images.columns["human_votes"], images.labels).numpy(),
    }


@pytest.mark.data
def test_scores_follow_people(columns: Columns) -> None:
    """Measured once: |rho| 0.359 for AVH and 0.369 for confidence. Rounding on another processor moves neither much."""
    avh = correlate(columns["avh"], columns["frequency"])
    confidence = correlate(columns["confidence"], columns["frequency"])
    assert avh.n == 10_000
    assert avh.coefficient == pytest.approx(-0.359, abs=0.002)
    assert confidence.coefficient == pytest.approx(0.369, abs=0.002)
    assert avh.p_value < 1e-250


@pytest.mark.data
def test_the_difference_is_one_that_only_a_dependent_test_sees(columns: Columns) -> None:
    found = compare_correlations(
        columns["confidence"], columns["avh"], columns["frequency"], resamples=300, generator=np.random.default_rng(0)
    )
    assert found.between > 0.85
    assert found.meng.p_value < 0.02 < 0.2 < found.fisher.p_value
    assert 0 < found.interval.low < found.first - found.second < found.interval.high < 0.03


@pytest.mark.data
def test_bins_and_correctness(columns: Columns) -> None:
    bins = correlate_in_bins(columns["avh"], columns["frequency"])
    assert [one.n for one in bins] == [15, 49, 141, 404, 9391]
    held = partial_correlation(columns["avh"], columns["frequency"], columns["correct"])
    # Part of the agreement is only that people and model err on the same images; most of it is not.
    assert -0.359 < held.coefficient < -0.25
