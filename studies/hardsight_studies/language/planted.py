"""Noise planted among documents, and how well each score of a small language model finds it.

A model is trained on all documents, noise included, as one who does not know of it would; every token is recorded while
training, and scored in the end. Two more models see half of the documents each and score the other (`unseen_`). A
document's score is the mean over its tokens.
"""

import copy
import functools
import json
import random
import string
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from scipy.stats import spearmanr
from torch import nn

from hardsight.hardness import SCORES
from hardsight.language import TOKEN_SCORES, score_tokens
from hardsight.language.text_scoring import means_by, with_context_gain
from hardsight.records import read_run
from hardsight_studies.engine import trainings
from hardsight_studies.engine.running import row_of
from hardsight_studies.engine.tables import show
from hardsight_studies.language.models import characters_of, encode, new_model, padded, pretrained, tokenizer_of, train
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
    device = options.torch_device
    for run in runs:
        options.clock.check()
        settings = run.config
        known = texts_of(settings["source"], run.settings["texts"])
        texts, wrong = planted(run.settings["noise"], known, settings["documents"], settings["share"], run.seed)
        results = measured(texts, wrong, settings, run.seed, device)
        trainings.write_record(run, results, device)


def rows(runs: Sequence["Run"], preset: str) -> Iterator["Row"]:
    """A row for each run, with everything that was measured."""
    for run in runs:
        yield row_of(run, (read_run(run.folder) or {})["results"])


# ---------------------------------------------------------------------------------------------------------------------
# Documents.


def texts_of(source: str, part: str) -> list[str]:
    """A fixed quarter of the texts to choose a score on, the others to judge it."""
    known = docstrings() if source == "docstrings" else fortunes()
    return [text for text in known if (zlib.crc32(text.encode()) % 4 == 0) == (part == "development")]


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
    return in_random_order(text, draw)


def _language(text: str, number: int, draw: random.Random, foreign: list[str]) -> str:
    return draw.choice(foreign)


def _characters(text: str, number: int, draw: random.Random, foreign: list[str]) -> str:
    return "".join(draw.choice(string.ascii_lowercase + "      ") for _ in text).strip() or "x"


def _boilerplate(text: str, number: int, draw: random.Random, foreign: list[str]) -> str:
    return _NOTICE.format(number=number)


def in_random_order(text: str, draw: random.Random) -> str:
    """The words of a text, shuffled."""
    words = text.split()
    draw.shuffle(words)
    return " ".join(words)


_NOISES: dict[str, Callable[[str, int, random.Random, list[str]], str]] = {
    "shuffled": _shuffled,
    "language": _language,
    "characters": _characters,
    "boilerplate": _boilerplate,
}


# ---------------------------------------------------------------------------------------------------------------------
# Training and scores.


def measured(texts: list[str], wrong: np.ndarray, settings: Any, seed: int, device: torch.device) -> dict[str, float]:
    """How well every score finds the noise, and how alike AVH and loss rank tokens and documents."""
    if "pretraining" in settings:
        words, begun = pretrained(json.dumps(settings), seed, device)
    else:
        words, begun = tokenizer_of(texts, settings["vocabulary"]), new_model(settings, seed)
    encoded = functools.partial(encode, words, length=settings["length"])
    ids, characters = encoded(texts), characters_of(words, texts, settings["length"])
    found: dict[str, np.ndarray] = {}
    model = copy.deepcopy(begun).to(device)
    dynamics = train(model, ids, settings, seed, recorded=True)
    tokens = scored(model, ids, range(len(ids)))
    found |= of_documents(tokens, characters)
    assert dynamics is not None
    for name, recorded in dynamics.documents.scores().items():
        found[f"training_{name}"] = SCORES[name].hardness(recorded.double().cpu().numpy())
    unseen, order = held_out(begun.to(device), ids, texts, encoded, settings, seed)
    found |= {f"unseen_{name}": values for name, values in of_documents(unseen, characters).items()}
    found |= {f"unseen_{name}": -values for name, values in order.items()}
    results = {
        **_agreement(tokens, found["log_probability"], found["avh"], ""),
        **_agreement(unseen, found["unseen_log_probability"], found["unseen_avh"], "unseen_"),
        "tokens": float(len(tokens)),
        "documents": float(len(ids)),
    }
    for name, values in found.items():
        results[f"average_precision_of_{name}"] = detect(wrong, values)["average_precision"]
        results[f"reversed_of_{name}"] = detect(wrong, -values)["average_precision"]
    return results


def _agreement(tokens: pa.Table, loss: np.ndarray, avh: np.ndarray, prefix: str) -> dict[str, float]:
    of_tokens = -tokens.column("log_probability").to_numpy()
    return {
        f"{prefix}loss": float(of_tokens.mean()),
        f"{prefix}token_rho": float(spearmanr(of_tokens, tokens.column("avh").to_numpy()).statistic),
        f"{prefix}document_rho": float(spearmanr(loss, avh).statistic),
    }


