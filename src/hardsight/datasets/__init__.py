"""Readers of the standard public layouts, one small file each, behind one interface.

`load(name, split, root)` finds a set below the root or `$HARDSIGHT_DATA`; a `read_...` function takes its folder.
"""

from hardsight.datasets.hierarchy import Hierarchy, human_selection_frequency, read_hierarchy
from hardsight.datasets.interface import ArrayDataset, FileDataset, Skipped
from hardsight.datasets.registry import load, names, source

__all__ = [
    "ArrayDataset",
    "FileDataset",
    "Hierarchy",
    "Skipped",
    "human_selection_frequency",
    "load",
    "names",
    "read_hierarchy",
    "source",
]
