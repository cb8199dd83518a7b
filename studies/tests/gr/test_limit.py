"""Settings beside their limit: the order of the table, and what is not measured."""

from hardsight_studies.engine.rows import Row, Rows
from hardsight_studies.gr.learned import limits


def test_settings_are_in_order_of_their_smallest_limit() -> None:
    last = {"gr-16-1": 0.3, "gr-8-1": 0.7, "gr-20-2": 0.2, "gr-8-0.5": 0.8, "cce": 0.9}
    rows = [
        Row("s", "paper", {"method": name, "change": "printed"}, 0, {"last": value}) for name, value in last.items()
    ]
    rows += [Row("s", "paper", {"method": "gr-4-1", "change": "clip"}, 0, {"last": 0.1})]
    rows[0].metrics["classes_learned"] = 4
    _, lines = limits(Rows("s", "paper", rows))
    assert [line[1] for line in lines] == ["1.00", "0.72", "1.44", "0.38"]
    assert [line[2] for line in lines] == ["1.04", "1.78", "3.56", "4.44"]
    assert lines[2][3:] == ["30.0", "4 of 10"]
    assert lines[0][4] == ""
