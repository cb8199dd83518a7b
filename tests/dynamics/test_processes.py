"""Two processes that share the samples end with the same bits as one process that saw them all."""

import pytest
import torch
import torch.distributed as dist

from hardsight.dynamics import Recorder

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")


def record_shared_and_alone(rank: int) -> tuple[Recorder, Recorder]:
    """Sixty presentations an epoch, so that samples repeat within and across processes; the last epoch in one alone."""
    generator = torch.Generator().manual_seed(0)
    shared = Recorder(40)
    alone = Recorder(40, group=dist.new_group([rank], use_local_synchronization=True))
    for epoch in range(3):
        ids = torch.randint(40, (60,), generator=generator)
        logits, labels = torch.randn(60, 4, generator=generator) * 9, ids % 4
        mine = torch.arange(rank, 60, 2) if epoch < 2 else torch.arange(60 if rank == 0 else 0)
        for part in mine.split(7 if epoch < 2 else 60):
            shared.update(ids[part], logits[part], labels[part])
        alone.update(ids, logits, labels)
        shared.end_epoch()
        alone.end_epoch()
    return shared, alone


def test_two_processes_equal_one(in_two_processes):
    def work(rank: int) -> None:
        shared, alone = record_shared_and_alone(rank)
        for name, values in alone.aggregates.items():
            if name.split("_")[0] in ("loss", "confidence", "agreement", "el2n"):
                # An exponential's last bit may depend on the row's place in its batch.
                torch.testing.assert_close(values, shared.aggregates[name], rtol=1e-5, atol=1e-6)
            else:
                assert torch.equal(values, shared.aggregates[name]), name

    in_two_processes(work)


def test_a_process_without_a_batch_takes_part(in_two_processes):
    def work(rank: int) -> None:
        recorder = Recorder(5)
        if rank == 0:
            recorder.update(torch.tensor([1]), torch.eye(2)[:1], torch.tensor([0]))
        recorder.end_epoch()
        assert recorder.aggregates["epochs"].tolist() == [0, 1, 0, 0, 0]

    in_two_processes(work)


def test_processes_that_differ_are_refused(in_two_processes):
    def work(rank: int) -> None:
        recorder = Recorder(5)
        recorder.update(torch.tensor([1]), torch.eye(2 + rank)[:1], torch.tensor([0]))
        with pytest.raises(ValueError, match=r"process.*measures.*epoch"):
            recorder.end_epoch()

    in_two_processes(work)


def test_what_fails_in_a_process_fails_the_test(in_two_processes):
    def work(rank: int) -> None:
        assert rank == 0

    with pytest.raises(AssertionError, match="assert rank == 0"):
        in_two_processes(work)
