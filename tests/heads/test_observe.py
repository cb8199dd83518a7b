"""Observing: any classifier's head is found, its input and output are right, and no hook stays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hardsight as hs
from hardsight.heads import find_head


class ReturnsLogProbabilities(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # The head is registered first: order of registration says nothing.
        self.out = nn.Linear(6, 3)
        self.hidden = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.out(self.hidden(x).relu()), dim=1)


class TwoHeads(nn.Module):
    """Like GoogLeNet in training: the auxiliary head has the same size and comes later."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.main, self.auxiliary = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        body = self.body(x)
        return {"aux": self.auxiliary(body), "logits": self.main(body)}


class SumsTwoHeads(TwoHeads):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        body = self.body(x)
        return self.main(body) + self.auxiliary(body)


class Pooled(nn.Module):
    """Like torchvision's ResNets: convolutions, pooling, flatten, fc."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fc = nn.Conv2d(3, 5, 3), nn.Linear(5, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(self.conv(x), 1), 1))


class SaysItself(nn.Module):
    """Like timm's models, which name their classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head, self.distilled = nn.Linear(4, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def get_classifier(self) -> nn.Module:
        return self.head

    def forward(self, x: Tensor) -> Tensor:
        body = self.blocks(x)
        return (self.head(body) + self.distilled(body)) / 2


class Cosine(nn.Module):
    """A head that is not nn.Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return 10 * F.linear(F.normalize(x), F.normalize(self.weight))


class CallsByKeyword(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.fc = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(input=self.hidden(x))


class GoesAroundItsHead(CallsByKeyword):
    """Uses the head's weight without calling the head: a hook on it sees nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.hidden(x), self.fc.weight)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.0), nn.Linear(6, 3))


VECTORS = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@pytest.mark.parametrize(
    ("build", "inputs", "name"),
    [
        (mlp, VECTORS, "3"),
        (ReturnsLogProbabilities, VECTORS, "out"),
        (TwoHeads, VECTORS, "main"),
        (Pooled, IMAGES, "fc"),
        (SaysItself, VECTORS, "head"),
        (CallsByKeyword, VECTORS, "fc"),
        (Cosine, VECTORS, ""),
        (lambda: nn.Linear(4, 3), VECTORS, ""),
    ],
)
def test_the_head_is_found_and_its_input_and_output_are_seen(
    build: Callable[[], nn.Module], inputs: Tensor, name: str
) -> None:
    model = build()
    with hs.observe(model) as seen:
        for batch in (inputs[:1], inputs):
            model(batch)
            assert seen.name == name
            assert len(seen.features) == len(batch)
            torch.testing.assert_close(seen.head(seen.features), seen.logits)
    assert hooks(model) == 0
    assert seen.weight.shape == (seen.logits.shape[1], seen.features.shape[1])
    assert seen.is_linear == (build is not Cosine)


def test_what_is_seen_belongs_to_the_graph() -> None:
    model = mlp()
    with hs.observe(model) as seen:
        model(VECTORS)
        seen.features.square().sum().backward()
    assert model[0].weight.grad is not None


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda m: torch.compile(m, backend="eager")])
def test_wrapped_models_are_looked_into(wrap: Callable[[nn.Module], nn.Module]) -> None:
    plain = mlp()
    model = wrap(plain)
    model(VECTORS)
    with hs.observe(model) as seen:
        out = model(VECTORS)
    torch.testing.assert_close(seen.logits, out)
    assert seen.name == "3"
    assert hooks(plain) == 0


def test_a_model_compiled_in_place_is_seen_too() -> None:
    model = mlp()
    model.compile(backend="eager")
    model(VECTORS)
    with hs.observe(model) as seen:
        model(VECTORS)
    assert seen.name == "3"


def test_distributed_data_parallel(tmp_path: object) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(mlp())
        with hs.observe(model) as seen:
            out = model(VECTORS)
        torch.testing.assert_close(seen.logits, out)
    finally:
        torch.distributed.destroy_process_group()


def test_transformers_models() -> None:
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    vit = transformers.ViTForImageClassification(
        transformers.ViTConfig(**shape, image_size=8, patch_size=4, num_labels=5)
    )
    with hs.observe(vit) as seen:
        out = vit(IMAGES)
    assert seen.name == "classifier"
    torch.testing.assert_close(seen.logits, out.logits)
    bert = transformers.BertForSequenceClassification(
        transformers.BertConfig(**shape, vocab_size=30, num_labels=4)
    ).eval()
    with hs.observe(bert) as seen:
        out = bert(input_ids=torch.arange(6).reshape(2, 3))
    assert seen.name == "classifier"
    torch.testing.assert_close(seen.logits, out.logits)
    assert hooks(vit) + hooks(bert) == 0


