"""What scoring tokens costs beside the model's own forward with labels, and recording beside a training step.

    python benchmarks/language.py              # print
    python benchmarks/language.py --save       # and write to benchmarks/results/language-*.json

Processor time (user and system) of one thread, since a shared machine's clock measures its other users. Rounds of the
competitors alternate; the ratio is the median over the pairs, with the 10th and 90th percentile. Weights are random.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from machine import RESULTS, about, save

from hardsight.language import TOKEN_SCORES, TokenDynamics, score_tokens
from hardsight.language.head import language_head
from hardsight.language.recording import DYNAMICS_SCORES

# Width, layers, vocabulary, documents and length.
SHAPES = {
    "1M, vocabulary 4,096": (128, 4, 4096, 8, 256),
    "30M, vocabulary 32,000": (512, 6, 32_000, 2, 256),
    "GPT-2 small, vocabulary 50,257": (768, 12, 50_257, 1, 512),
}
WITHOUT_ANGLES = tuple(name for name in DYNAMICS_SCORES if not name.startswith(("avh", "angular")))


def model_of(width: int, layers: int, vocabulary: int) -> torch.nn.Module:
    """A GPT-2 of this shape with random weights."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=max(1, width // 64), n_positions=1024,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def ratio(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> dict[str, float]:
    """Processor time of ours over that of theirs, pair by pair."""
    ratios, base = [], []
    for turn in range(rounds + 1):
        took = {}
        for name, run in (("ours", ours), ("theirs", theirs)) if turn % 2 else (("theirs", theirs), ("ours", ours)):
            began = time.process_time()
            run()
            took[name] = time.process_time() - began
        if turn:
            ratios.append(took["ours"] / took["theirs"])
            base.append(took["theirs"])
    low, *_, high = statistics.quantiles(ratios, n=10)
    return {"ratio": statistics.median(ratios), "p10": low, "p90": high, "seconds": statistics.median(base)}


def scoring(rounds: int) -> dict[str, Any]:
    """`score_tokens` over a forward with labels, by shape and scores."""
    found = {}
    for title, (width, layers, vocabulary, documents, length) in SHAPES.items():
        model = model_of(width, layers, vocabulary).eval()
        ids = torch.randint(vocabulary, (documents, length), generator=torch.Generator().manual_seed(0))

        def forward(model: torch.nn.Module = model, ids: torch.Tensor = ids) -> None:
            with torch.no_grad():
                model(ids, labels=ids)

        for name, scores in (("all", TOKEN_SCORES), ("avh", ("avh",)), ("log_probability", ("log_probability",))):
            found[f"{title}: {name}"] = ratio(
                lambda model=model, ids=ids, scores=scores: score_tokens(model, ids, scores=scores), forward, rounds
            )
            print(title, name, found[f"{title}: {name}"], flush=True)
    return found


def recording(rounds: int) -> dict[str, Any]:
    """The share of a training step (forward, backward, AdamW) that recording adds, by shape and what is recorded."""
    found = {}
    for title, (width, layers, vocabulary, documents, length) in SHAPES.items():
        model = model_of(width, layers, vocabulary).train()
        head, seen = language_head(model), []
        head.linear.register_forward_hook(
            lambda module, inputs, output, seen=seen: seen.append((inputs[0].detach(), output.detach()))
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        ids = torch.randint(vocabulary, (documents, length), generator=torch.Generator().manual_seed(0))
        numbers = torch.arange(ids.numel()).view_as(ids)
        starts = np.arange(documents + 1) * length
        recorders = {
            "every 16th token": TokenDynamics(starts, vocabulary),
            "every token": TokenDynamics(starts, vocabulary, tokens=True),
            "every token, no angles": TokenDynamics(starts, vocabulary, tokens=True, scores=WITHOUT_ANGLES),
        }
        shares: dict[str, list[float]] = {name: [] for name in recorders}
        steps = []
        for turn in range(rounds + 1):
            began = time.process_time()
            loss = model(ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step = time.process_time() - began
            features, products = seen.pop()
            for name, dynamics in recorders.items():
                began = time.process_time()
                dynamics.update(numbers, ids, features, head, products)
                if turn:
                    shares[name].append((time.process_time() - began) / step)
            if turn:
                steps.append(step)
        for name, values in shares.items():
            low, *_, high = statistics.quantiles(values, n=10)
            found[f"{title}: {name}"] = {
                "share": statistics.median(values), "p10": low, "p90": high, "seconds": statistics.median(steps),
            }  # fmt: skip
            print(title, name, found[f"{title}: {name}"], flush=True)
    return found


def main() -> None:
    """Measure and print; write where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=("scoring", "recording"))
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device("cpu")
    record = about("language", device, transformers=transformers.__version__)
    for name, measure in (("scoring", scoring), ("recording", recording)):
        if options.only in (None, name):
            record[name] = measure(options.rounds)
        elif (RESULTS / "language-cpu.json").exists():
            # The other part stays as it was measured, with what it was measured on.
            before = json.loads((RESULTS / "language-cpu.json").read_text())
            about_it = before.pop("kept", {}) or {key: before[key] for key in ("date", "hardware", "versions")}
            record |= {name: before[name], "kept": about_it}
    print(json.dumps(record, indent=2))
    if options.save:
        print(f"written to {save(record, device)}")


if __name__ == "__main__":
    main()
