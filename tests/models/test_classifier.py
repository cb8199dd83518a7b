"""Laws that every network keeps, and wrong networks that the laws reject."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hardsight import models
from hardsight.models import Classifier

Options = dict[str, dict[str, object]]


def make(name: str, small: Options, seed: int = 0, **options: object) -> Classifier:
    torch.manual_seed(seed)
    return models.create(name, **(small[name] | options))


def inputs_for(model: Classifier, count: int = 2) -> Tensor:
    return torch.randn(count, *model.input_shape, generator=torch.Generator().manual_seed(1))


def test_no_network_is_left_out(small: Options) -> None:
    assert set(small) == set(models.names())


def check_head(model: Classifier) -> None:
    """A hook on the last linear layer sees the features and the logits; the head alone gives the logits."""
    model.eval()
    inputs = inputs_for(model)
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    seen: dict[str, Tensor] = {}
    handle = last.register_forward_hook(lambda _, given, out: seen.update(features=given[0], logits=out))
    with torch.inference_mode():
        logits = model(inputs)
    handle.remove()
    assert last is model.head
    with torch.inference_mode():
        features = model.forward_features(inputs)
        assert features.shape == (len(inputs), model.feature_dim)
        assert torch.equal(model.head(features), logits)
    assert torch.equal(seen["features"], features)
    assert torch.equal(seen["logits"], logits)


def check_gradients(model: Classifier) -> None:
    """Some sample moves every parameter."""
    torch.manual_seed(0)
    model.train()
    logits = model(inputs_for(model, 4))
    (logits * torch.randn_like(logits)).sum().backward()
    idle = [key for key, value in model.named_parameters() if value.grad is None or not value.grad.abs().sum() > 0]
    assert not idle


def test_logits_are_the_head_of_the_features(network: str, small: Options) -> None:
    check_head(make(network, small))


def test_gradients_reach_every_parameter(network: str, small: Options) -> None:
    check_gradients(make(network, small))


class Normalizing(models.DigitsCNN):
    """Wrong: the head sees something else than the features."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(nn.functional.normalize(self.forward_features(inputs)))


class Rescaling(models.DigitsCNN):
    """Wrong: the logits are not what the head returns."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


class Idle(models.DigitsCNN):
    """Wrong: a layer that nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Conv2d(1, 1, 1)


@pytest.mark.parametrize(
    ("wrong", "law"), [(Normalizing, check_head), (Rescaling, check_head), (Idle, check_gradients)]
)
def test_the_laws_reject_wrong_networks(wrong: type[Classifier], law: Callable[[Classifier], None]) -> None:
    with pytest.raises(AssertionError):
        law(wrong())


@pytest.mark.parametrize("num_classes", [1, 13])
def test_any_number_of_classes(network: str, num_classes: int, small: Options) -> None:
    with torch.device("meta"):
        model = models.create(network, **(small[network] | {"num_classes": num_classes}))
        assert model(torch.empty(3, *model.input_shape)).shape == (3, num_classes)


def test_any_number_of_channels(network: str, small: Options) -> None:
    with torch.device("meta"):
        model = models.create(network, **(small[network] | {"in_channels": 5}))
        assert model.input_shape[0] == 5
        assert model(torch.empty(2, *model.input_shape)).shape[0] == 2


def test_the_size_that_the_papers_use(network: str) -> None:
    with torch.device("meta"):
        model = models.create(network).train()
        features = model.forward_features(torch.empty(2, *model.input_shape))
        assert features.shape == (2, model.feature_dim)
        model.head(features).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_large_stems(small: Options) -> None:
    for name in small:
        if "stem" not in models.options(name):
            continue
        with torch.device("meta"):
            model = models.create(name, num_classes=1000, stem="large")
            assert model.input_shape == (3, 224, 224)
            assert model(torch.empty(2, 3, 224, 224)).shape == (2, 1000)


def test_channels_last_gives_the_same_logits(network: str, small: Options) -> None:
    model = make(network, small).eval()
    inputs = inputs_for(model)
    if inputs.ndim != 4:
        pytest.skip("no image")
    with torch.inference_mode():
        expected = model(inputs)
        model.to(memory_format=torch.channels_last)
        actual = model(inputs.to(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_bfloat16_autocast_stays_near_float32(network: str, small: Options) -> None:
    model = make(network, small).eval()
    inputs = inputs_for(model)
    with torch.inference_mode():
        expected = model(inputs)
        with torch.autocast("cpu", torch.bfloat16):
            actual = model(inputs)
    assert actual.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits, and up to 120 layers round one after the other.
    assert (actual.float() - expected).norm() < 0.05 * expected.norm()


def test_a_sample_alone_gives_what_it_gives_among_others(network: str, small: Options) -> None:
    model = make(network, small).eval()
    inputs = inputs_for(model, 3)
    with torch.inference_mode():
        torch.testing.assert_close(model(inputs[1:2]), model(inputs)[1:2], rtol=1e-4, atol=1e-5)


def test_the_seed_before_construction_decides_the_weights(network: str, small: Options) -> None:
    first, same, other = (make(network, small, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_another_head_takes_the_place_of_the_linear_one(network: str, small: Options) -> None:
    class Scaled(nn.Linear):
        def forward(self, features: Tensor) -> Tensor:
            return 3 * super().forward(features)

    model = make(network, small, head=Scaled)
    assert isinstance(model.head, Scaled)
    assert (model.head.in_features, model.head.out_features) == (
        model.feature_dim,
        model(inputs_for(model)).shape[1],
    )
    check_head(model)


def test_a_head_without_bias(network: str, small: Options) -> None:
    with torch.device("meta"):
        model = models.create(network, **small[network], head=lambda dim, classes: nn.Linear(dim, classes, bias=False))
    assert model.head.bias is None


COMPILE = """
import sys, json, torch
from hardsight import models
for name, options in json.loads(sys.argv[1]).items():
    with torch.device("meta"):
        model = models.create(name, **options)
        for training in (True, False):
            torch.compiler.reset()
            compiled = torch.compile(model.train(training), fullgraph=True, backend="eager")
            assert compiled(torch.empty(2, *model.input_shape)).shape[0] == 2, name
"""


def test_every_network_is_one_graph(small: Options) -> None:
    """In a process of its own: the checks of shapes that the tests turn on are not made to be traced."""
    subprocess.run([sys.executable, "-c", COMPILE, json.dumps(small)], check=True, timeout=300)
