"""A real, tiny Lightning training: the callback records what a loop by hand records, also through a checkpoint."""

import lightning.pytorch as pl
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hardsight.dynamics import Recorder
from hardsight.dynamics.lightning import RecorderCallback, ids_and_labels
from hardsight.heads import observe

# Of Lightning itself: its advice on the number of workers, and its use of what torch's trees call out of date.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]


class Classifier(pl.LightningModule):
    """Two linear layers, called without the module's own forward."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def training_step(self, batch, batch_idx):
        inputs, labels, _ = batch
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def validation_step(self, batch, batch_idx):
        self.net(batch[0] * 0)  # a forward that must not be recorded

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def loader() -> DataLoader:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(20, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long(), torch.arange(20)), batch_size=6)


def trainer(tmp_path, epochs: int, callback) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
        callbacks=[callback],
    )


def by_hand(epochs: int) -> Recorder:
    module, recorder = Classifier(), Recorder(20)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with observe(module.net) as seen:
        for _ in range(epochs):
            for inputs, labels, ids in loader():
                loss = nn.functional.cross_entropy(module.net(inputs), labels)
                recorder.update_seen(ids, labels, seen)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            recorder.end_epoch()
    return recorder


def test_the_callback_records_what_a_loop_by_hand_records(tmp_path):
    recorder = Recorder(20)
    module = Classifier()
    trainer(tmp_path, 4, RecorderCallback(recorder)).fit(module, loader(), loader())
    expected = by_hand(4)
    assert recorder.epoch == 4
    assert recorder.aggregates["epochs"].tolist() == [4] * 20
    for name, values in expected.scores().items():
        torch.testing.assert_close(recorder.scores()[name], values, rtol=1e-5, atol=1e-6, equal_nan=True)
    assert not any(layer._forward_hooks for layer in module.modules())


def test_training_resumed_from_a_checkpoint_records_on(tmp_path):
    first = trainer(tmp_path, 2, RecorderCallback(Recorder(20)))
    first.fit(Classifier(), loader(), loader())
    first.save_checkpoint(tmp_path / "two.ckpt")
    recorder = Recorder(20)
    second = trainer(tmp_path, 4, RecorderCallback(recorder))
    second.fit(Classifier(), loader(), loader(), ckpt_path=tmp_path / "two.ckpt")
    for name, values in by_hand(4).scores().items():
        torch.testing.assert_close(recorder.scores()[name], values, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_a_batch_without_ids_is_refused():
    with pytest.raises(ValueError, match=r"batch.*\(inputs, labels, ids\)"):
        ids_and_labels([torch.ones(2), torch.ones(2)])
    ids, labels = ids_and_labels({"id": torch.tensor([1]), "label": torch.tensor([0])})
    assert (ids.item(), labels.item()) == (1, 0)


def test_a_checkpoint_within_an_epoch_holds_the_shares_of_all_processes(in_two_processes):
    generator = torch.Generator().manual_seed(0)
    # Of twelve samples most come in several of the six steps, and in both processes.
    ids, logits = torch.randint(12, (6, 2, 5), generator=generator), torch.randn(6, 2, 5, 3, generator=generator)

    def record(recorder: Recorder, rank: int, steps: range) -> None:
        for step in steps:
            recorder.update(ids[step, rank], logits[step, rank], ids[step, rank] % 3)

    def work(rank: int) -> None:
        whole, first, resumed = (Recorder(12) for _ in range(3))
        record(whole, rank, range(6))
        record(first, rank, range(4))
        # Lightning asks every process for its state, and writes that of the first.
        saved = [RecorderCallback(first).state_dict()]
        dist.broadcast_object_list(saved)
        RecorderCallback(resumed).load_state_dict(saved[0])
        record(resumed, rank, range(4, 6))
        for recorder in (whole, first, resumed):
            recorder.end_epoch()
        for name, values in whole.aggregates.items():
            torch.testing.assert_close(resumed.aggregates[name], values, rtol=1e-5, atol=1e-6)
        # Saving took nothing from the recorder that went on.
        assert int(first.aggregates["epochs"].sum()) == len(ids[:4].unique())

    in_two_processes(work)


def test_a_process_without_a_batch_saves_with_the_others(in_two_processes):
    def work(rank: int) -> None:
        recorder = Recorder(5)
        assert RecorderCallback(recorder).state_dict() == {}
        if rank == 1:
            recorder.update(torch.tensor([1]), torch.eye(2)[:1], torch.tensor([0]))
        saved = RecorderCallback(recorder).state_dict()
        assert int(saved["ledger"]["sums"][3, 0]) > 0

    in_two_processes(work)


class WithCentres(Classifier):
    """A loss with weights of its own beside the network: which of the two gives the logits is not clear."""

    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Embedding(3, 8)


def test_a_step_that_does_not_call_what_is_watched_is_told_what_to_say(tmp_path):
    with pytest.raises(ValueError, match=r"model.*submodule.*net, centres; "):
        trainer(tmp_path, 1, RecorderCallback(Recorder(20))).fit(WithCentres(), loader(), loader())
    recorder = Recorder(20)
    trainer(tmp_path, 1, RecorderCallback(recorder, model="net")).fit(WithCentres(), loader(), loader())
    assert torch.equal(recorder.scores()["aum"], by_hand(1).scores()["aum"])
