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
        reader="toys:read_digits",
        splits={"all": 1_797},
        num_classes=10,
        folders=(),
        layout="nothing: scikit-learn carries it",
    ),
    Source(
        name="mnist",
        title="MNIST",
        reader="digits:read_mnist",
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
        reader="digits:read_fashion_mnist",
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
        reader="digits:read_kmnist",
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
        reader="digits:read_usps",
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
    Source(
        name="cifar10h",
        title="CIFAR-10H: the test set with human votes",
        reader="human:read_cifar10h",
        splits={"test": 10_000},
        num_classes=10,
        folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
        layout="CIFAR-10, and cifar10h-counts.npy in its folder or beside it",
    ),
    Source(
        name="cifar10n",
        title="CIFAR-10N: the training set with human labels",
        reader="human:read_cifar10n",
        splits={"train": 50_000},
        num_classes=10,
        folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
        layout="CIFAR-10, and CIFAR-10_human.npz or .pt in its folder or beside it",
    ),
    Source(
        name="cifar100n",
        title="CIFAR-100N: the training set with human labels",
        reader="human:read_cifar100n",
        splits={"train": 50_000},
        num_classes=100,
        folders=("cifar-100-binary", "cifar-100-python"),
        layout="CIFAR-100, and CIFAR-100_human.npz or .pt in its folder or beside it",
    ),
    Source(
        name="svhn",
        title="SVHN, cropped digits",
        reader="digits:read_svhn",
        splits={"train": 73_257, "test": 26_032, "extra": 531_131},
        num_classes=10,
        folders=("SVHN", "svhn"),
        layout="train_32x32.mat, test_32x32.mat, extra_32x32.mat",
        md5={
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
            "extra_32x32.mat": "a93ce644f1a588dc4d68dda5feec44a7",
        },
        optional=frozenset({"extra"}),
    ),
    Source(
        name="pacs",
        title="PACS",
        reader="photos:read_pacs",
        splits={"all": 9_991, "train": 8_977, "crossval": 1_014},
        num_classes=7,
        folders=("PACS", "PACS/kfold", "pacs"),
        layout="<domain>/<class>/<file>; splits/<domain>_{train,crossval}_kfold.txt",
        optional=frozenset({"train", "crossval"}),
    ),
    Source(
        name="office-caltech10",
        title="Office-Caltech10",
        reader="photos:read_office_caltech10",
        splits={"all": 2_533, "amazon": 958, "caltech10": 1_123, "dslr": 157, "webcam": 295},
        num_classes=10,
        folders=("office_caltech10", "office_caltech_10", "Office-Caltech10"),
        layout="<domain>/<class>/<file>",
    ),
    Source(
        name="office31",
        title="Office-31",
        reader="photos:read_office31",
        splits={"all": 4_110, "amazon": 2_817, "dslr": 498, "webcam": 795},
        num_classes=31,
        folders=("office31", "Office31", "Office-31", "office"),
        layout="<domain>/images/<class>/<file>, or without images/; image lists by lists=",
    ),
    Source(
        name="office-home",
        title="Office-Home",
        reader="photos:read_office_home",
        splits={"all": 15_588, "Art": 2_427, "Clipart": 4_365, "Product": 4_439, "Real World": 4_357},
        num_classes=65,
        folders=("OfficeHomeDataset_10072016", "OfficeHome", "Office-Home", "office_home"),
        layout="<domain>/<class>/<file>; image lists by lists=",
    ),
    Source(
        name="visda17",
        title="VisDA-17, classification",
        reader="photos:read_visda17",
        splits={"train": 152_397, "validation": 55_388, "test": 72_372},
        num_classes=12,
        folders=("visda17", "VisDA-17", "visda-2017", "visda"),
        layout="{train,validation,test}/image_list.txt and the images it lists",
        optional=frozenset({"test"}),
    ),
    Source(
        name="clothing1m",
        title="Clothing1M",
        reader="photos:read_clothing1m",
        splits={"noisy_train": 1_000_000, "clean_train": 47_570, "clean_val": 14_313, "clean_test": 10_526},
        num_classes=14,
        folders=("clothing1M", "clothing1m", "Clothing1M"),
        layout="images/, *_key_list.txt, noisy_label_kv.txt, clean_label_kv.txt, category_names_eng.txt",
    ),
    Source(
        name="mars",
        title="MARS, people in tracklets (counted in frames)",
        reader="mars:read_mars",
        splits={"train": 509_914, "test": 681_089, "query": None, "gallery": None},
        num_classes=625,
        folders=("MARS", "mars"),
        layout="bbox_{train,test}/<identity>/<frame>.jpg; info/{train,test}_name.txt, tracks_*_info.mat, query_IDX.mat",
        optional=frozenset({"query", "gallery"}),
    ),
    Source(
        name="imagenet-val",
        title="ImageNet validation, human selection frequency where given",
        reader="imagenet:read_imagenet_val",
        splits={"val": 50_000},
        num_classes=1_000,
        folders=("imagenet/val", "ImageNet/val", "ILSVRC2012/val", "ILSVRC/Data/CLS-LOC/val"),
        layout="<wnid>/ILSVRC2012_val_*.JPEG, or flat with val.txt; selection_frequency.csv or .json",
    ),
    Source(
        name="imagenetv2",
        title="ImageNetV2",
        reader="imagenet:read_imagenet_v2",
        splits={"test": 10_000},
        num_classes=1_000,
        folders=(
            "imagenetv2-matched-frequency-format-val",
            "imagenetv2-threshold0.7-format-val",
            "imagenetv2-top-images-format-val",
        ),
        layout="<class number>/<file>.jpeg",
    ),
    Source(
        name="two-gaussians",
        title="Two Gaussians on the sphere (AVH, Appendix A)",
        reader="toys:read_two_gaussians",
        splits={"all": 2_000},
        num_classes=2,
        folders=(),
        layout="nothing: made from a seed",
    ),
    Source(
        name="folder",
        title="Any folder of images",
        reader="folders:read_image_folder",
        splits={"all": None, "train": None, "val": None, "test": None},
        num_classes=None,
        folders=(".",),
        layout="<class>/<file>, or <split>/<class>/<file>, directly below the root",
        optional=frozenset({"all", "train", "val", "test"}),
    ),
    Source(
        name="huggingface",
        title="Any Hugging Face data set folder",
        reader="huggingface:read_huggingface",
        splits={"train": None, "validation": None, "test": None},
        num_classes=None,
        folders=(".",),
        layout="Parquet files with image bytes, directly below the root",
        optional=frozenset({"train", "validation", "test"}),
    ),
)