def test_timm_models() -> None:
    timm = pytest.importorskip("timm", exc_type=ImportError)
    for name, head in (("resnet18", "fc"), ("vit_tiny_patch16_224", "head"), ("efficientnet_b0", "classifier")):
        model = timm.create_model(name, num_classes=6).eval()
        with hs.observe(model) as seen:
            out = model(torch.randn(1, 3, 224, 224))
        assert seen.name == head
        torch.testing.assert_close(seen.logits, out)


def test_torchvision_models() -> None:
    models = pytest.importorskip("torchvision", exc_type=ImportError).models
    for build, head in ((models.resnet18, "fc"), (models.vgg11, "classifier.6"), (models.densenet121, "classifier")):
        model = build(weights=None, num_classes=6).eval()
        with hs.observe(model) as seen:
            out = model(torch.randn(1, 3, 64, 64))
        assert seen.name == head
        torch.testing.assert_close(seen.logits, out)


def test_hooks_go_after_an_exception_inside_and_inside_the_model() -> None:
    model = mlp()
    with pytest.raises(KeyError), hs.observe(model):
        raise KeyError
    assert hooks(model) == 0
    with pytest.raises(RuntimeError), hs.observe(model):
        model(torch.ones(2, 99))
    assert hooks(model) == 0


def test_an_ambiguous_head_names_the_candidates_and_the_way_to_choose() -> None:
    model = SumsTwoHeads()
    sentence = r'candidates are body \[6, 4\], main \[3, 6\], auxiliary \[3, 6\]: .*head="'
    with pytest.raises(ValueError, match=sentence), hs.observe(model):
        model(VECTORS)
    assert hooks(model) == 0
    with hs.observe(model, head="main") as seen:
        model(VECTORS)
    assert seen.weight is model.main.weight
    with pytest.raises(ValueError, match=r"head.*chosen"):
        find_head(model)
    assert find_head(model, "auxiliary") == ("auxiliary", model.auxiliary)


def test_a_wrong_name_and_a_model_without_a_head() -> None:
    with pytest.raises(ValueError, match="did you mean 'main'"):
        hs.observe(TwoHeads(), head="mian").__enter__()
    with pytest.raises(ValueError, match="Conv2d has none"):
        hs.observe(nn.Conv2d(3, 3, 1)).__enter__()


def test_a_head_by_keyword_and_one_that_is_never_called() -> None:
    model = CallsByKeyword()
    with hs.observe(model, head="fc") as seen:
        model(VECTORS)
    torch.testing.assert_close(model.fc(seen.features), seen.logits)
    model = GoesAroundItsHead()
    with pytest.raises(ValueError, match=r"head.*'fc'"), hs.observe(model, head="fc"):
        model(VECTORS)
    assert hooks(model) == 0


