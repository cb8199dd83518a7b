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
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from hardsight.datasets.interface import FileDataset
from hardsight.engines.images import Images, PreparedBatches
from hardsight.engines.model_spec import PACKAGES, EfficientNetLite0, from_folder, load_model, quiet
from hardsight.engines.preprocessing import Preprocessing, from_huggingface
from hardsight.engines.streaming import progress_bar, reason_of
from hardsight.heads import evaluating, observe
from hardsight.records import atomic_path, read_json
from hardsight.validation import check_device

FEATURES_FILE = "features.safetensors"
_AT_ONCE = 64
_LITE0 = ("efficientnet_lite0", *PACKAGES)


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
                    f"backbone must be hf:FOLDER or package:NAME to encode texts; {backbone} is one of images"
                )
            encoder = _of_texts(Path(name))
        elif kind == "":
            model = EfficientNetLite0(2)
            encoder = Encoder(model, model.forward_features, model.preprocessing)
        else:
            architectures = _said(Path(name), "config").get("architectures") if kind == "hf" else None
            classifies = kind != "hf" or str((architectures or [""])[0]).endswith("ForImageClassification")
            encoder = _below_the_head(kind, name) if classifies else _of_images(Path(name))
    encoder.model.eval()
    return encoder


def identity(backbone: str) -> str:
    """What tells one backbone's weights from another's without loading them: its name, its files and their dates."""
    kind, name = _parts(backbone)
    files: list[Path] = []
    said = [backbone]
    if kind == "package":
        module = name.replace("-", "_")
        for package in PACKAGES if module in _LITE0 else (module,):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                said.append(importlib.metadata.version(package))
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
        forms = "timm:NAME[@FILE], hf:FOLDER, package:NAME, torchvision:NAME[@FILE] or package.module:factory"
        raise ValueError(f"backbone must be {forms}; got {backbone!r}")
    return kind, name


@contextlib.contextmanager
def _without_network(backbone: str) -> Iterator[None]:
    """Weights that are not here are an error at once, and not a download of minutes or a time-out."""

    with contextlib.ExitStack() as stack:
        downloaded = OSError("it would be downloaded")
        stack.enter_context(mock.patch("torch.hub.download_url_to_file", side_effect=downloaded))
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
            raise ValueError(
                f"backbone must have its weights on this machine; those of {backbone} would have to be downloaded: "
                f"give them as {backbone.partition('@')[0]}@FILE"
            ) from None


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
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"backbone must name an installed package; {package} is not: pip install {package}")
    configs = {file.parent for place in found.submodule_search_locations for file in Path(place).rglob("config.json")}
    folders = sorted(one for one in configs if {*one.glob("*.safetensors"), *one.glob("pytorch_model*.bin")})
    if len(folders) != 1:
        listed = ", ".join(map(str, folders)) or "none"
        raise ValueError(
            f"backbone must name a package with one model's folder (config.json beside weights); {package} holds "
            f"{listed}: write hf:FOLDER, or package.module:factory"
        )
    return folders[0]


def _of_images(folder: Path) -> Encoder:
    model, without_pooler = from_folder(folder, "AutoModel", "an encoder of images", "pooler")
    model.float()

    def encode(images: Tensor) -> Tensor:
        if hasattr(model, "get_image_features"):
            given = model.get_image_features(pixel_values=images)
            return _flat(given if isinstance(given, Tensor) else given.pooler_output)
        given = model(pixel_values=images)
        if getattr(given, "pooler_output", None) is not None and not without_pooler:
            return torch.flatten(given.pooler_output, 1)
        # A pooler that was never trained says nothing: the first token, which classifiers read, or the mean of places.
        hidden: Tensor = given.last_hidden_state
        return hidden[:, 0] if hidden.ndim == 3 else _flat(hidden)

    return Encoder(model, encode, from_huggingface(folder))


def _of_texts(folder: Path) -> Encoder:
    model = from_folder(folder, "AutoModel", "an encoder of texts", "pooler")[0].float()
    transformers = importlib.import_module("transformers")
    try:
        with quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # likewise
        raise ValueError(f"{folder} must hold the tokenizer of an encoder of texts: {reason_of(error)}") from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    limits = (_said(folder, "sentence_bert_config").get("max_seq_length"), tokenizer.model_max_length, 512,
              _said(folder, "config").get("max_position_embeddings"))  # fmt: skip
    longest = min(one for one in limits if isinstance(one, int) and one > 0)
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


# ---------------------------------------------------------------------------------------------------------------------
# Features of images and texts, kept in a file so that the same ones are not computed again.


