"""Hugging Face's Trainer: a callback records every sample while it trains; about half a minute.

Needs `pip install transformers accelerate`. A small vision transformer on the digits of scikit-learn, a fifth of the
labels flipped on purpose.
"""

import tempfile

import torch
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import hardsight as hs
from hardsight.dynamics.huggingface import IdCollator, RecorderCallback, WithIds

data = hs.datasets.load("digits")
images, truth = data.images.float() / 255, data.labels
noisy = hs.noise.flip_symmetric(truth, 0.2, 10, generator=torch.Generator().manual_seed(0)).labels
samples = [{"pixel_values": image, "labels": int(label)} for image, label in zip(images, noisy, strict=True)]

torch.manual_seed(0)
model = ViTForImageClassification(
    ViTConfig(
        image_size=8, patch_size=2, num_channels=1, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, num_labels=10,
    )
)  # fmt: skip
recorder = hs.Recorder(num_samples=len(samples))
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model,
        TrainingArguments(
            folder, num_train_epochs=12, per_device_train_batch_size=64, learning_rate=3e-3, seed=0, use_cpu=True,
            remove_unused_columns=False, save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=WithIds(samples),  # adds the ids
        data_collator=IdCollator(),  # carries them through the batches
        callbacks=[RecorderCallback(recorder)],
    )  # fmt: skip
    trainer.train()

issues = hs.find_label_issues(recorder.table())
suspects = torch.tensor(issues.suspects()["id"].to_pylist())
print(
    f"{len(suspects)} suspects, {(noisy != truth)[suspects].sum()} of them flipped; flipped: {(noisy != truth).sum()}"
)
