"""A user's own classifier from one line: `timm:NAME`, `hf:FOLDER`, `torchvision:NAME`, `package.module:factory`.

What each builds, and where its preprocessing comes from, is in `docs/model.md`.
"""

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from hardsight.engines.preprocessing import (
    Preprocessing,
    from_huggingface,
    from_timm,
    from_torchvision,
    preprocessing_of,
    record_of,
)
from hardsight.models import create
from hardsight.models.weights import load_weights
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
    build = _BUILDERS.get(kind, functools.partial(_from_factory, kind))
    loaded = build(name, weights is None, num_classes)
    if weights is not None:
        heads = getattr(loaded.model, "pretrained_cfg", {}).get("classifier") or () if num_classes == 0 else ()
        load_weights(loaded.model, weights, (heads,) if isinstance(heads, str) else tuple(heads))
        loaded = _as_recorded(loaded, weights)
    loaded.model.eval()
    return replace(loaded, spec=spec)


def _as_recorded(loaded: LoadedModel, weights: Path | str) -> LoadedModel:
    """With the preprocessing and class names of the training that these weights are a checkpoint of."""
    record = record_of(weights)
    run = {} if record is None else read_run(record) or {}
    preprocessing, names = preprocessing_of(run), run.get("class_names")
    if preprocessing is not None:
        loaded = replace(loaded, preprocessing=preprocessing, assumed=(), record=record)
    if isinstance(names, list) and names and loaded.class_names is None:
        loaded = replace(loaded, class_names=tuple(map(str, names)))
    return loaded


def _from_timm(name: str, pretrained: bool, num_classes: int | None) -> LoadedModel:
    timm = import_or_say("timm", f"timm:{name}", "timm")
    published = timm.get_pretrained_cfg(name) if pretrained and num_classes is not None else None
    if published is not None and num_classes not in (0, published.num_classes):
        # timm would draw that head at random, after it has downloaded the rest.
        raise ValueError(f"weights must be given with num_classes: without them timm:{name}'s head has learned nothing")
    options = {} if num_classes is None else {"num_classes": num_classes}
    try:
        model = timm.create_model(name, pretrained=pretrained, **options)
    except Exception as error:  # timm, its hub and their libraries fail in many types
        raise ValueError(f"timm could not build {name!r}: {first_line(error)}") from None
    configuration = getattr(model, "pretrained_cfg", {})
    names = configuration.get("label_names") if num_classes is None else None
    return LoadedModel(model, from_timm(configuration), tuple(names) if names else None, "")


def _from_huggingface(name: str, pretrained: bool, num_classes: int | None) -> LoadedModel:
    folder = Path(name)
    _refuse_num_classes(f"hf:{name}", num_classes)
    model, _ = from_folder(folder, "AutoModelForImageClassification", "an image classifier")
    # A processor saved as part of another file says what it wants, too, and is rejected rather than passed over.
    said = any(folder.glob("*processor_config.json"))
    preprocessing, assumed = (from_huggingface(folder), ()) if said else _own_preprocessing(model)
    return LoadedModel(model, preprocessing, _own_names(model), "", assumed)


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
        raise ValueError(f"{folder} does not load as {wanted}: {first_line(error)}") from None
    missing = sorted(loading.get("missing_keys", ()))
    # transformers would draw them at random and say so in a warning: such a layer has learned nothing.
    lost = next((name for name in missing if may_lack is None or may_lack not in name), None)
    if lost is not None:
        raise ValueError(f"{folder} must hold all weights of {wanted}; {lost} is missing")
    return model, bool(missing)


def _from_torchvision(name: str, pretrained: bool, num_classes: int | None) -> LoadedModel:
    models = import_or_say("torchvision.models", f"torchvision:{name}", "torchvision")
    try:
        published = models.get_model_weights(name).DEFAULT
        options = {} if num_classes is None else {"num_classes": num_classes}
        model = models.get_model(name, weights=published if pretrained else None, **options)
    except Exception as error:  # unknown names and failed downloads come in many types
        raise ValueError(f"torchvision could not build {name!r}: {first_line(error)}") from None
    names = published.meta.get("categories") if num_classes is None else None
    return LoadedModel(model, from_torchvision(published.transforms()), tuple(names) if names else None, "")


def _from_hardsight(name: str, pretrained: bool, num_classes: int | None) -> LoadedModel:
    model = create(name, num_classes=num_classes)
    if pretrained:
        raise ValueError(f"weights must be given for hardsight:{name}: without them the network has learned nothing")
    preprocessing, assumed = _own_preprocessing(model)
    return LoadedModel(model, preprocessing, None, "", assumed)


def _from_factory(module_name: str, factory_name: str, pretrained: bool, num_classes: int | None) -> LoadedModel:
    _refuse_num_classes(f"{module_name}:{factory_name}", num_classes)
    # The factory, too, may import what lies beside its module.
    with _working_directory_importable():
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
            raise ValueError(
                "model must name a class, a function or a model of the module "
                f"{module_name!r}; it has no {factory_name!r} to call{hint}"
            )
        try:
            # A model that is built already is also callable, and not meant to be called without images.
            model = factory if isinstance(factory, nn.Module) else factory()
        except Exception as error:  # likewise
            raise ValueError(f"{module_name}:{factory_name}() must build a model; {_what_and_where(error)}") from error
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"{module_name}:{factory_name} must return a torch.nn.Module; it returned {type(model).__name__}"
        )
    preprocessing, assumed = _own_preprocessing(model)
    return LoadedModel(model, preprocessing, _own_names(model), "", assumed)


def _own_names(model: nn.Module) -> tuple[str, ...] | None:
    """The names a model says its classes have: its `class_names`, or the `config.id2label` of Hugging Face's."""
    names = getattr(model, "class_names", None)
    numbered = getattr(getattr(model, "config", None), "id2label", None)
    if not names and isinstance(numbered, Mapping):
        names = [numbered[at] for at in sorted(numbered)]
    return tuple(map(str, names)) if names else None


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


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    """`python -m` finds a module beside the caller; an installed command would not."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def import_or_say(module: str, spec: str, wanted: str) -> Any:
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError, OSError) as error:
        # A torchvision built for another torch fails with a RuntimeError: it is there, and cannot be used.
        raise ImportError(
            f"{spec} needs {module.split('.')[0]}, which does not import ({first_line(error)}): pip install {wanted}"
        ) from None


def _refuse_num_classes(spec: str, num_classes: int | None) -> None:
    if num_classes is not None:
        raise ValueError(f"num_classes must be left out for {spec}, which sizes its own head; got {num_classes}")


def _what_and_where(error: BaseException) -> str:
    """The error in one line, with the line that raised it where that is a user's."""
    said, last = f"{type(error).__name__}: {first_line(error)}", traceback.extract_tb(error.__traceback__)[-1]
    nobodys = last.filename == __file__ or last.filename.startswith("<")
    return said if nobodys else f"{said} ({Path(last.filename).name}, line {last.lineno})"


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


_BUILDERS: dict[str, Callable[[str, bool, int | None], LoadedModel]] = {
    "timm": _from_timm,
    "hf": _from_huggingface,
    "torchvision": _from_torchvision,
    "hardsight": _from_hardsight,
}
