"""Networks by name: what is refused, and how many parameters each has, with the source of every count."""

import pytest
import torch
from torch import nn

from hardsight import models
from hardsight.models.branched import CifarResNet


def count(name: str, **options: object) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in models.create(name, **options).parameters())


# He et al. (2016), Table 6, print 0.27M, 0.46M, 0.66M and 0.85M. The exact counts are those of the public weights
# (tests/models/test_weights.py). Projections in the shortcuts (option B) would add 2,752 to each.
@pytest.mark.parametrize(
    ("depth", "parameters", "printed"),
    [(20, 269_722, 0.27), (32, 464_154, 0.46), (44, 658_586, 0.66), (56, 853_018, 0.85)],
)
def test_cifar_resnets_have_the_published_counts(depth: int, parameters: int, printed: float) -> None:
    assert count(f"resnet{depth}") == parameters
    assert round(parameters / 1e6, 2) == printed


# torchvision documents `num_params` for its ImageNet weights of 1000 classes.
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("alexnet", 61_100_840),
        ("vgg19", 143_667_240),
        ("vgg19_bn", 143_678_248),
        ("resnet50", 25_557_032),
        ("densenet121", 7_978_856),
    ],
)
def test_large_stems_have_the_counts_of_torchvision(name: str, parameters: int) -> None:
    assert count(name) == parameters


def test_googlenet_has_the_counts_of_torchvision_and_of_the_original() -> None:
    # torchvision's `num_params`, without the auxiliary classifiers; its "5x5" convolutions are 3x3.
    assert count("googlenet", num_classes=1000, stem="large", large_kernel=3) == 6_624_904
    # The original (BVLC's reference weights) has a bias after each convolution, ours a normalization's bias and scale.
    with torch.device("meta"):
        model = models.create("googlenet", num_classes=1000, stem="large")
    named = model.named_parameters()
    assert sum(value.numel() for key, value in named if not key.endswith("bn.weight")) == 6_998_552
    # The small stem has one normalized 3x3 convolution where the large one has three convolutions.
    large_stem = 3 * 64 * 49 + 64 * 64 + 64 * 192 * 9 + 2 * (64 + 64 + 192)
    small_stem = 3 * 192 * 9 + 2 * 192
    assert count("googlenet") == count("googlenet", stem="large") - large_stem + small_stem == 5_871_914


def test_small_stems_have_published_counts() -> None:
    # bearpaw/pytorch-classification prints 2.47M and 20.04M for its CIFAR-10 AlexNet and VGG-19 with normalization.
    assert count("alexnet", num_classes=10, stem="small") == 2_472_266
    assert count("vgg19_bn", num_classes=10, stem="small") == 20_040_522
    assert count("vgg19", num_classes=10, stem="small") == 20_040_522 - 2 * 5_504
    # A 3x3 instead of a 7x7 convolution; DenseNet also loses the normalization after it. These are the CIFAR-10
    # networks of kuangliu/pytorch-cifar (23.52M and 6.96M).
    stems = (49 - 9) * 3 * 64
    assert count("resnet50", num_classes=10, stem="small") == 25_557_032 - stems - 990 * 2049 == 23_520_842
    assert count("densenet121", num_classes=10, stem="small") == 7_978_856 - stems - 128 - 990 * 1025 == 6_956_298


def test_the_networks_of_amc_follow_its_table_2() -> None:
    threes = 9 * (3 * 128 + 2 * 128 * 128 + 128 * 256 + 2 * 256 * 256 + 256 * 512)
    ones = 512 * 256 + 256 * 128
    norms = 2 * (3 * 128 + 3 * 256 + 512 + 256 + 128)
    assert count("cnn13") == threes + ones + norms + 128 * 10 + 10 == 3_121_802
    shared = 9 * (64 + 64 * 64 + 64 * 128) + 128 * 64 + 2 * (64 + 64 + 128 + 64)
    for dim in (2, 3, 128):
        assert count("cnn28", feature_dim=dim) == shared + 64 * dim + dim * 10 + 10


def test_the_plain_networks_follow_appendix_f_of_avh() -> None:
    nine = 9 * (64 * 64 * 2 + 64 * 128 + 128 * 128 * 2 + 128 * 256 + 256 * 256 * 2)
    norms = 2 * 3 * (64 + 128 + 256) + 2 * 512
    head = 512 * 7 + 7
    # 224 pixels, halved four times, are 14.
    stem = 49 * 3 * 64 + 2 * 64
    assert count("cnn10") == stem + 9 * 64 * 64 + nine + norms + 14 * 14 * 256 * 512 + head
    assert count("cnn10", stem_stride=2) == count("cnn10") - (14 * 14 - 7 * 7) * 256 * 512
    assert count("cnn9") == 9 * 3 * 64 + nine + norms + 4 * 4 * 256 * 512 + head


