"""Learning curves: what is drawn of what is measured, and that it can be told apart."""

from typing import Any

from hardsight_studies.gr.curves import STYLES, learning_curves
from hardsight_studies.gr.human_noise import _methods as people_methods

CURVE = {"epoch": [1, 2], "test": [0.5, 0.6], "train": [0.4, 0.5]}


def lines_of(figure: Any, panel: int) -> dict[str, tuple[Any, Any]]:
    return {line.get_label(): (line.get_color(), line.get_linestyle()) for line in figure.axes[panel].lines}


def test_few_curves_differ_by_colour_and_rows_agree() -> None:
    names = [f"method {number}" for number in range(8)]
    rows = {row: [(name, f"{row},{name}") for name in names] for row in ("20 %", "40 %")}
    measured = {"20 %,method 1": CURVE, "20 %,method 7": CURVE, "40 %,method 7": CURVE, "40 %,method 3": CURVE}
    (figure,) = learning_curves({"curves": measured, "accuracies": {}}, rows).values()
    above, below = lines_of(figure, 1), lines_of(figure, 3)
    assert [*above] == ["method 1", "method 7"]
    assert [*below] == ["method 3", "method 7"]
    assert above["method 7"] == below["method 7"]
    assert len({colour for colour, _ in {**above, **below}.values()}) == 3
    assert learning_curves({"curves": {}, "accuracies": {}}, rows) == {}


def test_curves_of_one_seed_among_several_say_so() -> None:
    rows = {"20 %": [("CCE", "rate=0.2,method=cce")]}
    one: dict[str, Any] = {"curves": {"rate=0.2,method=cce": CURVE}, "accuracies": {}}
    (figure,) = learning_curves(one, rows).values()
    assert figure.axes[0].get_xlabel() == "epoch"
    several = one | {"accuracies": {"rate=0.2,method=cce": {"last": {"values": [0.6, 0.7]}}}}
    (figure,) = learning_curves(several, rows).values()
    assert figure.axes[0].get_xlabel() == "epoch, first seed"


def test_the_papers_end_is_a_cross_of_the_curves_colour_where_it_compares() -> None:
    key = "rate=0.2,method=cce"
    results: dict[str, Any] = {"curves": {key: CURVE}, "accuracies": {}, "preset": "paper"}
    (figure,) = learning_curves(results, {"20 %": [("CCE", key)]}, printed={key: 76.8}).values()
    training, test = figure.axes
    (cross,) = [line for line in test.lines if list(line.get_ydata()) == [76.8]]
    assert cross.get_xdata()[-1] == CURVE["epoch"][-1]
    assert cross.get_color() == test.lines[0].get_color()
    assert [line.get_label() for line in test.lines][-1] == "paper's, at the end"
    assert len(training.lines) == 1, "the paper's is a test accuracy"
    (small,) = learning_curves(results | {"preset": "cpu"}, {"20 %": [("CCE", key)]}, printed={key: 76.8}).values()
    assert len(small.axes[1].lines) == 1


def test_every_method_has_a_style_of_its_own() -> None:
    assert len({str(style) for style in STYLES}) == len(STYLES) >= len(people_methods("worse"))