class Transposed(nn.Module):
    """Rows are features and columns classes, as some write their cosine heads."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors @ self.weight


def test_a_head_whose_rows_are_not_its_classes_is_seen_but_has_no_weight_to_compare_with() -> None:
    model = nn.Sequential(nn.Linear(VECTORS.shape[1], 4), Transposed())
    with hs.observe(model, head="1") as seen:
        model(VECTORS)
    assert list(seen.logits.shape) == [len(VECTORS), 3]
    with pytest.raises(ValueError, match=r"head.*class.*\[3, 4\]; '1' holds \[4, 3\]"):
        _ = seen.weight
    with pytest.raises(ValueError, match=r"head.*row.*class"):
        hs.score_model(model, [VECTORS], head="1")


def test_looking_before_the_model_ran() -> None:
    with hs.observe(mlp()) as seen, pytest.raises(RuntimeError, match=r"observe\(model\)"):
        _ = seen.features


def test_replicas_on_several_devices_are_put_together_in_order() -> None:
    with hs.observe(nn.Linear(4, 3)) as seen:
        for index, rows in ((1, slice(3, 5)), (0, slice(0, 3))):
            seen._captured[torch.device("cpu", index)] = (VECTORS[rows], VECTORS[rows, :3])
    torch.testing.assert_close(seen.features, VECTORS)


class ChangesInPlace(nn.Module):
    """A temperature and a mask on the logits where they lie, as code that spares memory has it."""

    def __init__(self, hidden: bool) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4) if hidden else nn.Identity()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(self.body(x))
        logits /= 0.05
        logits[:, 2] = -1e4
        return logits


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_what_changes_the_logits_in_place_behind_the_head_is_not_seen(hidden: bool, mode: Callable) -> None:
    model = ChangesInPlace(hidden)
    with mode(), hs.observe(model) as seen:
        for _ in range(2):
            model(torch.randn(5, 4))
            torch.testing.assert_close(seen.logits, F.linear(seen.features, seen.weight, seen.bias))


class SharesItsHead(nn.Module):
    """One head for the last features and, for a second loss, for earlier ones; the model gives both."""

    def __init__(self, hidden: bool) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4) if hidden else nn.Identity()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.body(x).relu()), self.head(x)


@pytest.mark.parametrize("hidden", [True, False])
def test_of_a_head_called_twice_the_call_that_made_the_first_output_is_seen(hidden: bool) -> None:
    model = SharesItsHead(hidden)
    with hs.observe(model) as seen:
        for _ in range(2):
            final, _earlier = model(torch.randn(5, 4))
            torch.testing.assert_close(seen.logits, final)
            assert bool((seen.features >= 0).all())


class MayStopEarly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor, features_only: bool = False) -> Tensor:
        return x if features_only else self.head(x)


def test_a_forward_that_stops_before_the_head_does_not_show_the_one_before_it() -> None:
    model = MayStopEarly()
    with hs.observe(model) as seen:
        model(torch.randn(5, 4))
        assert len(seen.features) == 5
        model(torch.randn(5, 4), features_only=True)
        with pytest.raises(RuntimeError, match="nothing was seen"):
            _ = seen.features


class GivesFeaturesFirst(nn.Module):
    """(features, logits), as centre loss and its like want them; the features come out of a linear layer too."""

    def __init__(self, activation: nn.Module | None) -> None:
        super().__init__()
        self.embed, self.activation, self.head = nn.Linear(4, 6), activation, nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.embed(x)
        return features, self.head(features if self.activation is None else self.activation(features))


@pytest.mark.parametrize("activation", [None, nn.ReLU(inplace=True)])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_features_given_beside_the_logits_are_not_taken_for_them(activation: nn.Module | None, mode: Callable) -> None:
    model = GivesFeaturesFirst(activation)
    with mode(), hs.observe(model) as seen:
        _, logits = model(torch.randn(5, 4))
    assert seen.name == "head"
    torch.testing.assert_close(seen.logits, logits)


def test_two_outputs_of_different_width_leave_a_choice() -> None:
    # Features before their activation, or the classes of two tasks: nobody can tell which the labels belong to.
    model = GivesFeaturesFirst(nn.ReLU())
    with hs.observe(model), pytest.raises(ValueError, match=r"head.*chosen, .*embed \[6, 4\], head \[3, 6\]"):
        model(torch.randn(5, 4))
    with hs.observe(model, "head") as seen:
        assert torch.equal(model(torch.randn(5, 4))[1], seen.logits)


class Compared(nn.Module):
    """As CLIP: the only linear layer projects, and the logits are products with directions that no layer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.names = nn.Linear(4, 6), nn.Embedding(3, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x) @ self.names.weight.T


def test_an_only_linear_layer_that_does_not_make_the_output_is_no_head() -> None:
    model, x = Compared(), torch.randn(5, 4)
    with hs.observe(model), pytest.raises(ValueError, match=r"model.*linear.*'project' \[6, 4\].* \[5, 3\]"):
        model(x)
    with hs.observe(model, "project") as seen:
        model(x)
    assert list(seen.logits.shape) == [5, 6]


class GivesTheLossAlone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).logsumexp(1).mean()


def test_an_only_linear_layer_is_the_head_of_a_model_that_gives_its_loss() -> None:
    model = GivesTheLossAlone()
    with hs.observe(model) as seen:
        model(torch.randn(5, 4))
    assert list(seen.logits.shape) == [5, 3]


class Named(NamedTuple):
    embedding: Tensor
    logits: Tensor


@dataclass
class Described:
    embedding: Tensor
    logits: Tensor


@pytest.mark.parametrize("kind", [Named, Described])
def test_outputs_that_name_their_logits(kind: Callable) -> None:
    class Names(TwoHeads):
        def forward(self, x: Tensor) -> object:  # type: ignore[override]
            body = self.body(x)
            return kind(self.auxiliary(body), self.main(body))

    model = Names()
    with hs.observe(model) as seen:
        model(torch.randn(5, 4))
    assert seen.name == "main"


@pytest.mark.parametrize("padded", [False, True])
def test_sequence_classifiers_that_take_one_token(padded: bool) -> None:
    """GPT-2 computes logits of every token and returns those of the last: that token is the sample."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=1, n_head=2, n_positions=32, num_labels=3, pad_token_id=0, bos_token_id=1,
        eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.GPT2ForSequenceClassification(config).eval()
    ids = torch.randint(3, 50, (4, 9), generator=torch.Generator().manual_seed(0))
    if padded:
        ids[1, 6:] = 0
    with hs.observe(model) as seen:
        for _ in range(2):
            out = model(ids, attention_mask=(ids != 0).long())
            torch.testing.assert_close(seen.features @ seen.weight.T, out.logits)
        assert seen.name == "score"
        seen.features.sum().backward()
    assert model.transformer.wte.weight.grad is not None
