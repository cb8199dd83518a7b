"""Every network at a size that one core computes at once: small stems, small images."""

import pytest

SMALL: dict[str, dict[str, object]] = {
    "alexnet": {"stem": "small", "num_classes": 10},
    "cnn9": {},
    "cnn10": {"image_size": 32},
    "cnn13": {},
    "cnn28": {"feature_dim": 3},
    "densenet121": {"stem": "small", "num_classes": 10},
    "digits_cnn": {},
    "googlenet": {},
    "lenet": {},
    "lenet_2d": {},
    "mlp": {"hidden": (5, 4)},
    "mlp_2d": {},
    "resnet20": {},
    "resnet32": {},
    "resnet44": {},
    "resnet56": {},
    "resnet50": {"stem": "small", "num_classes": 10},
    "vgg19": {"stem": "small", "num_classes": 10},
    "vgg19_bn": {"stem": "small", "num_classes": 10},
}

# These differ from another only in how often a layer is repeated: what costs time is tested on the other.
REPEATED = ("cnn9", "resnet32", "resnet44", "resnet56", "vgg19_bn")
ARCHITECTURES = [name for name in SMALL if name not in REPEATED]


@pytest.fixture(scope="session")
def small() -> dict[str, dict[str, object]]:
    """The options that make each network small."""
    return SMALL


@pytest.fixture(scope="session")
def architectures() -> list[str]:
    """One network of each kind."""
    return ARCHITECTURES


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a `network` runs for every one; for an `architecture`, once for each kind."""
    if "network" in metafunc.fixturenames:
        metafunc.parametrize("network", SMALL)
    if "architecture" in metafunc.fixturenames:
        metafunc.parametrize("architecture", ARCHITECTURES)