def features_of_images(
    images: Images,
    backbone: str,
    *,
    size: int | None = None,
    cache: Path | None = None,
    device: torch.device | str | None = None,
    workers: int = 0,
    progress: bool | None = None,
) -> tuple[Tensor, dict[int, str]]:
    """Pooled features [samples, dim] of all images, and by id why one has none: its row is NaN.

    `size` takes the place of the encoder's own input size, which is quicker where it is smaller. `cache` is a folder.
    """

    unreadable: dict[int, str] = {}

    def batches_of_features() -> Iterator[tuple[list[int], Tensor]]:
        encoder = load_encoder(backbone)
        assert encoder.preprocessing is not None
        wanted = encoder.preprocessing.changed(size=None if size is None else (size, size))
        place = {one: at for at, one in enumerate(images.ids.tolist())}
        on, batches = check_device(device or "cpu"), PreparedBatches(images, wanted, _AT_ONCE, workers, labelled=False)
        batches.first()
        with evaluating(encoder.model.to(on)), progress_bar(batches, progress, "encoding") as step:
            for pixels, _, ids in batches:
                try:
                    features = encoder.encode(pixels.to(on))
                except torch.OutOfMemoryError:
                    raise
                except (RuntimeError, ValueError, AssertionError) as error:
                    raise ValueError(
                        f"backbone must take images of {list(pixels.shape[2:])} pixels, or size be another; {backbone} "
                        f"ended in: {reason_of(error)}"
                    ) from None
                yield [place.pop(one) for one in ids.tolist()], features
                step(1)
        unreadable.update(zip(place, batches.skipped, strict=False))

    # What tells these images from others: the files' names, sizes and dates, or the pixels themselves.
    digest = hashlib.sha256()
    if isinstance(images, FileDataset):
        for path in images.paths:
            file = images.root / path
            state = file.stat() if file.is_file() else None
            digest.update(f"{path}\0{state and state.st_size}\0{state and state.st_mtime_ns}\n".encode())
    else:
        digest.update(images.images.contiguous().numpy().tobytes())
    key = "\n".join((identity(backbone), str(size), digest.hexdigest()))
    return _cached(cache, key, len(images), batches_of_features, unreadable)


def features_of_texts(
    texts: Sequence[str | None],
    backbone: str,
    *,
    cache: Path | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> Tensor:
    """Pooled features [samples, dim] of all texts; a missing one has a row of NaN."""

    def batches_of_features() -> Iterator[tuple[list[int], Tensor]]:
        encoder = load_encoder(backbone, "texts")
        on = check_device(device or "cpu")
        # Texts of one length share a batch, which then has little padding.
        order = sorted((at for at, text in enumerate(texts) if text is not None), key=lambda at: len(texts[at] or ""))
        if not order:
            raise ValueError(f"text must be filled for at least one sample; got {len(texts)}, none of them filled")
        batches = [order[start : start + _AT_ONCE] for start in range(0, len(order), _AT_ONCE)]
        with evaluating(encoder.model.to(on)), progress_bar(batches, progress, "encoding") as step:
            for batch in batches:
                yield batch, encoder.encode([str(texts[at]) for at in batch])
                step(1)

    digest = hashlib.sha256()
    for text in texts:
        digest.update(b"\0" if text is None else b"\1" + text.encode("utf-8", "surrogatepass") + b"\0")
    key = "\n".join((identity(backbone), digest.hexdigest()))
    return _cached(cache, key, len(texts), batches_of_features, {})[0]


def _cached(
    folder: Path | None,
    said: str,
    samples: int,
    make: Callable[[], Iterator[tuple[list[int], Tensor]]],
    unreadable: dict[int, str],
) -> tuple[Tensor, dict[int, str]]:
    """The features of what is said, and who has none, as they lie in the folder; else they are made, and left there.

    `make` gives places among the samples and their features; what never comes is NaN.
    """
    key = hashlib.sha256(said.encode()).hexdigest()
    path = None if folder is None else Path(folder) / FEATURES_FILE
    if path is not None:
        # What is damaged, or of other samples, is written again.
        with contextlib.suppress(SafetensorError, ValueError, OSError), safe_open(path, "pt") as file:
            written = file.metadata() or {}
            if written.get("made of") == key:
                found = {int(one): why for one, why in json.loads(written["unreadable"]).items()}
                return file.get_tensor("features"), found
    features: Tensor | None = None
    for places, some in make():
        features = torch.full((samples, some.shape[1]), torch.nan) if features is None else features
        features[places] = some.float().cpu()
    assert features is not None
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as draft:
            save_file({"features": features}, draft, {"made of": key, "unreadable": json.dumps(unreadable)})
    return features, unreadable
