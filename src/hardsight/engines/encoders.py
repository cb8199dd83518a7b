"""Encoders by name: what turns images or texts into features, with weights that are on this machine.

| backbone | what is built | preprocessing from |
|---|---|---|
| `timm:NAME`, `timm:NAME@FILE` | timm's model without its head; weights from its cache, or from FILE | its `pretrained_cfg` |
| `hf:FOLDER` | what `save_pretrained` left there, of images or of texts | its processor's or tokenizer's files |
| `package:NAME` | `efficientnet_lite0`, or the one Hugging Face folder inside an installed package | likewise |
| `torchvision:NAME[@FILE]`, `hardsight:NAME@FILE`, `package.module:factory` | a classifier: what its head receives | as `load_model` says |
"""  # noqa: E501 a table's row

import contextlib
import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from hardsight.engines.backbone import BACKBONE_MEAN, BACKBONE_STD, PACKAGES, EfficientNetLite0
from hardsight.engines.model_spec import first_line, from_folder, import_or_say, load_model, quiet
from hardsight.engines.preprocessing import Preprocessing, from_huggingface
from hardsight.heads import observe
from hardsight.records import read_json

_LITE0 = ("efficientnet_lite0", *PACKAGES)
_FORMS = "timm:NAME[@FILE], hf:FOLDER, package:NAME, torchvision:NAME[@FILE] or package.module:factory"


@dataclass(frozen=True)
class Encoder:
    """A model without its head, in evaluation mode: `encode` turns a batch into features [batch, dim].

    Of images `preprocessing` says what a batch must be; a batch of texts is a list of them.
    """

    model: nn.Module
    encode: Callable[[Any], Tensor]
    preprocessing: Preprocessing | None = None


def load_encoder(backbone: str, of: str = "images") -> Encoder:
    """The encoder that BACKBONE names, `of` images or texts; nothing is downloaded."""
    kind, name = _parts(backbone)
    with _without_network(backbone), torch.random.fork_rng(devices=[]):
        if kind == "package":
            kind, name = ("", name) if name.replace("-", "_") in _LITE0 else ("hf", str(_folder_inside(name)))
        if of == "texts":
            if kind != "hf":
                raise ValueError(
                    f"backbone must be an encoder of texts, hf:FOLDER or package:NAME; {backbone} is one of images"
                )
            encoder = _of_texts(Path(name))
        elif kind == "":
            encoder = _lite0()
        elif kind == "hf" and not _is_classifier(Path(name)):
            encoder = _of_images(Path(name))
        else:
            encoder = _below_the_head(kind, name)
    encoder.model.eval()
    return encoder


