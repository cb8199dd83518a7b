"""AVH, Table 3 (with Table 4 and Figure 6): self-training on a domain without labels, AVH's selection against others.

Paper: VisDA-17, mean of class accuracies 81.5 (CBST+AVH), 78.1 (CRST), 76.4 (CBST), 51.6 (their source model), all from
one ResNet-101 with ImageNet weights. Ours, 17 pairs of other domains, 5 seeds: all three gain on the source model, and
CBST+AVH ends behind CBST; the study's page has the numbers. VisDA-17 is not measured yet.

Pairs: MNIST and USPS, both ways, LeNet on pixels; the twelve of Office-Caltech10 and PACS from photos, a two-layer
network on features of a frozen EfficientNet-Lite0; VisDA-17 in the same way. All methods of a pair and seed start from
the same source model, and baselines take as many steps. Portions as in CBST's public code: 0.20, +0.05 a round, 0.50.
The target's labels are used for measuring alone; the accuracy is that of the last model, not of the best.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scipy import stats

from hardsight.domains.selection import SELECTORS
from hardsight.report.canvas import BLUE, FAINT, GREEN, INK, PURPLE, RED, drawing
from hardsight.studies.adaptation.pairs import Pair
from hardsight.studies.adaptation.runs import SOURCE, TABLE_4, Family, compute_cell
from hardsight.studies.framework import (
    Options,
    Study,
    finished_cells,
    markdown_table,
    provenance,
    run_details,
    shown,
    spread,
)
from hardsight.training import Cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CORE = (SOURCE, "cbst", "crst", "avh")
SELECTING = tuple(name for name in SELECTORS if name not in CORE)
BASELINES = ("mmd", "dann", "entropy", "mcd", "adr")
METHODS = (*CORE, *SELECTING, *BASELINES)
OURS, RIVALS = "avh", ("cbst", "crst")

_OFFICE = ("amazon", "caltech10", "dslr", "webcam")
_MNIST_USPS = (Pair("mnist", "usps", "usps:test"), Pair("usps", "mnist", "mnist:test"))
_OFFICE_PAIRS = tuple(
    Pair(f"office-caltech10:{one}", f"office-caltech10:{other}") for one, other in itertools.permutations(_OFFICE, 2)
)
_PACS_PAIRS = tuple(Pair("pacs:photo", f"pacs:{one}") for one in ("art_painting", "cartoon", "sketch"))
_VISDA = Pair("visda17:train", "visda17:validation", known_as="visda17")
_DIGITS: dict[str, Any] = {"model": "lenet", "model_options": {"feature_dim": 64}, "size": 28}
_FROZEN: dict[str, Any] = {
    "model": "mlp", "model_options": {"hidden": [256], "activation": "relu"}, "frozen": True, "batch_size": 64,
    "source_epochs": 20, "steps_per_epoch": 25, "rounds": 10,
}  # fmt: skip
_FIVE = tuple(range(5))

PRESETS: dict[str, tuple[Family, ...]] = {
    "smoke": (
        Family(
            "digits", (Pair("digits", "digits", degraded=True),), (0, 1), "digits_cnn", source_epochs=2, rounds=2,
            steps_per_epoch=8, batch_size=64,
        ),
    ),
    "cpu": (
        Family(
            "digits", _MNIST_USPS, (0, 1), **_DIGITS, limit=2000, source_epochs=8, rounds=7, steps_per_epoch=25,
            batch_size=64,
        ),
        Family("office-caltech10", _OFFICE_PAIRS[:4], (0, 1), **_FROZEN),
    ),
    "paper": (
        Family("digits", _MNIST_USPS, _FIVE, **_DIGITS, source_epochs=4, rounds=10, steps_per_epoch=100),
        Family("office-caltech10", _OFFICE_PAIRS, _FIVE, **_FROZEN),
        Family("pacs", _PACS_PAIRS, _FIVE, **_FROZEN),
        # The authors' schedule: 3 epochs on the source, 20 on the target, labels made anew for each.
        Family("visda17", (_VISDA,), (0,), **_FROZEN | {"source_epochs": 3, "rounds": 20, "steps_per_epoch": 400}),
    ),
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# The cells, what matters most first: every seed of the four core methods; then, seed by seed, the others.


def cells(preset: str) -> list[Cell]:
    """One cell a pair, method and seed."""
    seeds = sorted({seed for family in PRESETS[preset] for seed in family.seeds})
    others = (SELECTING, BASELINES) if preset != "smoke" else (("avh-slides",), ("mmd",))
    tiers = [(CORE, seed) for seed in seeds] + [(tier, seed) for seed in seeds for tier in others]
    return [
        Cell({"pair": pair.name, "method": method, "seed": seed})
        for tier, seed in tiers
        for family in PRESETS[preset]
        for pair in (family.pairs if seed in family.seeds else ())
        for method in tier
    ]


def compute(preset: str, mine: Sequence[tuple[Cell, Path]], options: Options) -> None:
    """Compute these cells and write their records."""
    known = {pair.name: (family, pair) for family in PRESETS[preset] for pair in family.pairs}
    for cell, folder in mine:
        compute_cell(*known[str(cell.settings["pair"])], cell, folder, options)


# ---------------------------------------------------------------------------------------------------------------------
# Judging: records to results.


def judge(preset: str, folder: Path) -> dict[str, Any]:
    """Accuracies by pair and method over the seeds, paired tests, the first selections, accuracy by round."""
    runs: dict[tuple[str, str, int], dict[str, Any]] = {}
    for cell in finished_cells(folder, cells(preset)):
        found = run_details(folder / cell.name)["results"]
        runs[cell.settings["pair"], cell.settings["method"], int(cell.settings["seed"])] = found
    families = {}
    for family in PRESETS[preset]:
        of_pairs = {pair.name: _judge_pair(runs, pair.name) for pair in family.pairs}
        families[family.name] = {name: rows for name, rows in of_pairs.items() if rows}
    return {
        "settings": {family.name: family.settings for family in PRESETS[preset]},
        "pairs": {family: rows for family, rows in families.items() if rows},
        "average": _average(runs),
        "tests": {f"{OURS} against {rival}": _paired(runs, rival) for rival in RIVALS},
        "table4": _first_selections(runs),
    }


def _judge_pair(runs: Mapping[tuple[str, str, int], Any], pair: str) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for method in METHODS:
        mine = [run for (its, how, _), run in sorted(runs.items()) if (its, how) == (pair, method)]
        if mine:
            rows[method] = {
                key: spread([run[key] for run in mine])
                for key in ("accuracy", "class_mean_accuracy", "test_accuracy")
                if all(run.get(key) is not None for run in mine)
            }
            if all("by_round" in run for run in mine):
                columns = zip(*(run["by_round"] for run in mine), strict=False)
                rows[method]["by_round"] = [round(sum(one) / len(one), 4) for one in columns]
    return rows


def _average(runs: Mapping[tuple[str, str, int], Any]) -> dict[str, Any]:
    """Mean accuracy over the pairs that the core methods have most seeds of; spread over the seeds' means.

    Every method is averaged over the same pairs, by those of its seeds that have them all.
    """
    complete: dict[str, int] = {}
    for pair, seed in {(pair, seed) for pair, _, seed in runs}:
        complete[pair] = complete.get(pair, 0) + all((pair, how, seed) in runs for how in CORE)
    pairs = sorted(pair for pair, count in complete.items() if count == max(complete.values()) > 0)
    found: dict[str, Any] = {"pairs": pairs}
    for method in METHODS if pairs else ():
        seeds = sorted({its for _, _, its in runs if all((pair, method, its) in runs for pair in pairs)})
        if seeds:
            found[method] = spread([_mean([runs[pair, method, its]["accuracy"] for pair in pairs]) for its in seeds])
    return found


def _paired(runs: Mapping[tuple[str, str, int], Any], rival: str) -> dict[str, Any] | None:
    """Differences in accuracy, AVH minus the rival, from the same source model; tested over pairs of domains.

    Seeds of one pair are no independent trials, so the test is over the pairs' means; over all runs it is given too.
    """
    keys = sorted((pair, seed) for pair, how, seed in runs if how == OURS and (pair, rival, seed) in runs)
    if not keys:
        return None
    differences = {
        key: runs[key[0], OURS, key[1]]["accuracy"] - runs[key[0], rival, key[1]]["accuracy"] for key in keys
    }
    pairs = sorted({pair for pair, _ in keys})
    means = [_mean([differences[key] for key in keys if key[0] == pair]) for pair in pairs]
    return {
        "mean_difference": round(_mean(list(differences.values())), 5),
        "pairs_won": sum(mean > 0 for mean in means),
        "pairs": len(pairs),
        "runs": len(keys),
        "p_over_pairs": _p_value(means),
        "p_over_runs": _p_value(list(differences.values())),
        "by_pair": {pair: round(mean, 5) for pair, mean in zip(pairs, means, strict=True)},
    }


def _mean(values: Sequence[float | int]) -> float:
    return sum(values) / len(values)


def _p_value(differences: Sequence[float]) -> float | None:
    """Two-sided paired t-test; None where there are too few differences, or all are the same."""
    if len(differences) < 3 or max(differences) == min(differences):
        return None
    return round(float(stats.ttest_1samp(differences, 0.0).pvalue), 6)


def _first_selections(runs: Mapping[tuple[str, str, int], Any]) -> dict[str, Any]:
    """Table 4: of what each selector selects from the source model, means over all runs."""
    found = {}
    for method in SELECTORS:
        mine = [run["first_selection"] for (_, how, _), run in runs.items() if how == method]
        if mine:
            known = {key: [one[key] for one in mine if one.get(key) is not None] for key in TABLE_4}
            found[method] = {key: round(_mean(values), 5) for key, values in known.items() if values} | {
                "runs": len(mine)
            }
    return found


# ---------------------------------------------------------------------------------------------------------------------
# The table: results to Markdown, ours beside the paper's.

# Mean of the class accuracies on VisDA-17, percent (AVH, Table 3); the source model is that of Zou et al.
PAPER = {
    "source": 51.6, "cbst": 76.4, "crst": 78.1, "avh": 81.5, "mmd": 61.1, "dann": 57.4, "entropy": 57.0, "mcd": 71.9,
    "adr": 74.8,
}  # fmt: skip
# True-positive rate, mean AVH, mean confidence, mean norm of the first selection (AVH, Table 4).
PAPER_TABLE_4 = {"avh": (0.844, 0.118, 0.961, 20.84), "cbst": (0.848, 0.117, 0.976, 21.28)}


def table(results: Mapping[str, Any]) -> str:
    """Average over pairs beside the paper's column, paired tests, each family by pair, Table 4."""
    parts = [provenance(results), _average_table(results)]
    parts += [_test_sentence(name, test) for name, test in results["tests"].items() if test]
    parts += [_family_table(name, rows) for name, rows in results["pairs"].items()]
    parts.append(_table_4(results["table4"]))
    return "\n\n".join(part for part in parts if part) + "\n"


