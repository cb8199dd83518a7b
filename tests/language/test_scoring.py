"""`score_tokens` against a slow loop in float64, in any batch, padding and precision; and what it rejects."""

import math

import numpy as np
import pytest
import torch
import transformers as hf

import hardsight as hs
from hardsight.language import TOKEN_SCORES, score_tokens
from tests.language.conftest import BUILDERS, VOCABULARY, build, documents


def slow_loop(model: torch.nn.Module, ids: torch.Tensor, mask: torch.Tensor, causal: bool) -> list[dict]:
    """One token after the other, from the model's own logits and the definitions."""
    model = model.double()
    head = model.get_output_embeddings()
    seen: list[torch.Tensor] = []
    handle = head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=mask).logits
    handle.remove()
    rows = []
    for document, position in mask.nonzero().tolist():
        if causal and position == 0:
            continue
        at, token = position - int(causal), int(ids[document, position])
        own, x = logits[document, at], seen[0][document, at]
        log_p = own - own.logsumexp(0)
        cosines = (head.weight @ x) / (head.weight.norm(dim=1) * x.norm())
        # A zero row, as of a padding token, has no direction: pi/2.
        angles = cosines.detach().nan_to_num(0.0).acos()
        others = [one for one in range(VOCABULARY) if one != token]
        rows.append(
            {
                "document": document,
                "position": position,
                "token": token,
                "log_probability": float(log_p[token]),
                "entropy": float(-(log_p.exp() * log_p).sum()),
                "rank": 1 + sum(float(own[one]) > float(own[token]) for one in others),
                "margin": float(own[token] - own[others].max()),
                "avh": float(angles[token] / angles.sum()),
                "angular_margin": float(angles[others].min() - angles[token]),
                "norm": float(x.norm()),
            }
        )
    return rows


@pytest.mark.parametrize("name", BUILDERS)
def test_equals_a_slow_loop_in_float64(name: str) -> None:
    ids, mask = documents(), torch.ones(3, 12, dtype=torch.long)
    mask[1, 7:] = 0
    table = score_tokens(build(name), ids, mask, batch_tokens=24)
    expected = slow_loop(build(name), ids, mask, "masked" not in name)
    assert table.column_names == ["document", "position", "token", *TOKEN_SCORES]
    assert table.num_rows == len(expected)
    for column in table.column_names:
        found = table.column(column).to_numpy()
        np.testing.assert_allclose(found, [row[column] for row in expected], rtol=1e-5, atol=1e-5, err_msg=column)


def test_is_the_loss_of_the_model() -> None:
    model, ids = build("llama, untied"), documents()
    with torch.no_grad():
        loss = model(ids, labels=ids).loss
    assert -score_tokens(model, ids).column("log_probability").to_numpy().mean() == pytest.approx(loss.item(), abs=1e-6)


@pytest.mark.parametrize("name", ["gpt2, tied", "llama, untied"])
def test_padding_on_the_left_changes_nothing(name: str) -> None:
    ids, model = documents(2, 8), build(name)
    plain = score_tokens(model, ids)
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
    mask = torch.cat([torch.zeros(2, 3), torch.ones(2, 8)], 1)
    for one, other in zip(plain.columns, score_tokens(model, padded, mask).columns, strict=True):
        np.testing.assert_allclose(one.to_numpy(), other.to_numpy(), rtol=1e-4, atol=1e-5)


def test_labels_choose_the_tokens() -> None:
    model, ids = build("bert, masked"), documents()
    labels = torch.full_like(ids, -100)
    labels[0, 4], labels[2, 7] = 5, 6
    table = score_tokens(model, ids, labels=labels)
    assert table.select(["document", "position", "token"]).to_pydict() == {
        "document": [0, 2], "position": [4, 7], "token": [5, 6],
    }  # fmt: skip
    causal = score_tokens(build("gpt2, tied"), ids, labels=labels)
    assert causal.column("position").to_pylist() == [4, 7]


def test_bfloat16_is_scored_as_its_own_features_are() -> None:
    ids = documents()
    half = score_tokens(build("llama, untied").bfloat16(), ids, scores=("log_probability", "avh"))
    full = score_tokens(build("llama, untied"), ids, scores=("log_probability", "avh"))
    for name in ("log_probability", "avh"):
        np.testing.assert_allclose(half.column(name).to_numpy(), full.column(name).to_numpy(), atol=0.03)


