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
from hardsight.models.plain import DigitsCNN

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


def test_gradients_reach_every_parameter(architecture: str, small: Options) -> None:
    check_gradients(make(architecture, small))


class Normalizing(DigitsCNN):
    """Wrong: the head sees something else than the features."""

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(nn.functional.normalize(self.forward_features(inputs)))


class Rescaling(DigitsCNN):
    """Wrong: the logits are not what the head returns."""

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * super().forward(inputs)


class Idle(DigitsCNN):
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


def test_any_number_of_classes_and_channels(architecture: str, small: Options) -> None:
    with torch.device("meta"):
        model = models.create(architecture, **(small[architecture] | {"num_classes": 13, "in_channels": 5}))
        assert model.input_shape[0] == 5
        assert model(torch.empty(3, *model.input_shape)).shape == (3, 13)


def test_one_class() -> None:
    assert models.create("digits_cnn", num_classes=1)(torch.zeros(2, 1, 8, 8)).shape == (2, 1)


def test_the_size_that_the_papers_use(architecture: str) -> None:
    options = {"stem": "large"} if "stem" in models.options(architecture) else {}
    with torch.device("meta"):
        model = models.create(architecture, **options).train()
        assert not options or model.input_shape == (3, 224, 224)
        features = model.forward_features(torch.empty(2, *model.input_shape))
        assert features.shape == (2, model.feature_dim)
        model.head(features).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_channels_last_gives_the_same_logits(architecture: str, small: Options) -> None:
    model = make(architecture, small).eval()
    inputs = inputs_for(model)
    if inputs.ndim != 4:
        pytest.skip("no image")
    with torch.inference_mode():
        expected = model(inputs)
        model.to(memory_format=torch.channels_last)
        actual = model(inputs.to(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_bfloat16_autocast_stays_near_float32(architecture: str, small: Options) -> None:
    model = make(architecture, small).eval()
    inputs = inputs_for(model)
    with torch.inference_mode():
        expected = model(inputs)
        with torch.autocast("cpu", torch.bfloat16):
            actual = model(inputs)
    assert actual.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits, and up to 120 layers round one after the other.
    assert (actual.float() - expected).norm() < 0.05 * expected.norm()


def test_a_sample_alone_gives_what_it_gives_among_others(architecture: str, small: Options) -> None:
    model = make(architecture, small).eval()
    inputs = inputs_for(model, 3)
    with torch.inference_mode():
        torch.testing.assert_close(model(inputs[1:2]), model(inputs)[1:2], rtol=1e-4, atol=1e-5)


def test_the_seed_before_construction_decides_the_weights(architecture: str, small: Options) -> None:
    first = make(architecture, small).state_dict()
    drawn = torch.get_rng_state()
    same = make(architecture, small).state_dict()
    assert all(torch.equal(first[key], same[key]) for key in first)
    torch.manual_seed(0)
    assert not torch.equal(drawn, torch.get_rng_state())


def test_another_head_takes_the_place_of_the_linear_one(architecture: str, small: Options) -> None:
    class Scaled(nn.Linear):
        def forward(self, features: Tensor) -> Tensor:
            return 3 * super().forward(features)

    with torch.device("meta"):
        model = models.create(architecture, **(small[architecture] | {"head": Scaled, "num_classes": 6}))
    assert isinstance(model.head, Scaled)
    assert (model.head.in_features, model.head.out_features) == (model.feature_dim, 6)
    assert list(model.modules())[-1] is model.head


def test_a_head_without_bias(architecture: str, small: Options) -> None:
    with torch.device("meta"):
        model = models.create(
            architecture, **small[architecture], head=lambda dim, classes: nn.Linear(dim, classes, bias=False)
        )
    assert model.head.bias is None


COMPILE = """
import json, sys, torch
from hardsight import models
from hardsight.models import branched

# The same forward passes over fewer blocks: tracing takes its time for each.
branched._DENSE_BLOCKS, branched.DenseNet121.feature_dim = (2, 2, 2, 2), 128
branched._INCEPTIONS = {"3a": (192, 64, 96, 128, 16, 32, 32), "4a": (256, 384, 192, 384, 48, 128, 128)}
group = branched._group
branched._group = lambda block, incoming, width, count, stride=1: group(block, incoming, width, 1, stride)

for name, options in json.loads(sys.argv[1]).items():
    with torch.device("meta"):
        model = models.create(name, **options).train()
        # All networks share one `forward`, and a function is compiled again only a few times.
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True, backend="eager")
        assert compiled(torch.empty(2, *model.input_shape)).shape[0] == 2, name
"""


def test_every_forward_pass_is_one_graph(small: Options, architectures: list[str]) -> None:
    """In a process of its own: the checks of shapes that the tests turn on are not made to be traced."""
    subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps({name: small[name] for name in architectures})],
        check=True,
        timeout=300,
    )
