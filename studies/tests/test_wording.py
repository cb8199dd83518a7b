"""Words that sentences of studies share: singular and plural, lists, above and below."""

from hardsight_studies.framework import provenance, shown
from hardsight_studies.wording import above_or_below, listed, percents, plural, slashed, training_images


def test_one_is_singular() -> None:
    assert [plural(count, "run") for count in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def test_a_list_ends_in_and() -> None:
    assert [listed(list("abc")[:count]) for count in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert listed(["a, b", "c, d", "e"], "; ") == "a, b; c, d and e"


def test_a_difference_has_a_direction_and_no_sign() -> None:
    assert above_or_below(-3.46) == "3.5 points below"
    assert above_or_below(0.374, 2) == "0.37 points above"


def test_images_are_counted_and_their_pixels_told() -> None:
    assert training_images(None) == "all training images"
    assert training_images(2000, 2) == "the first 2,000 training images, 2 x 2 pixels averaged"


def test_a_mean_has_its_spread_where_there_is_one() -> None:
    assert shown({"mean": 0.8333, "sd": 0.0021}) == "0.833 ± 0.002"
    assert shown({"mean": 0.8333, "sd": 0.0021}, 1, 100) == "83.3 ± 0.2"
    assert shown({"mean": -0.8333, "sd": None}, 2) == "-0.83"
    assert shown(None) == ""


def test_where_numbers_come_from_is_one_sentence() -> None:
    results = {
        "preset": "cpu",
        "cells": 1,
        "cells_planned": 1,
        "seeds": [0],
        "hardware": ["cpu (x86_64)"],
        "versions": {"torch": "2.13.0"},
        "date": "2026-01-02",
    }
    assert provenance(results) == "Preset `cpu`, 1 of 1 cell, seed 0; cpu (x86_64), torch 2.13.0, 2026-01-02."
    several = provenance(results | {"cells": 2, "cells_planned": 6, "seeds": [0, 1]})
    assert several.startswith("Preset `cpu`, 2 of 6 cells, seeds 0, 1; ")
    many = provenance(results | {"seeds": list(range(50))})
    assert many.startswith("Preset `cpu`, 1 of 1 cell, seeds 0 to 49; ")
    gap = [*range(20), 21]
    assert f"seeds {', '.join(map(str, gap))}; " in provenance(results | {"seeds": gap})


def test_rows_of_numbers_are_shown_alike() -> None:
    assert slashed([11.5, -3.0, 0.25]) == "+11.5/-3.0/+0.2"
    assert slashed([1, 2], "d") == "1/2"
    assert percents((0.2, 0.4)) == "20/40"
