"""One smoke run of the networks that people are compared with, shared by all tests that read it."""

import numpy as np
import pytest
from hardsight_studies.avh import people
from hardsight_studies.avh.choice import Answers
from hardsight_studies.engine import study as studies
from hardsight_studies.engine.clock import Options
from hardsight_studies.engine.grid import Run, plan


@pytest.fixture(scope="session")
def people_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The finished runs of the smoke preset."""
    runs = plan(studies.get("avh-table1"), "smoke", tmp_path_factory.mktemp("people"))
    people.compute(runs, "smoke", Options(say=str))
    return runs


@pytest.fixture
def made_up() -> Answers:
    """People and a network that agree in part: AVH closely, confidence less, the norm not at all."""
    generator = np.random.default_rng(0)
    samples, voters = 600, 50
    easiness = generator.beta(4, 1, samples)
    chosen = generator.binomial(voters, easiness)
    logits = generator.normal(0, 1, (samples, 4))
    logits[np.arange(samples), 0] += 8 * easiness - 5
    scores = {
        "avh": easiness + generator.normal(0, 0.1, samples),
        "confidence": easiness + generator.normal(0, 0.4, samples),
        "class_norm": generator.uniform(0, 1, samples),
        "norm": generator.uniform(1, 2, samples),
    }
    return Answers(
        people=chosen / voters,
        votes=np.stack([chosen, np.full(samples, voters)]),
        labels=np.zeros(samples, np.int64),
        correct=logits.argmax(1) == 0,
        scores=scores,
        logits=logits,
        averaged=None,
    )
