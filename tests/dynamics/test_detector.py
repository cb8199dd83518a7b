"""The learned detector: its network by loops, curves from a real history, and what no mean of a curve could find."""

import math
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from hardsight.dynamics import NoiseDetector, Recorder, confidence_curves, detector_score, train_detector
from hardsight.dynamics.detector import without_gaps
from hardsight.hardness import get_score


def late_and_early(samples: int, epochs: int, seed: int) -> tuple[Tensor, Tensor]:
    """Wrong labels are learned late, right ones are learned at once and fall back: the mean of both curves is equal."""
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.rand(samples, generator=generator) < 0.3
    rising = torch.linspace(0.1, 0.9, epochs)
    curves = torch.where(wrong.unsqueeze(1), rising, rising.flip(0))
    return (curves + 0.1 * torch.randn(samples, epochs, generator=generator)).clamp(0, 1), wrong


def auroc(values: Tensor, wrong: Tensor) -> float:
    pairs = values[wrong].unsqueeze(1) - values[~wrong].unsqueeze(0)
    return float((pairs > 0).float().mean() + 0.5 * (pairs == 0).float().mean())


def forward_slowly(detector: NoiseDetector, curve: list[float]) -> float:
    """The gates of every layer, one epoch after the other."""
    parts = {name: part.double() for name, part in detector.state_dict().items()}
    layers, hidden = detector.recurrent.num_layers, detector.recurrent.hidden_size
    state = [torch.zeros(hidden, dtype=torch.float64) for _ in range(layers)]
    cell = [torch.zeros(hidden, dtype=torch.float64) for _ in range(layers)]
    for value in curve:
        below = torch.tensor([value], dtype=torch.float64)
        for layer in range(layers):
            gates = parts[f"recurrent.weight_ih_l{layer}"] @ below + parts[f"recurrent.bias_ih_l{layer}"]
            gates = gates + parts[f"recurrent.weight_hh_l{layer}"] @ state[layer]
            gates = gates + parts[f"recurrent.bias_hh_l{layer}"]
            enter, forget, new, out = gates.split(hidden)
            cell[layer] = forget.sigmoid() * cell[layer] + enter.sigmoid() * new.tanh()
            state[layer] = out.sigmoid() * cell[layer].tanh()
            below = state[layer]
    return float(parts["head.weight"][0] @ below + parts["head.bias"][0])


@pytest.fixture(scope="module")
def trained() -> NoiseDetector:
    curves, wrong = late_and_early(600, 12, seed=0)
    return train_detector(curves, wrong, generator=torch.Generator().manual_seed(0), epochs=4)


def test_the_network_equals_the_slow_loop() -> None:
    torch.manual_seed(0)
    detector = NoiseDetector(points=7, hidden=5, layers=2)
    curves = torch.rand(4, 7)
    expected = torch.tensor([forward_slowly(detector, row.tolist()) for row in curves])
    torch.testing.assert_close(detector(curves).detach(), expected)


def test_a_curve_is_stretched_evenly_to_the_length_it_was_trained_with() -> None:
    torch.manual_seed(0)
    detector = NoiseDetector(points=5, hidden=3)
    # 0, 1/4, 1/2, 3/4 and 1 of the way through three epochs.
    curve, stretched = torch.tensor([[0.0, 0.4, 0.2]]), torch.tensor([[0.0, 0.2, 0.4, 0.3, 0.2]])
    torch.testing.assert_close(detector(curve), detector(stretched))
    torch.testing.assert_close(detector(torch.tensor([[0.3]])), detector(torch.full((1, 5), 0.3)))


def test_it_finds_in_another_run_what_the_mean_cannot(trained: NoiseDetector) -> None:
    # Another seed, and other lengths of training.
    for epochs in (12, 7, 30):
        curves, wrong = late_and_early(400, epochs, seed=1)
        found = detector_score(trained, curves)
        assert auroc(found, wrong) > 0.99
        assert 0.4 < auroc(-curves.mean(1), wrong) < 0.6
        assert bool(((found >= 0) & (found <= 1)).all())


def test_the_same_seed_gives_the_same_detector_and_leaves_the_world_alone() -> None:
    curves, wrong = late_and_early(80, 6, seed=2)
    before = torch.get_rng_state()
    one, two = (train_detector(curves, wrong, generator=torch.Generator().manual_seed(3), epochs=1) for _ in range(2))
    assert torch.equal(detector_score(one, curves), detector_score(two, curves))
    assert torch.equal(torch.get_rng_state(), before)
    other = train_detector(curves, wrong, generator=torch.Generator().manual_seed(4), epochs=1)
    assert not torch.equal(detector_score(one, curves), detector_score(other, curves))


