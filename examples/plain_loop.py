"""Your own training loop: record every sample, train under wrong labels, find them.

On the digits of scikit-learn with a fifth of the labels flipped on purpose; about ten seconds.
"""

import torch
from torch import nn

import hardsight as hs

data = hs.datasets.load("digits")
images, truth = data.images.float() / 255, data.labels
noisy = hs.noise.flip_symmetric(truth, 0.2, 10, generator=torch.Generator().manual_seed(0)).labels

torch.manual_seed(0)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
criterion = hs.losses.GCELoss()  # holds against wrong labels; called as F.cross_entropy is
recorder = hs.Recorder(num_samples=len(images))

for _ in range(15):
    for ids in torch.randperm(len(images)).split(64):
        with hs.observe(model) as seen:  # the last layer's input, in the forward pass that runs anyway
            loss = criterion(model(images[ids]), noisy[ids])
        recorder.update_seen(ids, noisy[ids], seen)  # before the step changes the weights
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    recorder.end_epoch()

issues = hs.find_label_issues(recorder.table())
suspects = torch.tensor(issues.suspects()["id"].to_pylist())
found = (noisy != truth)[suspects]
print(f"{len(suspects)} suspects, {found.sum()} of them among the {(noisy != truth).sum()} flipped labels")
print(issues.suspects().select(["id", "label", "expected", "suspicion"]).slice(0, 3).to_pylist())
