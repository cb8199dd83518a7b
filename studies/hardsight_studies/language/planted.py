"""Noise planted among documents, and how well each score of a small language model finds it.

A tokenizer and a model are trained on all documents, noise included, as one who does not know of it would; every token
is recorded while training, and scored in the end. A document's score is the mean over its tokens.
"""

import random
import string
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.stats import spearmanr

from hardsight.hardness import SCORES
from hardsight.language import TOKEN_SCORES, number_tokens, score_tokens
from hardsight.language.head import language_head
from hardsight.language.recording import TokenDynamics
from hardsight.language.sums import means_by, with_context_gain
from hardsight.records import read_run
from hardsight_studies.engine import trainings
from hardsight_studies.engine.running import row_of
from hardsight_studies.language.texts import docstrings, fortunes
from hardsight_studies.together.detection import detect

if TYPE_CHECKING:
    from hardsight_studies.engine.clock import Options
    from hardsight_studies.engine.grid import Run
    from hardsight_studies.engine.rows import Row, Rows

_NOTICE = (
    "This message and any file attached to it are meant for the person named above alone. If you have received it by "
    "mistake, please tell the sender and remove it from your system. Number {number} of this list."
)


def compute(runs: Sequence["Run"], preset: str, options: "Options") -> None:
    """One run after the other."""
    for run in runs:
        options.clock.check()
        settings = run.config
        known = docstrings() if settings["texts"] == "docstrings" else fortunes()
        texts, wrong = planted(run.settings["noise"], known, settings["documents"], settings["share"], run.seed)
        results = measured(texts, wrong, settings, run.seed)
        trainings.write_record(run, results, torch.device("cpu"))


def rows(runs: Sequence["Run"], preset: str) -> Iterator["Row"]:
    """A row for each run, with everything that was measured."""
    for run in runs:
        yield row_of(run, (read_run(run.folder) or {})["results"])


# ---------------------------------------------------------------------------------------------------------------------
# Documents.


def planted(noise: str, known: list[str], documents: int, share: float, seed: int) -> tuple[list[str], np.ndarray]:
    """So many of the known documents, a share of them replaced by noise of this kind, and which ones."""
    draw = random.Random(seed)
    texts = draw.sample(known, min(documents, len(known)))
    foreign = fortunes("de") if noise == "language" else []
    places = draw.sample(range(len(texts)), round(share * len(texts)))
    for number, place in enumerate(places):
        texts[place] = _NOISES[noise](texts[place], number, draw, foreign)
    wrong = np.zeros(len(texts), bool)
    wrong[places] = True
    return texts, wrong


def _shuffled(text: str, number: int, draw: random.Random, foreign: list[str]) -> str:
    words = text.split()
    draw.shuffle(words)
    return " ".join(words)


def _language(text: str, number: int, draw: random.Random, foreign: list[str]) -> str:
    return draw.choice(foreign)


def _characters(text: str, number: int, draw: random.Random, foreign: list[str]) -> str:
    return "".join(draw.choice(string.ascii_lowercase + "      ") for _ in text).strip() or "x"


def _boilerplate(text: str, number: int, draw: random.Random, foreign: list[str]) -> str:
    return _NOTICE.format(number=number)


_NOISES: dict[str, Callable[[str, int, random.Random, list[str]], str]] = {
    "shuffled": _shuffled,
    "language": _language,
    "characters": _characters,
    "boilerplate": _boilerplate,
}


# ---------------------------------------------------------------------------------------------------------------------
# Training and scores.