def test_the_toys() -> None:
    # AVH, Appendix A: 3 inputs, 2 hidden units, 2 classes.
    assert count("mlp_2d") == 3 * 2 + 2 + 2 * 2 + 2
    # Caffe's LeNet has 431,080 parameters; its head of 500 inputs gives way to two features and their head.
    assert count("lenet_2d") == 431_080 - (500 * 10 + 10) + (500 * 2 + 2) + (2 * 10 + 10)
    assert count("lenet") == 431_080 - (500 * 10 + 10) + (500 * 64 + 64) + (64 * 10 + 10)


@pytest.mark.parametrize("name", models.names())
def test_networks_with_few_features_say_so_in_their_names(name: str) -> None:
    """Two features draw a picture; as a default they are a trap: no head tells ten classes apart by them."""
    features = models.create(name).feature_dim
    assert features == 2 if name.endswith("_2d") else features >= 64


@pytest.mark.parametrize("stemless", ["resnet20", "cnn13", "mlp"])
def test_unknown_options_are_refused_with_the_nearest_known(stemless: str) -> None:
    with pytest.raises(ValueError, match=r"got 'num_clases', did you mean 'num_classes'\?"):
        models.create(stemless, num_clases=3)


def test_unknown_names_are_refused_with_the_nearest_known() -> None:
    with pytest.raises(ValueError, match=r"got 'densenet', did you mean 'densenet121'\?"):
        models.create("densenet")
    with pytest.raises(ValueError, match=r"got 'CNN13', did you mean 'cnn13'\?"):
        models.options("CNN13")
    # All are named, also where another size of the same family is near.
    for far in ("nope", "resnet18"):
        with pytest.raises(ValueError, match=f"must be one of {', '.join(models.names())}; got '{far}'"):
            models.create(far)


@pytest.mark.parametrize("bad", [0, -1, True])
def test_bad_counts_are_refused(bad: int) -> None:
    for key in ("num_classes", "in_channels"):
        with pytest.raises((TypeError, ValueError), match=rf"{key} must be .*; got {bad!r}"):
            models.create("resnet20", **{key: bad})


def test_bad_options_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"stem must be 'small' .* got 'tiny'"):
        models.create("resnet50", stem="tiny")
    with pytest.raises(ValueError, match=r"depth must be one of 20, 32, 44, 56; got 110"):
        CifarResNet(110)
    with pytest.raises(ValueError, match=r"activation must be one of relu, tanh; got 'gelu'"):
        models.create("mlp", activation="gelu")
    with pytest.raises(ValueError, match=r"hidden must name .* got none"):
        models.create("mlp", hidden=())
    with pytest.raises(ValueError, match=r"image_size must leave a pixel .* got 15"):
        models.create("cnn10", image_size=15)


@pytest.mark.parametrize("name", ["alexnet", "vgg19", "vgg19_bn"])
def test_dropout_where_nothing_is_dropped_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"dropout must be left out with the small stem, .*; got 0\.3"):
        models.create(name, stem="small", dropout=0.3)
    with torch.device("meta"):
        assert not [module for module in models.create(name, stem="small").modules() if isinstance(module, nn.Dropout)]
        dropped = [module.p for module in models.create(name, dropout=0.3).modules() if isinstance(module, nn.Dropout)]
        usual = [module.p for module in models.create(name).modules() if isinstance(module, nn.Dropout)]
    assert (dropped, usual) == ([0.3, 0.3], [0.5, 0.5])


def test_options_tell_the_defaults() -> None:
    assert models.options("cnn28") == {"feature_dim": 128, "noise": 0.15, "dropout": 0.5}
    assert models.options("resnet56") == {"dropout": 0.0}


# Entries in the state dicts of torchvision's published weights, and some of their keys.
@pytest.mark.parametrize(
    ("large", "entries", "keys"),
    [
        ("alexnet", 16, ["features.10.bias", "classifier.1.weight", "classifier.6.weight"]),
        ("vgg19", 38, ["features.34.weight", "classifier.0.bias", "classifier.6.weight"]),
        ("vgg19_bn", 118, ["features.50.running_var", "classifier.6.weight"]),
        ("resnet50", 320, ["bn1.bias", "layer1.0.downsample.1.running_mean", "layer4.2.conv3.weight", "fc.weight"]),
        (
            "densenet121",
            727,
            [
                "features.norm0.weight",
                "features.denseblock4.denselayer16.conv2.weight",
                "features.transition3.conv.weight",
                "features.norm5.bias",
                "classifier.weight",
            ],
        ),
    ],
)
def test_parameters_have_the_names_of_torchvision(large: str, entries: int, keys: list[str]) -> None:
    with torch.device("meta"):
        state = models.create(large).state_dict()
    assert len(state) == entries
    assert set(keys) <= set(state)
