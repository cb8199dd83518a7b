"""The public data sets that have a reader: their folders, splits, sizes and published checksums."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Source:
    """What is known about a data set before it is read."""

    name: str
    title: str
    reader: str
    """module:function, called as function(folder, split, **options)."""
    splits: Mapping[str, int | None]
    """Samples of each split in the public release; None where that number is not fixed."""
    num_classes: int | None
    folders: tuple[str, ...]
    """Where it may lie below the root, first found first taken; empty when nothing on disk is needed."""
    layout: str
    md5: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Published MD5 of files in the folder."""
    optional: frozenset[str] = frozenset()
    """Splits that a complete copy may lack."""


_IDX = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-..., each with or without .gz"
_MNIST_SPLITS = {"train": 60_000, "test": 10_000}
_CIFAR_SPLITS = {"train": 50_000, "test": 10_000}

# Checksums: those of the .gz, .bz2, .mat and python files are the ones that torchvision.datasets verifies; those of
# MNIST's unpacked files and of CIFAR-10's .bin files are quoted by several projects and equal to files read here.
SOURCES: tuple[Source, ...] = (
    Source(
        name="digits",
        title="scikit-learn digits, 8 x 8",
        reader="digits:read_digits",
        splits={"all": 1_797},
        num_classes=10,
        folders=(),
        layout="nothing: scikit-learn carries it",
    ),
    Source(
        name="mnist",
        title="MNIST",
        reader="idx:read_mnist",
        splits=_MNIST_SPLITS,
        num_classes=10,
        folders=("MNIST/raw", "MNIST", "mnist"),
        layout=_IDX,
        md5={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
    ),
    Source(
        name="fashion-mnist",
        title="Fashion-MNIST",
        reader="idx:read_fashion_mnist",
        splits=_MNIST_SPLITS,
        num_classes=10,
        folders=("FashionMNIST/raw", "FashionMNIST", "fashion-mnist"),
        layout=_IDX,
        md5={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    Source(
        name="kmnist",
        title="Kuzushiji-MNIST",
        reader="idx:read_kmnist",
        splits=_MNIST_SPLITS,
        num_classes=10,
        folders=("KMNIST/raw", "KMNIST", "kmnist"),
        layout=_IDX,
        md5={
            "train-images-idx3-ubyte.gz": "bdb82020997e1d708af4cf47b453dcf7",
            "train-labels-idx1-ubyte.gz": "e144d726b3acfaa3e44228e80efcd344",
            "t10k-images-idx3-ubyte.gz": "5c965bf0a639b31b8f53240b1b52f4d7",
            "t10k-labels-idx1-ubyte.gz": "7320c461ea6c1c855c0b718fb2a4b134",
        },
    ),
    Source(
        name="usps",
        title="USPS digits",
        reader="usps:read_usps",
        splits={"train": 7_291, "test": 2_007},
        num_classes=10,
        folders=("USPS", "usps"),
        layout="usps.bz2, usps.t.bz2 (libsvm text), with or without .bz2",
        md5={
            "usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197",
            "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118",
        },
    ),
    Source(
        name="cifar10",
        title="CIFAR-10",
        reader="cifar:read_cifar10",
        splits=_CIFAR_SPLITS,
        num_classes=10,
        folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
        layout="data_batch_1.bin to _5.bin and test_batch.bin, or the python pickles of the same names without .bin",
        md5={
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    Source(
        name="cifar100",
        title="CIFAR-100, fine and coarse labels",
        reader="cifar:read_cifar100",
        splits=_CIFAR_SPLITS,
        num_classes=100,
        folders=("cifar-100-binary", "cifar-100-python"),
        layout="train.bin and test.bin, or the python pickles train and test",
        md5={
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
    Source(
        name="vehicles10",
        title="Vehicles-10: ten classes of CIFAR-100",
        reader="cifar:read_vehicles10",
        splits={"train": 5_000, "test": 1_000},
        num_classes=10,
        folders=("cifar-100-binary", "cifar-100-python"),
        layout="CIFAR-100",
    ),
)
