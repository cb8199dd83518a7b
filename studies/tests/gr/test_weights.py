"""GR's Table 1 and Figure 1: weights by differentiation against the paper's formulas."""

from pathlib import Path

import pytest
import torch
from hardsight_studies.framework import Options
from hardsight_studies.gr.emphasis import gradient_weights, probabilities, supervision, title_of_supervision
from hardsight_studies.gr.figure1 import FIGURE1, PANELS
from hardsight_studies.gr.table1 import SETTINGS, TABLE1
from hardsight_studies.results_file import read_results
from hardsight_studies.running import run_study


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("cce", lambda p: 2 * (1 - p)),
        ("mae", lambda p: 4 * p * (1 - p)),
        ("gce-0.7", lambda p: 2 * p**0.7 * (1 - p)),
        ("gr-0-0", lambda p: torch.ones_like(p)),
        ("gr-12-0.5", lambda p: torch.exp(12 * p.sqrt() * (1 - p))),
        ("gr-24-2", lambda p: torch.exp(24 * p**2 * (1 - p))),
    ],
)
def test_the_gradient_has_the_weight_of_the_papers_formula(name: str, formula) -> None:
    grid = probabilities(501)
    torch.testing.assert_close(gradient_weights(supervision(name), grid), formula(grid))


def test_the_formula_of_another_loss_is_rejected() -> None:
    grid = probabilities(501)
    assert not torch.allclose(gradient_weights(supervision("gce-0.7"), grid), 2 * grid**0.6 * (1 - grid))


def test_titles() -> None:
    assert [title_of_supervision(one) for one in ("cce", "gce-0.7", "gr-8-0.5")] == [
        "CCE",
        "GCE (q = 0.7)",
        "GR (β = 8, λ = 0.5)",
    ]


def test_table1_and_figure1_are_exact(tmp_path: Path) -> None:
    for study in (TABLE1, FIGURE1):
        run_study(study, "smoke", tmp_path / study.id, tmp_path, options=Options(say=lambda line: None))
    found = read_results(TABLE1, tmp_path, "smoke")["supervisions"]
    assert list(found) == [one for settings in SETTINGS.values() for one in settings]
    assert found["gr-0-0"]["focus"] is None
    assert found["mae"]["focus"] == pytest.approx(0.5, abs=1e-3)
    # The variance of 2(1-p) over even p is 4/12, of 4p(1-p) 16 (1/30 - 1/36).
    assert found["cce"]["spread"] == pytest.approx(1 / 3, abs=1e-5)
    assert found["mae"]["spread"] == pytest.approx(16 * (1 / 30 - 1 / 36), abs=1e-5)
    printed = TABLE1.table(read_results(TABLE1, tmp_path))
    assert "| GR | 0.00 to 0.90 |" in printed
    assert "| CCE | 0.00 | one | 0 | no |" in printed
    assert "**Result.** The computed focus is λ/(1+λ) within 5.0e-04 for all 15 settings" in printed
    assert "0.09 to 0.50 for GCE (0–0.5), 0.00 to 0.90 for GR (0–1)" in printed
    assert "More than one spread at the same focus: GR; in the paper: GR." in printed
    figure = read_results(FIGURE1, tmp_path, "smoke")
    shown = FIGURE1.table(figure)
    assert "**Result.** At β = 8 the largest weight moves up with λ, to p = 0.03," in shown
    assert "a larger β raises the largest weight: 4.66, 21.7, 101 for λ = 0.5" in shown
    assert "the spread falls with λ" in shown
    figure["panels"]["c"]["gr-8-2"]["spread"] = 100.0
    assert "the spread does not fall steadily with λ" in FIGURE1.table(figure)
    drawn = FIGURE1.figures(figure)["weights"]
    assert [len(axes.lines) for axes in drawn.axes] == [len(names) for names in PANELS.values()]
