"""The studies by id."""

from hardsight.studies import adaptation, amc, avh, generalization, gr
from hardsight.studies.framework import Study, nearest_names
from hardsight.studies.label_errors import LABEL_ERRORS

_STUDIES = (LABEL_ERRORS, *avh.STUDIES, *adaptation.STUDIES, *generalization.STUDIES, *gr.STUDIES, *amc.STUDIES)


def studies() -> list[Study]:
    """All studies, in the order in which they are listed."""
    return list(_STUDIES)


def get_study(id: str) -> Study:
    """The study of that id; an unknown one is answered with the nearest."""
    for study in _STUDIES:
        if study.id == id:
            return study
    near = nearest_names(id, [study.id for study in _STUDIES])
    raise ValueError(f"study must be a known id; got {id!r}, nearest are: {near}")
