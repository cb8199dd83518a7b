"""Lightning: a callback records every sample while the Trainer trains; about fifteen seconds.

Needs `pip install lightning torchmetrics`. On the digits of scikit-learn with a fifth of the labels flipped on purpose.
"""

import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hardsight as hs
from hardsight.dynamics.lightning import RecorderCallback

data = hs.datasets.load("digits")
images, truth = data.images.float() / 255, data.labels
noisy = hs.noise.flip_symmetric(truth, 0.2, 10, generator=torch.Generator().manual_seed(0)).labels


class Digits(lightning.LightningModule):
    """A small network; nothing in it knows of the recorder."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.criterion = hs.losses.GCELoss()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        images, labels, _ids = batch  # the ids are for the callback
        return self.criterion(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


lightning.seed_everything(0)
recorder = hs.Recorder(num_samples=len(images))
loader = DataLoader(TensorDataset(images, noisy, torch.arange(len(images))), batch_size=64, shuffle=True)
trainer = lightning.Trainer(
    max_epochs=12,
    accelerator="cpu",
    callbacks=[RecorderCallback(recorder)],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", module="lightning")  # advice on loader processes
    trainer.fit(Digits(), loader)

issues = hs.find_label_issues(recorder.table())
suspects = torch.tensor(issues.suspects()["id"].to_pylist())
print(
    f"{len(suspects)} suspects, {(noisy != truth)[suspects].sum()} of them flipped; flipped: {(noisy != truth).sum()}"
)