def identity(backbone: str) -> str:
    """What tells one backbone's weights from another's without loading them: its name, its files and their dates."""
    kind, name = _parts(backbone)
    files: list[Path] = []
    said = [backbone]
    if kind == "package":
        module = name.replace("-", "_")
        packages = PACKAGES if module in _LITE0 else (module,)
        said += [str(_version(one)) for one in packages]
    elif kind == "hf":
        files = sorted(one for one in Path(name).rglob("*") if one.is_file())
    elif "@" in name:
        files = [Path(name.partition("@")[2])]
    elif kind not in ("timm", "torchvision", "hardsight"):
        found = importlib.util.find_spec(kind) if kind.replace(".", "").isidentifier() else None
        files = [Path(found.origin)] if found is not None and found.origin else []
    for file in files:
        if file.is_file():
            state = file.stat()
            said.append(f"{file} {state.st_size} {state.st_mtime_ns}")
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _parts(backbone: str) -> tuple[str, str]:
    kind, _, name = backbone.partition(":")
    if not kind or not name:
        raise ValueError(f"backbone must be {_FORMS}; got {backbone!r}")
    return kind, name


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@contextlib.contextmanager
def _without_network(backbone: str) -> Iterator[None]:
    """Weights that are not here are an error at once, and not a download of minutes or a time-out."""

    def stay_offline(url: str, *_: Any, **__: Any) -> None:
        raise OSError(f"{url} would be downloaded")

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("torch.hub.download_url_to_file", stay_offline))
        if importlib.util.find_spec("huggingface_hub") is not None:
            import huggingface_hub.constants

            stack.enter_context(mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", True))
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            # Their own sentences are long, and advise what cannot be done here.
            told = str(error).lower()
            if not any(sign in told for sign in ("would be downloaded", "offline", "local_files_only", "cached")):
                raise
            kind, name = _parts(backbone)
            raise ValueError(
                f"backbone must have its weights on this machine; those of {backbone} would have to be downloaded: "
                f"give them as {kind}:{name.partition('@')[0]}@FILE"
            ) from None


def _lite0() -> Encoder:
    model = EfficientNetLite0(2)
    # As its authors evaluate it: 32 pixels are cut off.
    wanted = Preprocessing((224, 224), 256, "bicubic", BACKBONE_MEAN, BACKBONE_STD)
    return Encoder(model, model.forward_features, wanted)


def _below_the_head(kind: str, name: str) -> Encoder:
    """A classifier of any kind: what its last linear layer receives; timm builds models without one."""
    spec, _, file = name.partition("@") if kind != "hf" else (name, "", "")
    loaded = load_model(f"{kind}:{spec}", file or None, num_classes=0 if kind == "timm" else None)

    def encode(images: Tensor) -> Tensor:
        if kind == "timm":
            return _flat(loaded.model(images))
        with observe(loaded.model) as seen:
            loaded.model(images)
        return _flat(seen.features)

    return Encoder(loaded.model, encode, loaded.preprocessing)


def _flat(features: Tensor) -> Tensor:
    """Channels averaged over places, tokens over the sequence, where the model left them."""
    if features.ndim == 4:
        return features.mean((2, 3))
    return features.mean(1) if features.ndim == 3 else features


# ---------------------------------------------------------------------------------------------------------------------
# Hugging Face's folders.


def _folder_inside(package: str) -> Path:
    """The one folder of a model in an installed package; the package itself is not run."""
    module = package.replace("-", "_")
    found = importlib.util.find_spec(module) if module.isidentifier() else None
    places = list(found.submodule_search_locations or ()) if found is not None else []
    if not places:
        raise ModuleNotFoundError(f"backbone must name an installed package; {package} is not: pip install {package}")
    folders = sorted({file.parent for place in places for file in Path(place).rglob("config.json") if _holds(file)})
    if len(folders) != 1:
        listed = ", ".join(map(str, folders)) or "none"
        raise ValueError(
            f"backbone must name a package with one model's folder (config.json beside weights); {package} holds "
            f"{listed}: write hf:FOLDER, or package.module:factory"
        )
    return folders[0]


def _holds(config: Path) -> bool:
    return any(next(config.parent.glob(ending), None) is not None for ending in ("*.safetensors", "pytorch_model*.bin"))


def _is_classifier(folder: Path) -> bool:
    return str((_said(folder, "config").get("architectures") or [""])[0]).endswith("ForImageClassification")


def _of_images(folder: Path) -> Encoder:
    model, without_pooler = from_folder(folder, "AutoModel", "an encoder of images", "pooler")
    model.float()

    def encode(images: Tensor) -> Tensor:
        if hasattr(model, "get_image_features"):
            given = model.get_image_features(pixel_values=images)
            return _flat(given if isinstance(given, Tensor) else given.pooler_output)
        given = model(pixel_values=images)
        pooled = getattr(given, "pooler_output", None)
        if pooled is not None and not without_pooler:
            return torch.flatten(pooled, 1)
        # A pooler that was never trained says nothing: the first token, which classifiers read, or the mean of places.
        hidden: Tensor = given.last_hidden_state
        return hidden[:, 0] if hidden.ndim == 3 else _flat(hidden)

    return Encoder(model, encode, from_huggingface(folder))


def _of_texts(folder: Path) -> Encoder:
    transformers = import_or_say("transformers", f"hf:{folder}", "transformers")
    config = _said(folder, "config")
    model = from_folder(folder, "AutoModel", "an encoder of texts", "pooler")[0].float()
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # likewise
        raise ValueError(f"{folder} must hold the tokenizer of an encoder of texts: {first_line(error)}") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    limits = (_said(folder, "sentence_bert_config").get("max_seq_length"), config.get("max_position_embeddings"))
    longest = min([one for one in (*limits, tokenizer.model_max_length, 512) if isinstance(one, int) and one > 0])
    pooling = _said(folder, "1_Pooling/config")
    unit = (folder / "2_Normalize").exists() or "models.Normalize" in str(_said(folder, "modules"))

    def encode(texts: list[str]) -> Tensor:
        tokens = tokenizer(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        tokens = tokens.to(next(model.parameters()).device)
        if hasattr(model, "get_text_features"):
            given = model.get_text_features(**tokens)
            return _flat(given if isinstance(given, Tensor) else given.pooler_output)
        hidden, mask = model(**tokens).last_hidden_state, tokens["attention_mask"].unsqueeze(-1)
        if pooling.get("pooling_mode_cls_token"):
            pooled = hidden[:, 0]
        elif pooling.get("pooling_mode_max_tokens"):
            pooled = hidden.masked_fill(mask == 0, -torch.inf).amax(1)
        else:
            pooled = (hidden * mask).sum(1) / mask.sum(1).clamp_min(1)
        return nn.functional.normalize(pooled, dim=1) if unit else pooled

    return Encoder(model, encode)


def _said(folder: Path, name: str) -> dict[str, Any]:
    """What one of the folder's files of JSON says; nothing where there is none. A list is under its own name."""
    file = folder / f"{name}.json"
    found = read_json(file) if file.is_file() else {}
    return found if isinstance(found, dict) else {name: found}