def _average_table(results: Mapping[str, Any]) -> str:
    average = results["average"]
    names = [method for method in METHODS if method in average]
    if not names:
        return ""
    rows = [(f"`{name}`", shown(average[name]), f"{PAPER[name]:.1f}" if name in PAPER else "") for name in names]
    count = len(average["pairs"])
    return f"Accuracy on the target, mean over {count} pairs of domains:\n\n" + markdown_table(
        ("method", "ours", "paper, VisDA-17 (%)"), rows
    )


def _test_sentence(name: str, test: Mapping[str, Any]) -> str:
    p = [f"p = {test[key]:.2g} {words}" for key, words in _P_WORDS.items() if test[key] is not None]
    tested = f" (paired t-test: {', '.join(p)})" if p else ""
    return (
        f"{name}: {100 * test['mean_difference']:+.2f} points, better on {test['pairs_won']} of {test['pairs']} "
        f"pairs{tested}."
    )


_P_WORDS = {"p_over_pairs": "over the pairs", "p_over_runs": "over all runs"}


def _family_table(family: str, rows: Mapping[str, Any]) -> str:
    methods = [method for method in METHODS if any(method in row for row in rows.values())]
    lines = [
        [f"`{method}`", *(shown(row[method]["accuracy"]) if method in row else "" for row in rows.values())]
        for method in methods
    ]
    return f"{family}:\n\n" + markdown_table(["method", *rows], lines)


