"""timm: score every image by a network of timm's, fine-tune it under wrong labels, and list the mislabelled ones.

Needs `pip install timm`, with the torchvision of your torch. On the digits of scikit-learn with a fifth of the labels
flipped on purpose; about a minute. `pretrained=True` starts from the public weights instead.
"""

import timm
import torch
import torch.nn.functional as F

import hardsight as hs

data = hs.datasets.load("digits")
images, truth = F.interpolate(data.images.float() / 255, 32), data.labels
noisy = hs.noise.flip_symmetric(truth, 0.2, 10, generator=torch.Generator().manual_seed(0)).labels

torch.manual_seed(0)
model = timm.create_model("test_resnet", pretrained=False, num_classes=10, in_chans=1)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
criterion = hs.losses.GCELoss()  # holds against wrong labels
recorder = hs.Recorder(num_samples=len(images))

with hs.observe(model) as seen:  # finds timm's classifier by itself
    for _ in range(4):
        for ids in torch.randperm(len(images)).split(64):
            loss = criterion(model(images[ids]), noisy[ids])
            recorder.update_seen(ids, noisy[ids], seen)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        recorder.end_epoch()

# One more pass gives what the trained network says: the class that each label should be.
last = hs.score_model(model, zip(images.split(256), noisy.split(256), strict=True), scores=("angular_margin",))
table = recorder.table()
for name in ("predicted", "angular_margin"):
    table = table.append_column(last.schema.field(name), last[name])
issues = hs.find_label_issues(table)
suspects = torch.tensor(issues.suspects()["id"].to_pylist())
print(f"{len(suspects)} suspects, {(noisy != truth)[suspects].sum()} of {(noisy != truth).sum()} flipped among them")
print(issues.suspects().select(["id", "label", "expected", "suspicion"]).slice(0, 3).to_pylist())
