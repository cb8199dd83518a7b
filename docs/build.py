"""Remake the pages that are made from the code: `make docs`. A test fails when they are out of date."""

import math
from pathlib import Path

import hardsight.dynamics  # noqa: F401 (registers the scores of training)
from hardsight.hardness import SCORES, Score
from hardsight.studies.page import studies_page

DOCS = Path(__file__).parent
HEAD = """# Scores

One number a sample. `hs.score(features, weight, labels, bias, scores=(...))` and `hs.score_model(model, loader,
scores=(...))` compute those of a model; a `Recorder` those of a training run ([how](dynamics.md)). Each is registered
with its range, its direction and its source, and is a pure function in `hardsight.hardness` or `hardsight.dynamics`.

```python
import torch
import hardsight as hs
from hardsight.hardness import SCORES

scores = hs.score(torch.randn(50, 8), torch.randn(4, 8), torch.randint(0, 4, (50,)), scores=("avh", "el2n"))
assert SCORES["avh"].larger_is_harder and scores["avh"].shape == (50,)
```

"""


def number(value: float) -> str:
    for exact, text in ((math.pi, "π"), (math.sqrt(2), "√2"), (math.inf, "∞")):
        if abs(value) == exact:
            return ("−" if value < 0 else "") + text
    return f"{value:g}".replace("-", "−")


def range_of(score: Score) -> str:
    high = "log C" if score.high is math.log else number(score.bounds(10)[1])
    return f"{number(score.low)} … {high}"


def table(scores: list[Score]) -> str:
    rows = ["| name | what it is | range | direction | source |", "|---|---|---|---|---|"]
    rows += [f"| `{one.name}` | {one.title} | {range_of(one)} | {one.direction} | {one.source} |" for one in scores]
    return "\n".join(rows) + "\n"


def scores_page() -> str:
    """The page of all registered scores."""
    of_model = [one for one in SCORES.values() if one.from_summary is not None]
    of_training = [one for one in SCORES.values() if one.from_summary is None]
    return f"{HEAD}## Of a model\n\n{table(of_model)}\n## Of a training run\n\n{table(of_training)}"


def main() -> None:
    (DOCS / "scores.md").write_text(scores_page())
    (DOCS / "studies.md").write_text(studies_page(DOCS.parent / "results"))


if __name__ == "__main__":
    main()