def measured(texts: list[str], wrong: np.ndarray, settings: Any, seed: int) -> dict[str, float]:
    """How well every score finds the noise, and how alike AVH and loss rank tokens and documents."""
    ids = _encoded(texts, settings["vocabulary"], settings["length"])
    model, dynamics = train(ids, settings, seed)
    tokens = with_context_gain(score_tokens(model, *_padded(ids, range(len(ids)))[:2]))
    means = means_by(tokens, tokens.column("document").to_numpy(), groups=len(ids))
    found = {}
    for name in (*TOKEN_SCORES, "context_gain"):
        easy = name in ("log_probability", "context_gain") or not SCORES[name].larger_is_harder
        values = means.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
        found[name] = -values if easy else values
    ranks = np.log(tokens.column("rank").to_numpy().astype(np.float64))
    found["log_rank"] = np.bincount(tokens.column("document").to_numpy(), ranks, minlength=len(ids))
    found["log_rank"] /= np.maximum(means.column("tokens").to_numpy(), 1)
    for name, values in dynamics.documents.scores().items():
        found[f"training_{name}"] = SCORES[name].hardness(values.double().numpy())
    loss, avh = (-tokens.column("log_probability").to_numpy(), tokens.column("avh").to_numpy())
    results = {
        "token_rho": float(spearmanr(loss, avh).statistic),
        "document_rho": float(spearmanr(found["log_probability"], found["avh"]).statistic),
        "loss": float(loss.mean()),
        "tokens": float(len(loss)),
    }
    for name, values in found.items():
        results[f"average_precision_of_{name}"] = detect(wrong, values)["average_precision"]
        results[f"reversed_of_{name}"] = detect(wrong, -values)["average_precision"]
    return results


def _encoded(texts: list[str], vocabulary: int, length: int) -> list[list[int]]:
    """Tokens of byte-level pairs, trained on these texts; 0 begins every document."""
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
    return [[0, *one.ids][:length] for one in words.encode_batch(texts)]


def train(ids: list[list[int]], settings: Any, seed: int) -> tuple[torch.nn.Module, TokenDynamics]:
    """A GPT-2 trained on these documents, all of its steps recorded."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    width = settings["width"]
    config = GPT2Config(
        vocab_size=settings["vocabulary"], n_embd=width, n_layer=settings["layers"], n_head=max(1, width // 32),
        n_positions=settings["length"], bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    rows, starts = number_tokens([{"input_ids": one} for one in ids])
    numbers = [row["token_number"] for row in rows]
    dynamics = TokenDynamics(starts, settings["vocabulary"], every=2)
    head, seen = language_head(model), []
    handle = head.linear.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].detach()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings["lr"], weight_decay=0.1)
    steps = settings["epochs"] * -(-len(ids) // settings["batch"])
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings["lr"], steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(settings["epochs"]):
        for batch in _batches(ids, settings["batch"], generator):
            inputs, mask, places = _padded(ids, batch, numbers)
            labels = inputs.masked_fill(mask == 0, -100)
            loss = model(inputs, attention_mask=mask, labels=labels).loss
            dynamics.update(places, labels, seen.pop(), head)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        dynamics.end_epoch()
    handle.remove()
    return model, dynamics


def _batches(ids: list[list[int]], size: int, generator: torch.Generator) -> list[list[int]]:
    """Every document once, in batches of like length: half as many places are padding."""
    order = torch.randperm(len(ids), generator=generator)
    pools = [sorted(pool.tolist(), key=lambda one: len(ids[one])) for pool in order.split(16 * size)]
    batches = [pool[start : start + size] for pool in pools for start in range(0, len(pool), size)]
    return [batches[at] for at in torch.randperm(len(batches), generator=generator).tolist()]


def _padded(
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


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def average_precision(rows: "Rows") -> tuple[list[str], list[list[str]]]:
    """A line for each score; in brackets where its easy end is searched instead of its hard one."""
    from hardsight_studies.engine.tables import show

    noises = list(_NOISES)
    noises = [noise for noise in noises if rows.where(noise=noise)]
    prefix = "average_precision_of_"
    names = [name.removeprefix(prefix) for name in rows.metrics if name.startswith(prefix)]
    lines = []
    for name in names:
        hard = [rows.number(prefix + name, noise=noise) for noise in noises]
        easy = [rows.number(f"reversed_of_{name}", noise=noise) for noise in noises]
        cells = [f"{show(one)} ({show(other)})" for one, other in zip(hard, easy, strict=True)]
        lines.append((-sum(one.mean for one in hard if one is not None), [f"`{name}`", *cells]))
    return ["score", *noises], [line for _, line in sorted(lines, key=lambda one: one[0])]
