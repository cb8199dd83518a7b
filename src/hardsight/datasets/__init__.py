"""Readers of the standard public layouts, one small file each, behind one interface.

`load(name, split, root)` finds a set below the root or `$HARDSIGHT_DATA`; a `read_...` function takes its folder.
"""

from hardsight.datasets.archives import unpack
from hardsight.datasets.cifar import CIFAR10_HIERARCHY, CIFAR100_HIERARCHY
from hardsight.datasets.digits import two_gaussians_on_sphere
from hardsight.datasets.folders import read_image_folder, read_image_list
from hardsight.datasets.hierarchy import Hierarchy, human_selection_frequency, read_hierarchy
from hardsight.datasets.interface import ArrayDataset, FileDataset, Skipped
from hardsight.datasets.registry import check, load, names, source

__all__ = [
    "CIFAR10_HIERARCHY", "CIFAR100_HIERARCHY", "ArrayDataset", "FileDataset", "Hierarchy", "Skipped", "check",
    "human_selection_frequency", "load", "names", "read_hierarchy", "read_image_folder", "read_image_list",
    "source", "two_gaussians_on_sphere", "unpack",
]  # fmt: skip
