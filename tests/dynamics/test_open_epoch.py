"""The way from batches to sums: the same whether kept back, measured at once, compiled or captured; no waiting."""

import pytest
import torch

from hardsight.dynamics import Recorder, recorded_epochs
from hardsight.dynamics.measures import measure


def same(first: Recorder, second: Recorder, exact: bool = True) -> None:
    for name, values in first.aggregates.items():
        other = second.aggregates[name].to(values.device)
        if exact:
            assert torch.equal(values, other), name
        else:
            torch.testing.assert_close(values, other, rtol=1e-4, atol=1e-4)


def batches(count: int, device: str = "cpu", size: int = 16, classes: int = 5):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        ids = torch.randint(50, (size,), generator=generator)
        logits = torch.randn(size, classes, generator=generator) * 3
        norms = (torch.rand(size, generator=generator) + 9, torch.rand(classes, generator=generator) + 1)
        one = (ids, logits, ids % classes, *norms, torch.randn(classes, generator=generator))
        yield tuple(part.to(device) for part in one)


def test_kept_back_equals_measured_at_once():
    kept, at_once = Recorder(50), Recorder(50)
    for one in batches(150):
        kept.update(*one)
        at_once.update(*one)
        at_once.flush()
    kept.end_epoch()
    at_once.end_epoch()
    same(kept, at_once, exact=False)
    assert torch.equal(kept.aggregates["margin_mean"], at_once.aggregates["margin_mean"])


def test_batches_of_changing_size_and_kind_all_count():
    recorder = Recorder(3, scores=("aum",))
    zero = torch.zeros(2, dtype=torch.int64)
    for scale, dtype in ((1.0, torch.float32), (2.0, torch.float64), (3.0, torch.float32), (4.0, torch.bfloat16)):
        size = 1 if scale == 3.0 else 2
        logits = torch.tensor([[scale, 0.0], [2 * scale, 0.0]], dtype=dtype)[:size]
        recorder.update(torch.tensor([0, 1])[:size], logits, zero[:size])
    recorder.end_epoch()
    assert recorder.scores()["aum"].tolist()[:2] == pytest.approx([2.5, 14 / 3])


def test_batches_with_and_without_a_bias_are_not_measured_together():
    mixed, zeros = Recorder(50), Recorder(50)
    for step, (*one, bias) in enumerate(batches(6)):
        mixed.update(*one, *([bias] if step % 2 == 0 else []))
        zeros.update(*one, bias if step % 2 == 0 else torch.zeros_like(bias))
    mixed.end_epoch()
    zeros.end_epoch()
    same(mixed, zeros, exact=False)


def test_a_run_that_goes_on_before_a_small_batch_keeps_back_the_steps_it_did_before(monkeypatch):
    """What is measured together may differ in the last bit from what is measured alone."""
    measured = []

    def measuring(logits, *given, **options):
        measured.append(len(logits))
        return measure(logits, *given, **options)

    monkeypatch.setattr(recorded_epochs, "measure", measuring)
    first, last, *others = [*batches(1), *batches(1, size=3), *batches(4)]
    whole = Recorder(50)
    whole.update(*first)
    state = whole.state_dict()
    resumed = Recorder(50)
    resumed.load_state_dict(state)
    groups = []
    for recorder in (whole, resumed):
        measured.clear()
        for one in (last, *others):
            recorder.update(*one)
        recorder.end_epoch()
        groups.append([*measured])
    assert groups == [[3, 64], [3, 64]]
    same(whole, resumed)


def test_a_run_that_goes_on_with_other_batches_keeps_these_back_from_the_next_epoch_on():
    recorder, other = Recorder(50), Recorder(50)
    for one in batches(1):
        recorder.update(*one)
    other.load_state_dict(recorder.state_dict())
    for _ in range(2):
        for one in batches(2, size=8):
            other.update(*one)
        other.end_epoch()
    assert other._recorded.buffer is not None


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_a_gpu_is_never_waited_for_and_agrees_with_the_cpu():
    there, here = Recorder(50), Recorder(50)
    on_gpu = list(batches(150, "cuda"))
    there.update(*on_gpu[0])  # allocates
    try:
        torch.cuda.set_sync_debug_mode("error")
        for one in on_gpu[1:]:
            there.update(*one)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for one in batches(150):
        here.update(*one)
    there.end_epoch()
    here.end_epoch()
    same(here, there, exact=False)


@pytest.mark.gpu
def test_a_step_in_a_cuda_graph_records_at_every_replay():
    plain, captured = Recorder(50), Recorder(50)
    static = [part.clone() for part in next(batches(1, "cuda"))]
    captured.update(*static)  # allocates, and warms up what a capture may not start
    captured.flush()
    captured.discard_epoch()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.update(*static)
    captured.discard_epoch()
    for one in batches(20, "cuda"):
        for slot, part in zip(static, one, strict=True):
            slot.copy_(part)
        graph.replay()
        plain.update(*one)
    plain.end_epoch()
    captured.end_epoch()
    same(plain, captured, exact=False)


@pytest.mark.gpu
def test_a_loaded_recorder_moves_to_the_gpu():
    recorder = Recorder(50)
    one, two = list(batches(2, "cuda"))
    recorder.update(*one)
    loaded = Recorder(50)
    loaded.load_state_dict(recorder.state_dict())
    for each in (recorder, loaded):
        each.update(*two)
        each.end_epoch()
    assert loaded.aggregates["epochs"].is_cuda
    same(recorder, loaded)
