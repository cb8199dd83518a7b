"""A batch in parts gives the gradient of the whole: by hand, under clipping, and under Hugging Face's Trainer."""

import copy

import pytest
import torch
from torch import Tensor, nn

from hardsight.losses import (
    AccumulatedRescaling,
    AutomaticRescaling,
    GCELoss,
    GradientRescaling,
    compute_loss_func,
    rescaling_weights,
)


@pytest.fixture
def model(generator: torch.Generator) -> nn.Module:
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model


@pytest.fixture
def inputs(generator: torch.Generator) -> Tensor:
    return torch.randn(12, 5, generator=generator, dtype=torch.float64)


@pytest.fixture
def labels(generator: torch.Generator) -> Tensor:
    labels = torch.randint(4, (12,), generator=generator)
    labels[4] = -100
    return labels


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in model.parameters()]


def whole_batch(model: nn.Module, inputs: Tensor, labels: Tensor, epsilon: float = 1e-6) -> list[Tensor]:
    model = copy.deepcopy(model)
    GradientRescaling(epsilon=epsilon)(model(inputs), labels).backward()
    return gradients(model)


PARTS = ((0, 5), (5, 6), (6, 12))


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_parts_give_the_whole_batch(model: nn.Module, inputs: Tensor, labels: Tensor, epsilon: float) -> None:
    expected = whole_batch(model, inputs, labels, epsilon)
    criterion = AccumulatedRescaling(GradientRescaling(epsilon=epsilon), model.parameters())
    for _ in range(2):  # the second batch must not remember the first
        for start, end in PARTS:
            criterion(model(inputs[start:end]), labels[start:end]).backward()
        torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-12)
        model.zero_grad()