def _table_4(found: Mapping[str, Any]) -> str:
    if not found:
        return ""
    heads = ("method", "right", "AVH", "confidence", "norm", "beyond CBST", "paper (right / AVH / confidence / norm)")
    lines = []
    for method, row in found.items():
        numbers = [f"{row[key]:.3f}" if key in row else "" for key in TABLE_4[:4]]
        beyond = f"{row['beyond_cbst']:.0f} of {row['selected']:.0f}" if "beyond_cbst" in row else ""
        paper = " / ".join(f"{value:g}" for value in PAPER_TABLE_4.get(method, ()))
        lines.append([f"`{method}`", *numbers, beyond, paper])
    return "What each selects first, from the source model (Table 4):\n\n" + markdown_table(heads, lines)


_STYLES = {"cbst": (RED, "-"), "crst": (GREEN, "-"), "avh": (BLUE, "-"), "avh-slides": (BLUE, "--"),
           "confidence": (PURPLE, "--"), "argmax": (INK, ":")}  # fmt: skip


def figures(results: Mapping[str, Any]) -> dict[str, "Figure"]:
    """Figure 6: accuracy by round, mean over a family's pairs."""
    drawn = {
        family: {
            method: [row[method]["by_round"] for row in rows.values() if "by_round" in row.get(method, {})]
            for method in _STYLES
        }
        for family, rows in results["pairs"].items()
    }
    with drawing(4.6 * min(2, len(drawn)), 3.2 * -(-len(drawn) // 2), len(drawn)) as figure:
        for axes, (family, methods) in zip(figure.axes, drawn.items(), strict=True):
            for method, curves in methods.items():
                if curves:
                    mean = [sum(column) / len(column) for column in zip(*curves, strict=False)]
                    colour, line = _STYLES[method]
                    axes.plot(range(len(mean)), mean, line, color=colour, label=method)
            axes.set_title(family)
            axes.set_xlabel("rounds")
            axes.set_ylabel("accuracy on the target")
            axes.axhline(next(iter(c[0][0] for c in methods.values() if c), 0), color=FAINT, linewidth=0.8)
        figure.axes[0].legend(fontsize=7)
    return {"rounds": figure}


ABOUT = """Labels in one domain, none in the other. A model trained on the source labels the target samples that it is
surest of, and is trained on both; each round takes more. The selectors differ in what "surest" means: softmax
confidence by class (`cbst`), with soft labels and a divergence in the loss (`crst`: LRENT and MRKLD), or the angle to
the class's weights (`avh`, Eq. 4: labelled by softmax, kept by angle; `avh-slides`: angle for both; `avh-inclusive`
keeps the sample at the threshold too, as CBST does). `confidence` and `argmax` do without classes, or without any
selection. MNIST and USPS: LeNet on 28 x 28 pixels. Office-Caltech10, PACS from photos, VisDA-17 where it is at hand:
two layers on features of EfficientNet-Lite0 with ImageNet weights, frozen, standardised by the source. All methods of
a pair and seed start from the same source model; the baselines take as many steps as source training and rounds
together. Accuracy is the share of target samples that the last model gets right; labels of the target are used for
nothing else. Figure 6 is the accuracy after each round."""

TABLE_3 = Study(
    id="avh-table3",
    title="self-training for domain adaptation: which pseudo-labels to trust",
    about=ABOUT,
    reference="AVH, Tables 3 and 4, Figure 6",
    cells=cells,
    compute=compute,
    judge=judge,
    table=table,
    figures=figures,
)