def test_any_score_of_one_token_and_no_other(gpt2: torch.nn.Module) -> None:
    table = score_tokens(gpt2, documents(), scores=("el2n", "confidence", "loss", "log_probability"))
    loss, log_p = (table.column(name).to_numpy() for name in ("loss", "log_probability"))
    np.testing.assert_array_equal(loss, -log_p)
    assert table.schema.field("el2n").metadata[b"direction"] == b"larger is harder"
    with pytest.raises(ValueError, match=r"scores.*'class_norm'"):
        score_tokens(gpt2, documents(), scores=("class_norm",))
    with pytest.raises(ValueError, match=r"scores.*aum"):
        score_tokens(gpt2, documents(), scores=("aum",))


def test_tokens_times_vocabulary_never_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor is as large: the head is given one position, and chunks follow the vocabulary."""
    model = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=5000, n_embd=8, n_layer=1, n_head=1, n_positions=512))
    ids = torch.randint(5000, (8, 512), generator=torch.Generator().manual_seed(0))
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            sizes = [one.numel() for one in torch.utils._pytree.tree_leaves(out) if isinstance(one, torch.Tensor)]
            largest = max([largest, *sizes])
            return out

    with Watch():
        score_tokens(model, ids)
    assert largest < ids.numel() * 5000 / 4


def test_the_model_is_left_as_it_was(gpt2: torch.nn.Module) -> None:
    gpt2.train()
    hs.score_tokens(gpt2, documents())
    assert gpt2.training
    assert not gpt2.lm_head._forward_pre_hooks


def changed(model: torch.nn.Module) -> torch.nn.Module:
    """A model that makes something of its own of the head's output."""
    forward = model.forward

    def other(*args, **kwargs):
        out = forward(*args, **kwargs)
        out.logits = out.logits.relu()
        return out

    model.forward = other
    return model


def test_models_that_are_rejected() -> None:
    ids = documents()
    t5 = hf.T5ForConditionalGeneration(
        hf.T5Config(vocab_size=50, d_model=8, d_ff=8, num_layers=1, num_heads=1, d_kv=8, decoder_start_token_id=0)
    )
    with pytest.raises(ValueError, match=r"model must.*T5ForConditionalGeneration"):
        score_tokens(t5, ids)
    with pytest.raises(ValueError, match=r"model must.*linear head.*Linear"):
        score_tokens(torch.nn.Linear(2, 2), ids)
    classifier = hf.GPT2ForSequenceClassification(hf.GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(ValueError, match=r"model must.*GPT2ForSequenceClassification"):
        score_tokens(classifier, ids)
    with pytest.raises(ValueError, match=r"model must give the logits.*GPT2LMHeadModel"):
        score_tokens(changed(build("gpt2, tied")), ids)


def test_bad_tokens_are_named(gpt2: torch.nn.Module) -> None:
    ids = documents()
    for wrong in (-1, VOCABULARY):
        bad = ids.clone()
        bad[1, 3] = wrong
        with pytest.raises(ValueError, match=rf"input_ids must lie in \[0, 50\).*{wrong} in document 1 at position 3"):
            score_tokens(gpt2, bad)
        if wrong > 0:
            with pytest.raises(ValueError, match=r"labels must lie in \[0, 50\).*50 in document 1"):
                score_tokens(gpt2, ids, labels=bad)
    with pytest.raises(ValueError, match=r"attention_mask and labels.*none in 3 documents"):
        score_tokens(gpt2, ids, torch.zeros_like(ids))
    with pytest.raises(ValueError, match=r"attention_mask and labels.*none"):
        score_tokens(gpt2, ids[:, :1])
    with pytest.raises(ValueError, match=r"input_ids.*not empty.*\[0, 12\]"):
        score_tokens(gpt2, ids[:0])
    with pytest.raises(ValueError, match=r"attention_mask.*\[3, 12\].*\[3, 11\]"):
        score_tokens(gpt2, ids, torch.ones(3, 11))
    with pytest.raises(TypeError, match="input_ids must be integers"):
        score_tokens(gpt2, ids.float())


def test_entropy_of_random_weights_is_near_that_of_chance(gpt2: torch.nn.Module) -> None:
    entropy = score_tokens(gpt2, documents()).column("entropy").to_numpy()
    assert (entropy > 0.9 * math.log(VOCABULARY)).all()
