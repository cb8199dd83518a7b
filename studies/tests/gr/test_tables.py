"""Tables of the published rows: the paper beside ours, what failed, and what nobody measured."""

from hardsight_studies.engine import study as studies
from hardsight_studies.engine.rows import PUBLISHED, read
from hardsight_studies.engine.tables import Table, failures, make_table


def table(id: str, name: str, preset: str = "paper") -> Table:
    return make_table(studies.get(id), read(id, PUBLISHED, preset), name)


def test_a_row_that_neither_we_nor_the_paper_measured_is_left_out() -> None:
    made = table("gr-table3", "accuracy")
    pairs = [(line[0], line[1]) for line in made.lines]
    assert len(pairs) == 24, "the paper's table, whose methods include all that we measured"
    assert ("20 %", "GR (β = 4, λ = 0)") not in pairs
    by_pair = dict(zip(pairs, made.lines, strict=True))
    assert by_pair["20 %", "CE"][2] == "86.2 (86.2) [76.8 (86.5)]"
    assert by_pair["20 %", "GR (β = 0, λ = 0)"][2] == "– [58.1 (83.5)]"


def test_runs_that_failed_are_named_in_no_mean() -> None:
    rows = read("gr-protocol", PUBLISHED, "cpu")
    failed = {row.seed for row in rows if row.error}
    assert failed == {0, 1, 2}
    assert failures(rows).count("change=right-labels") == 3
    line = next(line for line in table("gr-protocol", "changes", "cpu").lines if line[0] == "no noise")
    assert "failed" in line
