"""Weights from scores, columns that carry them, and the loss that reads them."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import Trainer, TrainingArguments

from hardsight.language import TokenCollator, TokenLoss, number_tokens, score_tokens, with_reference_loss, with_weights
from hardsight.language.columns import (
    most_learnable,
    weights_by_rank,
    weights_by_rescaling,
    weights_by_threshold,
)
from hardsight.losses import gradient_rescaling
from tests.language.conftest import build, documents
from tests.language.test_recording import OPTIONS, corpus, pad


def test_weights_by_rank_and_threshold() -> None:
    values = [0.3, np.nan, 0.1, 0.2, 0.1]
    assert weights_by_rank(values, 0.4).tolist() == [0, 0, 1, 0, 1]
    assert weights_by_rank(values, 0.4, largest=True).tolist() == [1, 0, 0, 1, 0]
    assert weights_by_threshold(values, 0.1, 0.2).tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match=r"keep must lie in \[0, 1\]"):
        weights_by_rank(values, 1.5)
    with pytest.raises(ValueError, match="low must not exceed high"):
        weights_by_threshold(values, 2.0, 1.0)


def test_rescaling_weights_are_the_papers() -> None:
    p = np.array([0.05, 0.3, 0.9])
    expected = np.exp(6 * np.sqrt(p) * (1 - p))
    np.testing.assert_allclose(weights_by_rescaling(np.log(p)), expected / expected.mean(), rtol=1e-6)
    with pytest.raises(ValueError, match="log_probability"):
        weights_by_rescaling([0.5])


def test_columns_of_tokens_and_documents() -> None:
    data = [{"input_ids": [3, 4, 5]}, {"input_ids": [6, 7]}]
    tokens = pa.table({"document": [0, 0, 1], "position": [1, 2, 1], "log_probability": [-1.0, -2.0, -3.0]})
    found = with_weights(data, tokens, [0.0, 0.5, 2.0])
    assert [row["token_weight"] for row in found] == [[1.0, 0.0, 0.5], [1.0, 2.0]]
    found = with_weights(data, pa.table({"id": [1]}), [0.25])
    assert [row["token_weight"] for row in found] == [[1.0, 1.0, 1.0], [0.25, 0.25]]
    found = with_reference_loss(data, tokens)
    assert [row["reference_loss"] for row in found] == [[0.0, 1.0, 2.0], [0.0, 3.0]]
    with pytest.raises(ValueError, match=r"positions must lie.*2 in document 1.*2 tokens"):
        with_weights(data, pa.table({"document": [1], "position": [2]}), [1.0])
    with pytest.raises(ValueError, match=r"weights must be one number for each of the 3 rows"):
        with_weights(data, tokens, [1.0])
    with pytest.raises(ValueError, match=r"token_weight must be finite and not negative"):
        with_weights(data, tokens, [1.0, -1.0, 1.0])
    with pytest.raises(ValueError, match=r"documents must lie in \[0, 2\)"):
        with_weights(data, pa.table({"id": [2]}), [1.0])
    with pytest.raises(ValueError, match="'log_probability'"):
        with_reference_loss(data, tokens.select(["document"]))


def gradients(kind: str, name: str = "llama, untied", items: int | None = None, **extra):
    """The gradient of every parameter, by the loss, in one training step of the model alone."""
    options = extra.pop("options", {})
    model = build(name).train()
    loss = TokenLoss(model, kind, **options)
    ids = documents(2, 8)
    labels = ids.clone()
    labels[1, 5:] = -100
    outputs = model(input_ids=ids, **extra)
    value = loss(outputs, labels, items)
    value.backward()
    loss.close()
    assert not model._forward_pre_hooks
    return value.item(), {key: one.grad for key, one in model.named_parameters()}, ids, labels


WEIGHTS = torch.rand(2, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["llama, untied", "gpt2, tied", "granite, divided", "phi, bias"])
def test_the_loss_is_gradient_rescaling_of_every_token(name: str) -> None:
    """What the whole logits would give, to the gradient of every parameter."""
    model = build(name).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    loss, ids = TokenLoss(model, "gradient_rescaling", beta=4.0), documents(2, 8)
    loss(model(input_ids=ids, token_weight=WEIGHTS), ids).backward()
    found = {key: one.grad.clone() for key, one in model.named_parameters()}
    loss.close()
    model.zero_grad()
    logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
    gradient_rescaling(logits, ids[:, 1:].flatten(), beta=4.0, sample_weight=WEIGHTS[:, 1:].flatten()).backward()
    for key, one in model.named_parameters():
        torch.testing.assert_close(found[key], one.grad, rtol=1e-4, atol=1e-6)


def test_cross_entropy_with_weights_is_the_weighted_mean() -> None:
    value, _, ids, labels = gradients("cross_entropy", token_weight=WEIGHTS)
    model = build("llama, untied")
    logits = model(input_ids=ids).logits[:, :-1]
    there = labels[:, 1:] != -100
    losses = torch.nn.functional.cross_entropy(logits[there], labels[:, 1:][there], reduction="none")
    weight = WEIGHTS[:, 1:][there]
    expected = (losses * weight).sum() / weight.sum()
    assert value == pytest.approx(expected.item(), rel=1e-6)
    half, _, _, _ = gradients("cross_entropy", token_weight=WEIGHTS, items=2 * int(there.sum()))
    assert half == pytest.approx(value / 2, rel=1e-6)
    # Without the column, it is the model's own loss.
    assert gradients("cross_entropy")[0] == pytest.approx(losses.mean().item(), rel=1e-6)


def test_selective_trains_on_the_tokens_of_most_excess() -> None:
    reference = torch.zeros(2, 8)
    # A reference that knows nothing of one token: its excess is the least.
    reference[0, 3] = 100.0
    value, _, ids, labels = gradients("selective", reference_loss=reference, options={"keep": 0.999})
    logits = build("llama, untied")(input_ids=ids).logits[:, :-1]
    there = labels[:, 1:] != -100
    losses = torch.nn.functional.cross_entropy(logits[there], labels[:, 1:][there], reduction="none")
    assert value == pytest.approx(losses.mean().item(), rel=1e-5)
    count = int(there.sum())
    value, _, _, _ = gradients("selective", reference_loss=reference, options={"keep": (count - 1) / count})
    kept = torch.ones(count, dtype=torch.bool)
    kept[2] = False
    assert value == pytest.approx(losses[kept].mean().item(), rel=1e-5)
    chosen = most_learnable(torch.tensor([3.0, 1.0, 2.0, 9.0]), 0.67, torch.tensor([True, True, True, False]))
    assert chosen.tolist() == [1, 0, 1, 0]


def test_trainer_reads_the_weights(tmp_path) -> None:
    """Documents of weight 0 teach nothing: the trained model is that of the others alone."""
    data = corpus()
    tokens = score_tokens(build("gpt2, tied"), torch.tensor([data[0]["input_ids"]]))
    weighted = with_weights(data, pa.table({"document": list(range(8))}), [1, 0, 1, 0, 1, 1, 0, 1])
    assert tokens.num_rows == 8

    def trained(rows, batch: int):
        model = build("llama, untied")
        changes = {"learning_rate": 1e-2, "num_train_epochs": 1, "per_device_train_batch_size": batch}
        arguments = TrainingArguments(str(tmp_path), **{**OPTIONS, **changes, "max_grad_norm": 0.0, "optim": "sgd"})
        trainer = Trainer(
            model, arguments, train_dataset=rows, data_collator=TokenCollator(pad), compute_loss_func=TokenLoss(model)
        )
        trainer.args.average_tokens_across_devices = False
        # The number of tokens of a batch counts those of weight 0 too.
        trainer.model_accepts_loss_kwargs = False
        trainer.train()
        return model.state_dict()

    with_all = trained(weighted, 8)
    others = trained([row for at, row in enumerate(weighted) if at not in (1, 3, 6)], 8)
    changed = 0.0
    for key, one in build("llama, untied").state_dict().items():
        changed += float((with_all[key] - one).abs().sum())
    assert changed > 0
    ratio = [
        float((with_all[key] - one).norm() / (others[key] - one).norm().clamp(min=1e-12))
        for key, one in build("llama, untied").state_dict().items()
        if float((others[key] - one).norm()) > 1e-6
    ]
    assert np.ptp(ratio) < 1e-2


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"kind.*selective"):
        TokenLoss(build("llama, untied"), "selectiv")
    with pytest.raises(ValueError, match=r"keep must lie in \[0, 1\]"):
        TokenLoss(build("llama, untied"), "selective", keep=2.0)
    with pytest.raises(ValueError, match=r"options.*beta"):
        TokenLoss(build("llama, untied"), "selective", beta=2.0)
    with pytest.raises(ValueError, match="soft cap"):
        TokenLoss(build("gemma2, soft-capped"), "gradient_rescaling")
    with pytest.raises(ValueError, match="reference_loss"):
        gradients("selective")


def test_numbers_count_over_documents() -> None:
    dataset, starts = number_tokens([{"input_ids": [1, 2]}, {"input_ids": [3, 4, 5]}])
    assert [row["token_number"] for row in dataset] == [[0, 1], [2, 3, 4]]
    assert starts.tolist() == [0, 2, 5]
