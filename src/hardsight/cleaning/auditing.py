"""`hs.audit`: which labels of a data set are probably wrong, from features, probabilities, scores or a run's record."""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from hardsight.cleaning.advice import Advice, advice_on, advise_folder
from hardsight.cleaning.applying import Rebuilt, rebuild
from hardsight.cleaning.audit_output import as_html, as_text, audited_table, details_of, export, write_audit
from hardsight.cleaning.confident import with_scores
from hardsight.cleaning.issues import LabelIssues, find_label_issues
from hardsight.cleaning.kinds import Count, Findings, find
from hardsight.cleaning.neighbours import SCORES_OF_FEATURES, Surroundings, margin_with_neighbours, surroundings
from hardsight.cleaning.reading import read_samples
from hardsight.cleaning.samples import Labelled, Samples
from hardsight.cleaning.sharded import find_issues_of_shards
from hardsight.cleaning.sources import Options, open_source
from hardsight.engines.images import thumbnails
from hardsight.files.parquet import is_sharded
from hardsight.hardness import SCORES
from hardsight.heads import fit_head, record_head
from hardsight.heads.fitting import check_no_class_alone
from hardsight.records import AUDIT_FILE, check_ids, read_table, require_column, write_table

THUMBNAILS_FILE = "thumbnails.parquet"


@dataclass(frozen=True)
class Audit:
    """What was found: `issues` as `find_label_issues` gives them, and `left_out`, id and reason of samples not judged.

    Printed, it is a summary with the ten most suspicious samples; in a notebook with their pictures or texts. `opened`
    is what was audited, whole; `scored` are the samples that were judged, with their scores.
    """

    opened: Samples
    scored: Samples
    issues: LabelIssues
    findings: Findings
    left_out: pa.Table

    @property
    def table(self) -> pa.Table:
        """One row per sample, most suspicious first: id, label, expected, suspicion, reasons, scores, what is shown."""
        found = audited_table(self.scored, self.issues, self.findings)
        first = self.issues.table.column_names
        return found.select([*first, *(name for name in found.column_names if name not in first)])

    def to_pandas(self) -> Any:
        """`table` as a pandas.DataFrame."""
        return self.table.to_pandas()

    def save(self, folder: Path | str, *, page: bool = True) -> Path:
        """Write what `hardsight audit` writes: table.parquet, actions.csv, audit.json, and report.html.

        The page is left out of score shards, and where matplotlib or jinja2 is not installed. `hardsight audit FOLDER
        --apply FOLDER/actions.csv` then gives the labels as the edited list says.
        """
        folder = Path(folder)
        write_audit(self, folder)
        if page and self.issues.of is None and all(importlib.util.find_spec(name) for name in ("jinja2", "matplotlib")):
            from hardsight.report import samples_shown, write_report

            recorded = None if self.scored.path is None else self.scored.path / THUMBNAILS_FILE
            if self.opened.images is not None:
                write_table(folder / THUMBNAILS_FILE, thumbnails(self.opened.images, samples_shown(folder)))
            elif recorded is not None and recorded.is_file():
                write_table(folder / THUMBNAILS_FILE, read_table(recorded))
            write_report(folder)
        return folder

    def apply(self, actions: Path | str, to: Path | str, *, files: str = "link") -> Rebuilt:
        """Apply an edited list, and write the data as it is then: `hardsight.cleaning.rebuild`."""
        return rebuild(self.opened, actions, to, files=files)

    def export(self, folder: Path | str, form: str) -> Path:
        """Write the table as another tool opens it: fiftyone, spotlight or label-studio."""
        return export(self, folder, form)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)


