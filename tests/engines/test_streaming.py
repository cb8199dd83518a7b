"""Scoring a model over a loader: the same numbers as scoring its features, whatever the loader yields."""

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hardsight as hs
from hardsight.hardness import model_scores

NAMES = [one.name for one in model_scores()]
INPUTS = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(0, 3, (50,), generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def test_equals_scoring_the_features(model: nn.Sequential) -> None:
    table = hs.score_model(model, DataLoader(TensorDataset(INPUTS, LABELS), 16), NAMES)
    with torch.no_grad():
        features = model[:2](INPUTS)
        predicted = model(INPUTS).argmax(1)
    expected = hs.score(features, model[2].weight, LABELS, model[2].bias, NAMES)
    assert table["id"].to_pylist() == list(range(50))
    assert table["label"].to_pylist() == LABELS.tolist()
    assert table["predicted"].to_pylist() == predicted.tolist()
    for name in NAMES:
        torch.testing.assert_close(torch.tensor(table[name].to_numpy()), expected[name].detach(), rtol=1e-5, atol=2e-6)
    assert table.schema.field("avh").metadata[b"direction"] == b"larger is harder"
    assert table.schema.metadata[b"hardness against"] == b"given label"


def test_ids_travel_with_their_samples(model: nn.Sequential) -> None:
    ids = torch.randperm(50, generator=torch.Generator().manual_seed(2))
    table = hs.score_model(model, DataLoader(TensorDataset(INPUTS, LABELS, ids), 7))
    assert table["id"].to_pylist() == ids.tolist()
    named = hs.score_model(model, [(INPUTS[:2], LABELS[:2], ["cat.png", "dog.png"])])
    assert named["id"].to_pylist() == ["cat.png", "dog.png"]


def test_without_labels_against_the_predicted_class_and_says_so(model: nn.Sequential) -> None:
    for loader in ([INPUTS], [(INPUTS,)]):
        table = hs.score_model(model, loader)
        assert table["label"].null_count == 50
        assert table.schema.metadata[b"hardness against"] == b"predicted class"
        assert min(table["confidence"].to_pylist()) >= 1 / 3


def test_dictionaries_as_hugging_face_yields_them() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=8,
        patch_size=4,
        num_labels=5,
    )
    vit = transformers.ViTForImageClassification(config)
    batch = {"pixel_values": torch.randn(3, 3, 8, 8), "labels": torch.tensor([0, 1, 4]), "id": [7, 8, 9]}
    table = hs.score_model(vit, [batch])
    assert table["id"].to_pylist() == [7, 8, 9]
    assert table["label"].to_pylist() == [0, 1, 4]


def test_the_model_is_left_as_it_was(model: nn.Sequential) -> None:
    model.train()
    model[1].eval()
    hs.score_model(model, [INPUTS])
    assert [module.training for module in model] == [True, False, True]
    assert all(not module._forward_hooks for module in model.modules())


