"""Table 6 on tiny files of the public layout: crops, labels, the whole protocol, the table."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import plan
from hardsight_studies.engine.rows import read
from hardsight_studies.engine.running import run_study
from hardsight_studies.gr.clothing1m import MEAN, STD, Crops, load_backbone, tiny

from hardsight import datasets, models


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> datasets.FileDataset:
    return datasets.load("clothing1m", "noisy_train", tiny(tmp_path_factory.mktemp("clothing"), images=1))


def test_the_protocol_is_the_printed_one() -> None:
    runs = plan(studies.get("gr-table6"), "paper")
    config = runs[0].config
    assert (config["model"]["name"], config["epochs"], config["milestones"]) == ("resnet50", 10, [5])
    assert config["optimizer"] == {"lr": 1e-3, "weight_decay": 1e-3}
    assert config["data"] == {"resized": 256, "side": 224, "batch_size": 64}
    assert [run.settings["method"] for run in runs][:2] == ["cce", "gr-16-1"]


def test_a_crop_is_a_window_of_the_image_or_of_its_mirror(data: datasets.FileDataset) -> None:
    whole = data.resized(20, "squash")
    windows = set()
    crops = Crops(data, 7, resized=20, side=16, training=True, seed=3)
    for images, labels, ids in crops:
        for image, label, one in zip(images, labels, ids, strict=True):
            row = int((data.ids == one).nonzero())
            assert int(label) == int(data.labels[row])
            scale = torch.tensor(STD).view(3, 1, 1)
            source = (whole.decode(row) / 255 - torch.tensor(MEAN).view(3, 1, 1)) / scale
            found = [
                (top, left, flipped)
                for flipped in (False, True)
                for top in range(5)
                for left in range(5)
                if torch.allclose(
                    (source.flip(2) if flipped else source)[:, top : top + 16, left : left + 16], image, atol=1e-4
                )
            ]
            assert found
            windows.add(found[0])
    assert len(windows) > 5
    middle, _, ids = next(iter(Crops(data, 2, resized=20, side=16, training=False)))
    expected = (whole.decode(0)[:, 2:18, 2:18] / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(
        3, 1, 1
    )
    torch.testing.assert_close(middle[0], expected, atol=1e-5, rtol=0)
    assert ids.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"side must lie in \[1, 20\]"):
        Crops(data, 2, resized=20, side=21, training=False)


def test_a_backbone_leaves_the_head_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source, model = (models.create("resnet50", num_classes=classes, stem="small") for classes in (7, 14))
    safetensors.torch.save_file(source.state_dict(), tmp_path / "weights.safetensors")
    head = model.head.weight.clone()
    load_backbone(model, tmp_path / "weights.safetensors")
    assert torch.equal(model.layer1[0].conv1.weight, source.layer1[0].conv1.weight)
    assert torch.equal(model.head.weight, head)
    safetensors.torch.save_file({"conv1.weight": source.conv1.weight.detach()}, tmp_path / "part.safetensors")
    with pytest.raises(ValueError, match=r"bn1\.bias is missing"):
        load_backbone(model, tmp_path / "part.safetensors")


def test_weights_that_cannot_be_used_are_refused_in_a_sentence(tmp_path: Path) -> None:
    model = models.create("resnet20", num_classes=14)
    path = tmp_path / "weights.safetensors"
    with pytest.raises(FileNotFoundError, match="ImageNet network"):
        load_backbone(model, path)
    path.write_bytes(b"no weights")
    with pytest.raises(ValueError, match="must be a safetensors file"):
        load_backbone(model, path)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    safetensors.torch.save_file(state | {"conv1.weight": torch.zeros(16, 3, 7, 7)}, path)
    with pytest.raises(ValueError, match=r"conv1\.weight must have shape \[16, 3, 3, 3\], got \[16, 3, 7, 7\]"):
        load_backbone(model, path)


def test_smoke_from_files_to_rows(tmp_path: Path) -> None:
    options = Options(say=lambda line: None)
    run_study(studies.get("gr-table6"), "smoke", tmp_path, output=tmp_path / "records", only=["method=auto"],
              options=options)  # fmt: skip
    rows = read("gr-table6", tmp_path, "smoke")
    assert [row.settings for row in rows] == [{"method": "auto"}]
    assert 0 <= rows[0].metrics["last"] <= rows[0].metrics["best"] <= 1
    assert 0 <= rows[0].metrics["estimated_rate"] <= 1
    assert rows.points.num_rows == 4
