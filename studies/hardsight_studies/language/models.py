"""Small language models that the study of planted noise trains, and their tokens."""

import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from hardsight.language import number_tokens
from hardsight.language.head import language_head
from hardsight.language.recording import TokenDynamics
from hardsight_studies.language.texts import books


def tokenizer_of(texts: list[str], vocabulary: int) -> Any:
    """Byte-level pairs of these texts; token 0 begins every document."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.trainers import BpeTrainer

    words = Tokenizer(models.BPE())
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    words.train_from_iterator(
        texts,
        BpeTrainer(
            vocab_size=vocabulary, special_tokens=["<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )  # fmt: skip
    return words


def characters_of(words: Any, texts: list[str], length: int) -> np.ndarray:
    """How many characters of each text the model reads."""
    return np.array([one.offsets[: length - 1][-1][1] for one in words.encode_batch(texts)])


def encode(words: Any, texts: list[str], length: int) -> list[list[int]]:
    return [[0, *one.ids][:length] for one in words.encode_batch(texts)]


def new_model(settings: Any, seed: int) -> nn.Module:
    """A GPT-2 that has learned nothing."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    width = settings["width"]
    config = GPT2Config(
        vocab_size=settings["vocabulary"], n_embd=width, n_layer=settings["layers"], n_head=max(1, width // 32),
        n_positions=settings["length"], bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model: nn.Module = GPT2LMHeadModel(config)
    return model


@functools.cache
def pretrained(settings: str, seed: int, device: torch.device) -> tuple[Any, nn.Module]:
    """A tokenizer and a model of the books, trained once for all runs of a seed; `settings` as JSON."""
    known = json.loads(settings)
    texts, length = books(), known["length"]
    words = tokenizer_of(texts, known["vocabulary"])
    tokens = [token for one in words.encode_batch(texts) for token in (0, *one.ids)]
    windows = [tokens[start : start + length] for start in range(0, len(tokens) - length, length)]
    model = new_model(known, seed).to(device)
    train(model, windows, {**known, **known["pretraining"]}, seed)
    return words, model


def train(
    model: nn.Module, ids: list[list[int]], settings: Any, seed: int, *, recorded: bool = False
) -> TokenDynamics | None:
    """Train on these documents, in place; with what was recorded of all steps, where asked for."""
    torch.manual_seed(seed)
    device = next(model.parameters()).device
    rows, starts = number_tokens([{"input_ids": one} for one in ids])
    numbers = [row["token_number"] for row in rows] if recorded else None
    head, seen = language_head(model), []
    dynamics = TokenDynamics(starts, head.size, every=2) if recorded else None
    handle = head.linear.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["lr"], weight_decay=0.1, fused=device.type == "cuda")
    steps = settings["epochs"] * -(-len(ids) // settings["batch"])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings["lr"], steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(settings["epochs"]):
        for batch in _batches(ids, settings["batch"], generator):
            inputs, mask, places = (one.to(device) for one in padded(ids, batch, numbers))
            labels = inputs.masked_fill(mask == 0, -100)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = model(inputs, attention_mask=mask, labels=labels).loss
            features = seen.pop()
            if dynamics is not None:
                dynamics.update(places, labels, features, head)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        if dynamics is not None:
            dynamics.end_epoch()
    handle.remove()
    return dynamics


def _batches(ids: list[list[int]], size: int, generator: torch.Generator) -> list[list[int]]:
    """Every document once, in batches of like length: half as many places are padding."""
    order = torch.randperm(len(ids), generator=generator)
    pools = [sorted(pool.tolist(), key=lambda one: len(ids[one])) for pool in order.split(16 * size)]
    batches = [pool[start : start + size] for pool in pools for start in range(0, len(pool), size)]
    return [batches[at] for at in torch.randperm(len(batches), generator=generator).tolist()]


def padded(
    ids: list[list[int]], chosen: Sequence[int], numbers: list[list[int]] | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, mask and token numbers of some documents, padded on the right."""
    length = max(len(ids[one]) for one in chosen)
    inputs, mask = (
        torch.zeros(len(chosen), length, dtype=torch.long),
        torch.zeros(len(chosen), length, dtype=torch.long),
    )
    places = torch.full_like(inputs, -1)
    for row, one in enumerate(chosen):
        inputs[row, : len(ids[one])] = torch.tensor(ids[one])
        mask[row, : len(ids[one])] = 1
        if numbers is not None:
            places[row, : len(ids[one])] = torch.tensor(numbers[one])
    return inputs, mask, places