def test_every_prefix_is_already_right(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Clipping before the step sees the gradient of all parts so far, not an unnormalised sum."""
    criterion = AccumulatedRescaling(GradientRescaling(), model.parameters())
    for start, end in PARTS:
        criterion(model(inputs[start:end]), labels[start:end]).backward()
        torch.testing.assert_close(gradients(model), whole_batch(model, inputs[:end], labels[:end]))


def test_gradients_may_be_cleared_between_loss_and_backward(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """As Lightning does: when the loss of a batch's first part is computed, the batch before still holds its own."""
    criterion = AccumulatedRescaling(GradientRescaling(), model.parameters())
    for _ in range(2):
        for start, end in PARTS:
            loss = criterion(model(inputs[start:end]), labels[start:end])
            if start == 0:
                model.zero_grad()
            loss.backward()
        torch.testing.assert_close(gradients(model), whole_batch(model, inputs, labels), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_under_lightning(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    """Two steps of three parts each, whose loss Lightning divides by three."""
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self, parts: int) -> None:
            super().__init__()
            self.body, self.parts = copy.deepcopy(model), parts
            loss = GradientRescaling()
            self.criterion = loss if parts == 1 else AccumulatedRescaling(loss, self.body.parameters())

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return self.parts * self.criterion(self.body(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1.0)

    def trained(parts: int) -> list[Tensor]:
        module = Module(parts)
        data = torch.utils.data.TensorDataset(inputs, labels)
        lightning.Trainer(
            max_epochs=2, accumulate_grad_batches=parts, accelerator="cpu", logger=False, barebones=True
        ).fit(module, torch.utils.data.DataLoader(data, batch_size=12 // parts))
        return list(module.body.parameters())

    torch.testing.assert_close(trained(3), trained(1))


def test_naive_accumulation_is_rejected(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    expected = whole_batch(model, inputs, labels)
    for start, end in PARTS:
        (GradientRescaling()(model(inputs[start:end]), labels[start:end]) / len(PARTS)).backward()
    with pytest.raises(AssertionError):
        torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-6)


def test_two_passes_with_a_known_sum(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    expected = whole_batch(model, inputs, labels)
    total = rescaling_weights(model(inputs), labels).sum()
    for start, end in PARTS:
        GradientRescaling()(model(inputs[start:end]), labels[start:end], normaliser=total).backward()
    torch.testing.assert_close(gradients(model), expected, rtol=0, atol=1e-12)


def test_a_look_without_gradient_changes_nothing(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    criterion = AccumulatedRescaling(GradientRescaling(), model.parameters())
    criterion(model(inputs[:6]), labels[:6]).backward()
    with torch.no_grad():
        value = criterion(model(inputs), labels)
    torch.testing.assert_close(value, nn.functional.cross_entropy(model(inputs), labels))
    criterion(model(inputs[6:]), labels[6:]).backward()
    torch.testing.assert_close(gradients(model), whole_batch(model, inputs, labels))


def test_reset_where_gradients_stay_as_zeros(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    criterion = AccumulatedRescaling(GradientRescaling(), model.parameters())
    for _ in range(2):
        criterion(model(inputs), labels).backward()
        torch.testing.assert_close(gradients(model), whole_batch(model, inputs, labels))
        model.zero_grad(set_to_none=False)
        criterion.reset()


def test_parts_without_labels(model: nn.Module, inputs: Tensor, labels: Tensor) -> None:
    criterion = AccumulatedRescaling(GradientRescaling(), model.parameters())
    nothing = torch.full_like(labels, -100)
    for part in (nothing, nothing, labels, nothing):
        criterion(model(inputs), part).backward()
    torch.testing.assert_close(gradients(model), whole_batch(model, inputs, labels))


def test_rejects_another_reduction(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="loss must have reduction 'weight' to be accumulated; got 'mean'"):
        AccumulatedRescaling(GradientRescaling(reduction="mean"), model.parameters())


def test_the_hook_rejects_the_loss_whose_parts_do_not_add_up(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="loss must not be AutomaticRescaling, which needs the whole batch at once"):
        compute_loss_func(AutomaticRescaling(4), model)


@pytest.mark.parametrize("loss", [GradientRescaling(), GCELoss()], ids=["gr", "gce"])
def test_hook_alone(model: nn.Module, inputs: Tensor, labels: Tensor, loss: nn.Module) -> None:
    """compute_loss_func(outputs, labels, num_items_in_batch): parts add up, in the gradient and in the value."""
    reference = copy.deepcopy(model)
    expected = loss(reference(inputs), labels)
    expected.backward()
    hook = compute_loss_func(loss, model)
    values = []
    for start, end in PARTS:
        outputs = {"logits": model(inputs[start:end])}
        value = hook(outputs, labels[start:end], num_items_in_batch=torch.tensor(11))
        value.backward()
        values.append(value.detach())
    torch.testing.assert_close(gradients(model), gradients(reference), rtol=0, atol=1e-12)
    torch.testing.assert_close(sum(values), expected.detach())
    assert loss.reduction in ("weight", "mean")


class _Classifier(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.body(inputs)}


def trainer_step(
    model: nn.Module, inputs: Tensor, labels: Tensor, parts: int, folder: str, loss: nn.Module, clip: float
) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    model = _Classifier(copy.deepcopy(model).float())
    settings = transformers.TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=len(inputs) // parts,
        gradient_accumulation_steps=parts,
        max_steps=1,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=clip,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
        seed=1,
    )
    rows = [{"inputs": x, "labels": y} for x, y in zip(inputs.float(), labels, strict=True)]
    hook = compute_loss_func(loss, model)
    transformers.Trainer(model, settings, train_dataset=rows, compute_loss_func=hook).train()
    return model


@pytest.mark.filterwarnings("ignore")
def test_under_the_trainer(model: nn.Module, inputs: Tensor, labels: Tensor, tmp_path: object) -> None:
    """One optimiser step on twelve samples is the same in one part, two or four."""
    # Clipped: a sum that is normalised too late would be clipped differently.
    loss, clip = GradientRescaling(), 0.02
    one = trainer_step(model, inputs, labels, 1, str(tmp_path), loss, clip)
    assert not torch.equal(one.body[0].weight, model[0].weight.float())
    for parts in (2, 4):
        many = trainer_step(model, inputs, labels, parts, str(tmp_path), loss, clip)
        for first, second in zip(one.parameters(), many.parameters(), strict=True):
            torch.testing.assert_close(first, second, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("parts", [1, 3])
def test_soft_labels_under_the_trainer(model: nn.Module, inputs: Tensor, parts: int, tmp_path: object) -> None:
    """The Trainer counts every probability of a soft label as an item; the step is that of the samples' mean."""
    soft = torch.randn(12, 4, generator=torch.Generator().manual_seed(5)).softmax(-1)
    stepped = trainer_step(model, inputs, soft, parts, str(tmp_path), GCELoss(), 0.0)
    reference = copy.deepcopy(model).float()
    GCELoss()(reference(inputs.float()), soft).backward()
    for before, after in zip(reference.parameters(), stepped.parameters(), strict=True):
        torch.testing.assert_close(after, before - before.grad, rtol=0, atol=1e-6)
