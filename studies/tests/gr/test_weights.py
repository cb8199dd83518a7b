"""GR's Table 1 and Figure 1: weights by differentiation against the paper's formulas."""

from pathlib import Path

import pytest
import torch
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.rows import Rows, read
from hardsight_studies.engine.running import run_study
from hardsight_studies.gr.drawings import PANELS, weights
from hardsight_studies.gr.emphasis import abilities_table, closed_form, gradient_weights, probabilities, supervision


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


def smoke(id: str, folder: Path) -> Rows:
    run_study(studies.get(id), "smoke", folder, output=folder / id, options=Options(say=lambda line: None))
    return read(id, folder, "smoke")


def test_table1_is_exact(tmp_path: Path) -> None:
    rows = smoke("gr-table1", tmp_path)
    for row in rows:
        expected = closed_form(row.settings["supervision"])
        assert (row.metrics["focus"] is None) == (expected is None)
        assert expected is None or row.metrics["focus"] == pytest.approx(expected, abs=1e-3)
    # The variance of 2(1-p) over even p is 4/12, of 4p(1-p) 16 (1/30 - 1/36).
    found = {name: rows.number("spread", supervision=name) for name in ("cce", "mae")}
    assert float(found["cce"]) == pytest.approx(1 / 3, abs=1e-5)
    assert float(found["mae"]) == pytest.approx(16 * (1 / 30 - 1 / 36), abs=1e-5)
    lines = {line[0]: line for line in abilities_table(rows)[1]}
    assert lines["GR"][1] == "0.00 to 0.90"
    assert [line[2] == "one" for line in lines.values()] == [True, True, True, False]


def test_figure1_draws_every_curve(tmp_path: Path) -> None:
    rows = smoke("gr-figure1", tmp_path)
    drawn = weights(rows)
    assert [len(axes.lines) for axes in drawn.axes] == [len(names) for names in PANELS.values()]
    for axes in drawn.axes:
        assert all(len(line.get_xdata()) == 20 for line in axes.lines)
    peak = rows.number("peak", supervision="gr-8-1")
    assert float(peak) == pytest.approx(0.5, abs=0.03)