def test_a_model_that_must_not_be_moved_is_scored_where_it_is(
    model: nn.Sequential, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Quantised models and those spread over several devices refuse `to`, wherever it goes.
    expected = hs.score_model(model, [(INPUTS, LABELS)])
    monkeypatch.setattr(nn.Sequential, "to", lambda self, *_: pytest.fail("the model was moved"))
    assert hs.score_model(model, [(INPUTS, LABELS)]).equals(expected)


def test_a_head_that_is_no_plain_product_keeps_its_own_logits() -> None:
    class Angular(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 16 * (math.pi - hs.geometry.angles_to_classes(x, self.weight))

    model = Angular(4, 3, bias=False)
    table = hs.score_model(model, [(INPUTS, LABELS)], ("avh", "confidence", "norm"))
    with torch.no_grad():
        expected = hs.model_confidence(model(INPUTS), LABELS)
        hardness = hs.angular_visual_hardness(INPUTS, model.weight, LABELS)
    torch.testing.assert_close(torch.tensor(table["confidence"].to_numpy()), expected)
    torch.testing.assert_close(torch.tensor(table["avh"].to_numpy()), hardness)


def test_half_precision_models_are_measured_in_float32(model: nn.Sequential) -> None:
    half = hs.score_model(model.bfloat16(), [(INPUTS.bfloat16(), LABELS)], ("avh",))
    with torch.no_grad():
        features = model[:2](INPUTS.bfloat16())
    expected = hs.angular_visual_hardness(features.float(), model[2].weight.float(), LABELS)
    torch.testing.assert_close(torch.tensor(half["avh"].to_numpy()), expected.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("loader", "error", "sentence"),
    [
        ([], ValueError, "it was empty"),
        ([(INPUTS, LABELS), INPUTS], ValueError, "with every batch or with none"),
        ([(INPUTS, LABELS + 1)], ValueError, r"labels must lie in \[0, 3\)"),
        ([(INPUTS, LABELS, [1, 2])], ValueError, "got 2 ids for 50 samples"),
        ([(INPUTS[:2], LABELS[:2], [1, "a"])], ValueError, "ids must be text, or whole numbers"),
        (["text"], TypeError, "got str"),
        ([INPUTS, INPUTS * math.nan], ValueError, "features of batch 1 must be finite; 50 of 50 rows"),
        ([(INPUTS, ["cat"] * 50)], TypeError, "labels must be whole numbers; got list"),
        ([([[1.0]], LABELS)], TypeError, r"got a tuple of list, Tensor"),
        ([(INPUTS, LABELS, LABELS, LABELS)], TypeError, "got a tuple of Tensor, Tensor, Tensor, Tensor"),
    ],
)
def test_loaders_that_are_refused(model: nn.Sequential, loader: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        hs.score_model(model, loader)


def test_labels_may_be_arrays_and_lists(model: nn.Sequential) -> None:
    expected = hs.score_model(model, [(INPUTS, LABELS)])
    for labels in (LABELS.numpy(), LABELS.tolist(), LABELS.int()):
        assert hs.score_model(model, [(INPUTS, labels)]).equals(expected)


def test_inputs_may_be_arrays(model: nn.Sequential) -> None:
    expected = hs.score_model(model, [(INPUTS, LABELS)])
    assert hs.score_model(model, [(INPUTS.numpy(), LABELS.numpy())]).equals(expected)
    # NumPy's usual numbers are double, a model's are not.
    assert hs.score_model(model, [(INPUTS.double().numpy(), LABELS.numpy())]).equals(expected)
    alone = hs.score_model(model, [INPUTS.numpy()])
    assert alone.equals(hs.score_model(model, [INPUTS]))


def test_what_is_no_model_and_no_loader_is_refused_in_a_sentence() -> None:
    """In a process of its own: the tests' types would be refused before the sentence."""
    program = (
        "import hardsight as hs, torch\n"
        "net = torch.nn.Linear(2, 2)\n"
        "for model, loader in (('resnet50', []), (lambda inputs: inputs, []), (net, None)):\n"
        "    try: hs.score_model(model, loader)\n"
        "    except TypeError as refusal: print(refusal)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    named = [(line.split()[0], line.split()[-1]) for line in said.splitlines()]
    assert named == [("model", "str"), ("model", "function"), ("loader", "NoneType")]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_head_that_is_not_finite_is_refused(model: nn.Sequential, part: str, value: float) -> None:
    with torch.no_grad():
        getattr(model[2], part)[1] = value
    with pytest.raises(ValueError, match=f"{part} must be finite; 1 of 3 rows"):
        hs.score_model(model, [(INPUTS, LABELS)])


def test_a_head_of_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 classes"):
        hs.score_model(nn.Linear(4, 1), [INPUTS])


def test_logits_that_overflow_do_not_reach_the_scores() -> None:
    model = nn.Linear(4, 3, bias=False)
    with torch.no_grad():
        model.weight.mul_(1e30)
        assert not model(INPUTS * 1e10).isfinite().all()
    table = hs.score_model(model, [(INPUTS * 1e10, LABELS)], NAMES)
    for name in NAMES:
        assert torch.tensor(table[name].to_numpy()).isfinite().all(), name


def test_logits_of_another_kind_of_head_must_be_finite() -> None:
    class Broken(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * math.nan

    with pytest.raises(ValueError, match="logits of batch 0 must be finite"):
        hs.score_model(Broken(4, 3), [(INPUTS, LABELS)])


def test_a_progress_bar_on_request(model: nn.Sequential, capsys: pytest.CaptureFixture[str]) -> None:
    hs.score_model(model, [INPUTS], progress=True)
    assert "scoring" in capsys.readouterr().err
    hs.score_model(model, (batch for batch in [INPUTS]), progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.gpu
def test_cuda_gives_the_same_and_the_model_comes_back(model: nn.Sequential) -> None:
    on_cpu = hs.score_model(model, [(INPUTS, LABELS)], NAMES)
    on_gpu = hs.score_model(model, [(INPUTS, LABELS)], NAMES, device="cuda")
    assert model[0].weight.device.type == "cpu"
    for name in NAMES:
        torch.testing.assert_close(
            torch.tensor(on_gpu[name].to_numpy()), torch.tensor(on_cpu[name].to_numpy()), rtol=1e-4, atol=1e-4
        )


def test_a_data_set_in_the_place_of_a_loader_is_refused_in_a_sentence() -> None:
    data = TensorDataset(torch.rand(4, 3), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="loader must yield batches, as a DataLoader does"):
        hs.score_model(nn.Linear(3, 2), [data[at] for at in range(4)])
    # Before the model is asked, which might end in anything.
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))
    digits = hs.datasets.load("digits").subset(range(3))
    with pytest.raises(
        ValueError, match=r"loader must yield batches, .*: put it into a torch\.utils\.data\.DataLoader"
    ):
        hs.score_model(network, [digits[at] for at in range(3)])


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        (
            (torch.rand(5, 6), LABELS[:5]),
            r"give the shape of its training, for batch 0 of shape \[5, 6\] ended in: mat1",
        ),
        ((INPUTS.byte(), LABELS), r"batch 0 is of torch.uint8, the model of torch.float32: .* images.float\(\) / 255"),
        ((INPUTS.byte().numpy(), LABELS), r"batch 0 is of torch.uint8"),
        ((INPUTS.double(), LABELS), r"torch.float64, the model of torch.float32: give images.to\(torch.float32\)"),
        (
            {"pixels": INPUTS, "labels": LABELS},
            "batch 0, a dictionary of pixels, ended in: .*keyword argument 'pixels'",
        ),
    ],
)
def test_a_batch_that_the_model_does_not_take_is_refused_with_what_to_do(
    model: nn.Sequential, batch: Any, sentence: str
) -> None:
    with pytest.raises(ValueError, match=f"^loader must yield batches that the model takes; .*{sentence}") as refused:
        hs.score_model(model, [batch])
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value.__cause__, RuntimeError | TypeError)


@pytest.mark.parametrize("device", ["nope", "cuda:99", "meta"])
def test_a_device_that_is_not_there_is_refused_and_the_model_stays(model: nn.Sequential, device: str) -> None:
    with pytest.raises(ValueError, match=f"^device must be one that .*'{device}'"):
        hs.score_model(model, [(INPUTS, LABELS)], device=device)
    assert all(one.device.type == "cpu" for one in model.parameters())


@pytest.mark.parametrize(
    "batch",
    [
        (INPUTS, LABELS),
        [INPUTS, LABELS],
        (INPUTS.numpy(), LABELS.numpy()),
        (INPUTS, LABELS.tolist()),
        (INPUTS, LABELS, LABELS),
        INPUTS,
        INPUTS.numpy(),
        {"x": INPUTS, "labels": LABELS},
    ],
)
def test_one_batch_in_the_place_of_a_loader_is_refused_with_what_to_do(model: nn.Sequential, batch: Any) -> None:
    with pytest.raises(TypeError, match=r"^loader must yield batches, .*got one batch: give it as \[batch\]$"):
        hs.score_model(model, batch)
    # Two batches of inputs alone are a loader.
    assert hs.score_model(model, (INPUTS, INPUTS)).num_rows == 100


@pytest.mark.parametrize("ids", [[0, 1, 1], [0.0, float("nan"), 1.0], ["a", None, "b"]])
def test_ids_that_do_not_name_one_sample_are_refused(ids: list) -> None:
    model = nn.Linear(4, 3)
    with pytest.raises(ValueError, match="ids must"):
        hs.score_model(model, [(torch.ones(3, 4), torch.tensor([0, 1, 2]), ids)])