def audit(
    source: Any = None,
    *,
    labels: Any = None,
    features: Any = None,
    probabilities: Any = None,
    backbone: str | None = None,
    label: str = "label",
    text: str | None = None,
    show: Sequence[str] = (),
    layout: str | None = None,
    split: str | None = None,
    size: int | None = None,
    folds: int = 5,
    groups: Any = None,
    class_names: Sequence[str] | None = None,
    score: str | Sequence[str] | None = None,
    estimate: str = "auto",
    estimator: Any = None,
    seed: int = 0,
    cache: Path | str | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> Audit:
    """Rank samples by how little their labels fit, and estimate how many are wrong.

    `source` is a table that speaks Arrow (pandas, polars, pyarrow), whose columns `label`, `features`, `probabilities`,
    `text`, `groups` and `show` name; a folder of images or a data set by name (`layout`, `split`: `hardsight data
    list`); a table of scores; or the path of one of these, of an .npz or safetensors file, of a run's record, or of
    score shards (their most suspicious samples). It is left out where `labels` come beside `features` or
    `probabilities` (tensors, arrays, `numpy.memmap`). Labels are text or whole numbers; text beside probabilities is
    numbered in the order of `class_names`, else sorted. `features` may also name several columns of a table, or "all":
    numbers are brought to one scale, categories get a column each.

    `backbone` turns images (in its own `size`, or that one) or the column `text` into features: `timm:NAME@FILE`,
    `hf:FOLDER`, `package:NAME`; nothing is downloaded. `cache`, a folder, keeps them for the next time.

    Features are judged by heads that never saw the sample (`fit_head`, which takes `folds`, `groups`, `estimator` and
    `seed`): they count the wrong labels. Samples are ranked by the labels of their neighbours in angle, together with
    what a small network believed while it learned (`record_head`), or what the heads say where there are groups or an
    estimator; `score` names what to rank by instead. Probabilities should be of models that did not train on the
    sample; with features too they stand in the heads' place. Samples with NaN in their row, or without a label, are
    left out and listed.

    >>> import torch
    >>> import hardsight as hs
    >>> labels = torch.arange(60) % 3
    >>> features = torch.nn.functional.one_hot(labels).float() + 0.1 * torch.rand(60, 3)
    >>> labels[7] = 2
    >>> hs.audit(labels=labels, features=features).issues.suspects()["id"].to_pylist()
    [7]
    """
    options = Options(label, features, probabilities, backbone, text, show, groups, class_names, layout, split, size,
                      None if cache is None else Path(cache), device, progress)  # fmt: skip
    return of_opened(open_source(source, options, labels), score, estimate, folds=folds, estimator=estimator, seed=seed)


def of_opened(
    opened: Samples, score: str | Sequence[str] | None = None, estimate: str = "auto", **fitting: Any
) -> Audit:
    """The audit of what was opened; `fitting` goes to `fit_head`."""
    if isinstance(opened, Labelled):
        return _of_labelled(opened, score, estimate, **fitting)
    if opened.path is not None and is_sharded(opened.path):
        scored, issues = find_issues_of_shards(opened.path, score, estimate)
        counted = Findings(counts={"mislabelled": Count(issues.estimated)})
        return Audit(opened, scored, issues, counted, pa.table({"id": [], "reason": []}))
    for column in ("id", "label"):
        require_column(opened.table, column)
    ids, label = opened.table.column("id"), opened.table.column("label")
    check_ids(ids)
    # Names are of classes as numbers.
    names = opened.class_names if pa.types.is_integer(label.type) else None
    issues, findings = find(opened, find_label_issues(opened.table, score, class_names=names, estimate=estimate))
    left_out = pa.table({"id": ids.filter(label.is_null()), "reason": pa.repeat("no label", label.null_count)})
    return Audit(opened, opened, issues, findings, left_out)


def _of_labelled(opened: Labelled, score: str | Sequence[str] | None, estimate: str, **fitting: Any) -> Audit:
    """The audit of labels beside features or probabilities."""
    kept, left_out = opened.judged()
    table, beliefs, around, notes = _evidence(kept, **fitting)
    names = kept.class_names
    issues = find_label_issues(table, score, class_names=names, probabilities=beliefs, estimate=estimate)
    # Where numbers stand for classes that were given as text, these are their names.
    scored = Samples(table=table, class_names=names or [str(one) for one in kept.classes.to_pylist()],
                     name=opened.name, path=opened.path)  # fmt: skip
    issues, findings = find(scored, issues, beliefs=beliefs, around=around, notes=notes)
    if names is None:
        issues = replace(issues, table=_with_classes(issues.table, kept.classes))
        scored = replace(scored, table=_with_classes(table, kept.classes), class_names=None)
    if opened.unusable:
        # Images that could not be read have no features, or no row at all; either way the reason is the image's.
        listed = {row["id"]: row["reason"] for row in left_out.to_pylist()} | dict(opened.unusable)
        left_out = pa.table({"id": list(listed), "reason": list(listed.values())}, left_out.schema)
    return Audit(opened, scored, issues, findings, left_out)


def _evidence(
    kept: Labelled, *, folds: int = 5, estimator: Any = None, seed: int = 0
) -> tuple[pa.Table, Tensor, Surroundings | None, tuple[str, ...]]:
    """The table with all scores, what is believed, what features say; or why they say nothing."""
    labels, classes = torch.from_numpy(kept.codes), len(kept.classes)
    table, head = kept.table.set_column(1, "label", pa.array(kept.codes)), None
    if "predicted" in table.column_names:
        at = table.column_names.index("predicted")
        table = table.set_column(at, "predicted", pc.index_in(table.column(at), kept.classes).cast(pa.int64()))
    if kept.probabilities is None:
        check_no_class_alone(labels, kept.classes.to_pylist())
        head = fit_head(kept.features, labels, folds, groups=kept.groups, num_classes=classes, estimator=estimator,
                        seed=seed)  # fmt: skip
    given = kept.probabilities if head is None else head.probabilities()
    beliefs = given if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    table = with_scores(table, beliefs)
    if head is not None and head.weight is not None:
        wanted = [one for one in ("avh", "angular_margin") if one not in table.column_names]
        for one, values in head.score(wanted).items() if wanted else ():
            field = pa.field(one, pa.float64(), metadata=SCORES[one].describe(classes))
            table = table.append_column(field, pa.array(values.double().numpy()))
    if kept.features is None or len(labels) < 2:
        return table, beliefs, None, ()
    try:
        around = surroundings(kept.features, labels, kept.groups)
    except ImportError as missing:
        # Of very many samples they need a library that may be absent.
        return table, beliefs, None, (f"neighbours, near duplicates and outliers were not looked for: {missing}",)
    said = beliefs
    # A network that saw all samples would have learned a sample's label from others of its group.
    if head is not None and estimator is None and kept.groups is None:
        said = (2 * record_head(kept.features, labels, num_classes=classes, seed=seed) + beliefs) / 3
    scores = around.scores | {"margin_with_neighbours": margin_with_neighbours(around, said, labels)}
    for name, numbers in scores.items():
        table = table.append_column(pa.field(name, pa.float64(), metadata=SCORES_OF_FEATURES[name]), pa.array(numbers))
    return table, beliefs, around, ()


def _with_classes(table: pa.Table, classes: pa.Array) -> pa.Table:
    """The classes as they were given, where numbers stood for them."""
    for name in ("label", "expected", "predicted"):
        if name in table.column_names:
            column = classes.take(table.column(name).combine_chunks())
            table = table.set_column(table.column_names.index(name), name, column)
    return table


def advise(source: Path | str | Audit) -> Advice:
    """Advice on an audit's folder, a run's record, a table of scores with labels, or an `Audit`.

    A run or a table without an audit is audited first, in memory.
    """
    if not isinstance(source, Audit):
        if (Path(source) / AUDIT_FILE).is_file():
            return advise_folder(source)
        source = of_opened(read_samples(source))
    if source.issues.of is not None:
        raise ValueError("source must be audited whole for advice; of score shards only the most suspicious are listed")
    scored = source.scored
    return advice_on(source.table, details_of(source)["results"], scored.path or Path(scored.name))
