"""A real, tiny Lightning training: the callback records what a loop by hand records, also through a checkpoint."""

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hardsight.dynamics import Recorder
from hardsight.dynamics.lightning import RecorderCallback, ids_and_labels
from hardsight.heads import observe

# Of Lightning itself: its advice on the number of workers, and its use of what torch's trees call out of date.
pytestmark = [
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
    with pytest.raises(ValueError, match=r"batch must be \(inputs, labels, ids\)"):
        ids_and_labels([torch.ones(2), torch.ones(2)])
    ids, labels = ids_and_labels({"id": torch.tensor([1]), "label": torch.tensor([0])})
    assert (ids.item(), labels.item()) == (1, 0)


def test_the_first_process_alone_takes_up_its_share_of_an_unfinished_epoch(monkeypatch):
    recorder = Recorder(4)
    recorder.update(torch.tensor([0, 1]), torch.eye(2), torch.zeros(2, dtype=torch.int64))
    saved = RecorderCallback(recorder).state_dict()
    for rank, shown in ((0, [1, 1, 0, 0]), (1, [0, 0, 0, 0])):
        monkeypatch.setattr("hardsight.dynamics.lightning.rank_and_count", lambda group, rank=rank: (rank, 2))
        resumed = Recorder(4)
        RecorderCallback(resumed).load_state_dict(saved)
        resumed.end_epoch()
        assert resumed.aggregates["epochs"].tolist() == shown, f"process {rank}"