def of_documents(tokens: pa.Table, characters: np.ndarray) -> dict[str, np.ndarray]:
    """The mean of each score over a document's tokens, larger where it is harder; and the loss of a character.

    A text of another language is cut into many short tokens, each of which may be easy.
    """
    tokens = with_context_gain(tokens)
    tokens = tokens.append_column("log_rank", pa.array(np.log(tokens.column("rank").to_numpy())))
    means = means_by(tokens, tokens.column("document").to_numpy(), groups=len(characters))
    counts = means.column("tokens").to_numpy()
    loss = -means.column("log_probability").to_numpy(zero_copy_only=False).astype(np.float64)
    found = {"loss_of_a_character": loss * counts / characters}
    for name in (*TOKEN_SCORES, "context_gain", "log_rank"):
        easy = name in ("log_probability", "context_gain") or (name in SCORES and not SCORES[name].larger_is_harder)
        values = means.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
        found[name] = -values if easy else values
    return found


def scored(
    model: nn.Module, ids: list[list[int]], documents: Sequence[int], scores: Sequence[str] = TOKEN_SCORES
) -> pa.Table:
    """Scores of the tokens of these documents, whose numbers are those among all."""
    device = next(model.parameters()).device
    inputs, mask, _ = (one.to(device) for one in padded(ids, documents))
    table = score_tokens(model, inputs, mask, scores=scores)
    own = np.asarray(documents)[table.column("document").to_numpy()]
    return table.set_column(0, "document", pa.array(own))


def held_out(
    begun: nn.Module, ids: list[list[int]], texts: list[str], encoded: Any, settings: Any, seed: int
) -> tuple[pa.Table, dict[str, np.ndarray]]:
    """Tokens' scores by models that saw the other half of the documents, and what the words' order says.

    `order_gain` is a document's log-probability, less that of the same words in random orders, a token's mean;
    `order_total` the same of its sums, and `order_z` in standard deviations over the random orders.
    """
    draw = random.Random(seed)
    shuffled = [encoded([in_random_order(text, draw) for text in texts]) for _ in range(settings["shuffles"])]
    half = np.random.default_rng(seed).permutation(len(ids)) % 2
    tables, sums = [], np.zeros((1 + len(shuffled), len(ids)))
    for one in (0, 1):
        model = copy.deepcopy(begun)
        train(model, [ids[at] for at in np.flatnonzero(half != one)], settings, seed)
        documents = np.flatnonzero(half == one).tolist()
        tables.append(scored(model, ids, documents))
        by_chance = [scored(model, other, documents, ("log_probability",)) for other in shuffled]
        for row, table in enumerate([tables[-1], *by_chance]):
            sums[row] += np.bincount(table["document"], table["log_probability"], minlength=len(ids))
    lengths = np.array([[max(1, len(one) - 1) for one in version] for version in (ids, *shuffled)])
    means = sums / lengths
    # Few orders say little of a document's own deviation: it is drawn towards that of all.
    variance = means[1:].var(0, ddof=1)
    deviation = np.sqrt((variance + np.median(variance)) / 2)
    gain = means[0] - means[1:].mean(0)
    return pa.concat_tables(tables), {
        "order_gain": gain, "order_total": gain * lengths[0], "order_z": gain / deviation
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Tables.


def average_precision(rows: "Rows") -> tuple[list[str], list[list[str]]]:
    """A line for each score; in brackets where its easy end is searched instead of its hard one.

    Of the judged texts; where they have no rows yet, of those to choose a score on.
    """
    texts = "judged" if rows.where(texts="judged") else "development"
    judged = [noise for noise in _NOISES if rows.where(noise=noise, texts=texts)]
    lines = []
    for name in _scores(rows):
        cells, total = [], 0.0
        for noise in judged:
            hard, easy = (
                rows.number(f"{end}_of_{name}", noise=noise, texts=texts) for end in ("average_precision", "reversed")
            )
            cells.append(f"{show(hard)} ({show(easy)})")
            total += 0.0 if hard is None else hard.mean
        lines.append((-total, [f"`{name}`", *cells]))
    return ["score", *judged], [line for _, line in sorted(lines, key=lambda one: one[0])]


def chosen(rows: "Rows") -> tuple[list[str], list[list[str]]]:
    """For each noise the score and its end that found it best among the texts of development, and how it was judged."""
    lines = []
    for noise in _NOISES:
        ends = [f"{end}_of_{name}" for name in _scores(rows) for end in ("average_precision", "reversed")]
        found = {end: rows.number(end, noise=noise, texts="development") for end in ends}
        known = {end: number.mean for end, number in found.items() if number is not None}
        if known:
            best = max(known, key=lambda one: known[one])
            end, _, name = best.partition("_of_")
            side = "hard" if end == "average_precision" else "easy"
            judged = rows.number(best, noise=noise, texts="judged")
            lines.append([noise, f"`{name}`, {side} end", show(found[best]), show(judged)])
    return ["noise", "score", "development", "judged"], lines


def _scores(rows: "Rows") -> list[str]:
    prefix = "average_precision_of_"
    return [name.removeprefix(prefix) for name in rows.metrics if name.startswith(prefix)]
