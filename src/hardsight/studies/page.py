"""The page of the studies, made from the results files: `docs/studies.md`."""

from pathlib import Path

from hardsight.studies.framework import PRESETS, read_results, results_path
from hardsight.studies.registry import studies

HEAD = """# Studies

Each study is one file in `hardsight/studies`, read top to bottom, and one command. Its cells are records: running it
again computes only what is missing, on any number of machines. What is printed here is made from the files in
`results/`, which hold every number with its seeds, spread, hardware, versions and date.

```console
$ hardsight study list
$ hardsight study run label-errors --preset smoke     # seconds, on scikit-learn's digits
$ hardsight study table label-errors
```

`--preset cpu` takes minutes on two cores, on real data below `$HARDSIGHT_DATA`; `--preset paper` wants a GPU.
`--limit-seconds N` stops cleanly in time, `--at-once K` trains K cells together, `--cells WORD` picks some.
Computed elsewhere, records come home in a few files: `--pack-to FOLDER` there, `hardsight study import` here.

"""


def studies_page(results: Path | str) -> str:
    """The page, with the table of the largest preset that was run of each study."""
    parts = [HEAD]
    for study in studies():
        parts.append(f"## {study.id}: {study.title}\n\n{study.about}\n\n")
        measured = [preset for preset in PRESETS if results_path(study, preset, results).is_file()]
        parts.append(study.table(read_results(study, results)) if measured else "Not measured yet.\n")
    return "".join(parts)