def test_the_first_weights_come_from_the_generator_too() -> None:
    curves, wrong = late_and_early(80, 6, seed=2)
    one, other = (
        train_detector(curves, wrong, generator=torch.Generator().manual_seed(seed), epochs=1, lr=0.0)
        for seed in (3, 4)
    )
    assert not torch.equal(one.head.weight, other.head.weight)


def test_the_learning_rate_falls_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, step = [], torch.optim.AdamW.step

    def watched(optimizer: torch.optim.AdamW, *arguments: object) -> object:
        rates.append(optimizer.param_groups[0]["lr"])
        return step(optimizer, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    curves, wrong = late_and_early(50, 4, seed=0)
    train_detector(curves, wrong, generator=torch.Generator().manual_seed(0), epochs=2, batch_size=20, lr=0.06)
    assert rates == pytest.approx([0.06, 0.05, 0.04, 0.03, 0.02, 0.01])


def test_gaps_take_the_value_before_them() -> None:
    nan = math.nan
    curves = torch.tensor([[nan, 0.2, nan, 0.4], [0.1, nan, nan, nan], [nan] * 4, [0.1, 0.2, 0.3, 0.4]])
    expected = torch.tensor([[0.2, 0.2, 0.2, 0.4], [0.1] * 4, [nan] * 4, [0.1, 0.2, 0.3, 0.4]])
    torch.testing.assert_close(without_gaps(curves), expected, equal_nan=True)


def test_a_sample_never_shown_has_no_score_and_does_not_spoil_training(trained: NoiseDetector) -> None:
    curves, wrong = late_and_early(80, 6, seed=2)
    curves[5] = math.nan
    assert detector_score(trained, curves).isnan().tolist() == [at == 5 for at in range(80)]
    fitted = train_detector(curves, wrong, generator=torch.Generator().manual_seed(0), epochs=1)
    assert all(bool(part.isfinite().all()) for part in fitted.state_dict().values())


def test_a_run_of_one_epoch_is_enough() -> None:
    curves, wrong = late_and_early(80, 1, seed=2)
    fitted = train_detector(curves, wrong, generator=torch.Generator().manual_seed(0), epochs=1)
    score = detector_score(fitted, curves)
    assert bool(((score > 0) & (score < 1)).all())


def test_curves_come_from_a_recorders_history(run, tmp_path: Path) -> None:
    run.record(Recorder(23, history=tmp_path / "history"))
    curves = confidence_curves(tmp_path / "history")
    assert curves.shape == (23, 12)
    for sample in range(23):
        slow = run.curves(sample)
        shown = [int(epoch) for epoch in slow.get("epoch", [])]
        assert (~curves[sample].isnan()).nonzero().squeeze(1).tolist() == shown
        torch.testing.assert_close(curves[sample, shown], torch.tensor(slow.get("confidence", []), dtype=torch.float32))


def test_what_is_no_such_history_is_refused(run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"history.*at least one"):
        confidence_curves(tmp_path / "nothing")
    run.record(Recorder(23, scores=("aum",), history=tmp_path / "margins"))
    with pytest.raises(ValueError, match=r"history.*confidence.*holds margin"):
        confidence_curves(tmp_path / "margins")
    with pytest.raises(ValueError, match=r"curves.*wrong.*got "):
        train_detector(torch.rand(4, 3), torch.zeros(4, dtype=torch.bool), generator=torch.Generator())


def test_it_comes_back_from_disk(trained: NoiseDetector, tmp_path: Path) -> None:
    curves, _ = late_and_early(20, 6, seed=5)
    trained.save(tmp_path / "detector.safetensors")
    assert torch.equal(
        detector_score(NoiseDetector.load(tmp_path / "detector.safetensors"), curves), detector_score(trained, curves)
    )


def test_it_is_registered() -> None:
    assert get_score("detector").definition is detector_score


@pytest.mark.parametrize("content", ["nothing", "another network", "half of it"])
def test_a_file_that_is_no_detector_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "detector.safetensors"
    NoiseDetector(4, hidden=2, layers=1).save(path)
    whole = safetensors.torch.load_file(path)
    if content == "nothing":
        path.write_bytes(b"")
    elif content == "another network":
        safetensors.torch.save_file({"weight": torch.zeros(2, 2)}, path)
    else:
        safetensors.torch.save_file({name: part for name, part in whole.items() if "bias" not in name}, path)
    with pytest.raises(ValueError, match=r"detector\.safetensors must be.*`save`.*: "):
        NoiseDetector.load(path)
