"""The studies by id, and by the number of a paper's table or figure."""

import re

from hardsight.names import unknown_name
from hardsight_studies.framework import Study

_STUDIES: tuple[Study, ...] = ()


def studies() -> list[Study]:
    """All studies, in the order in which they are listed."""
    return list(_STUDIES)


def get_study(id: str) -> Study:
    """The study of that id, or that with this table or figure of a paper in it; else the nearest ids are named."""
    found = [study for study in _STUDIES if study.id == id] or _with_number(id)
    if found:
        return found[0]
    raise unknown_name("study", id, [study.id for study in _STUDIES], "studies", "listed by `hardsight study list`")


def _with_number(id: str) -> list[Study]:
    """`amc-figure2`: the studies whose reference holds that number; Figure 2 of AMC-Loss is in `amc-figure6`."""
    asked = re.fullmatch(r"([a-z]+)-(table|figure)s?(\d+)", id)
    if asked is None:
        return []
    paper, kind, number = asked.group(1).upper(), asked.group(2)[:3], int(asked.group(3))
    return [one for one in _STUDIES if one.reference.startswith(paper) and number in _numbers(one.reference, kind)]


def _numbers(reference: str, kind: str) -> set[int]:
    """The numbers after the word: `Figs. 2, 8`, `Figures 2 and 6 to 10`."""
    found: set[int] = set()
    for listed in re.findall(rf"{kind}\w*\.? ((?:\d+|, | and | to )+)", reference, re.IGNORECASE):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", listed):
            found |= {*range(int(first), int(last or first) + 1)}
    return found
