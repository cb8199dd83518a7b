"""A record's configuration: what was written is what is compared when a run goes on."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from hardsight.training.record import RunRecord

CONFIG = {
    "clip": math.inf,
    "floor": -math.inf,
    "unset": math.nan,
    "nothing": None,
    "loss": {"options": {"sizes": ((1, 2), [3]), "root": Path("data"), "rate": np.float32(0.5)}},
}


def test_a_run_goes_on_with_its_own_configuration_whatever_json_makes_of_it(tmp_path: Path) -> None:
    RunRecord(tmp_path).begin(name="one", config=CONFIG)
    again = RunRecord(tmp_path)
    again.check_same_run(CONFIG)
    again.go_on(name="one", config=CONFIG)
    again.check_same_run(CONFIG)
    written = json.loads((tmp_path / "run.json").read_text())["config"]
    assert (written["clip"], written["floor"], written["unset"], written["nothing"]) == ("inf", "-inf", "nan", None)


@pytest.mark.parametrize("config", [[1], "a", 3])
def test_a_record_whose_configuration_is_none_is_refused(tmp_path: Path, config: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"config": config}))
    with pytest.raises(ValueError, match="must hold the record of a run; its config is"):
        RunRecord(tmp_path).check_same_run(CONFIG)


@pytest.mark.parametrize(
    ("key", "value"), [("clip", -math.inf), ("clip", math.nan), ("clip", None), ("clip", 1.0), ("nothing", math.inf)]
)
def test_infinity_is_told_from_everything_else(tmp_path: Path, key: str, value: float | None) -> None:
    RunRecord(tmp_path).begin(config=CONFIG)
    with pytest.raises(ValueError, match=f"holds a run with {key} = "):
        RunRecord(tmp_path).check_same_run({**CONFIG, key: value})
