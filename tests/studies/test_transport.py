"""Records packed into a few files, brought over, unpacked and judged there."""

import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hardsight.studies import get_study, judge_study
from hardsight.studies.label_errors import TAUGHT, cells
from hardsight.studies.transport import pack, unpack

STUDY = get_study("label-errors")


def results_of(folder: Path, results: Path) -> dict[str, Any]:
    return json.loads(judge_study(STUDY, "smoke", folder, results).read_text())


def test_what_is_unpacked_is_judged_alike(smoke: Any, tmp_path: Path) -> None:
    packed = pack(STUDY, "smoke", smoke.records, tmp_path / "packed", max_bytes=2**18)
    assert packed.left_out == []
    assert len(packed.files) > 1
    assert all(path.stat().st_size <= 2**18 for path in packed.files)
    assert unpack(packed.files, tmp_path / "there") == sorted(cell.name for cell in cells("smoke"))
    here, there = results_of(smoke.records, tmp_path / "a"), results_of(tmp_path / "there", tmp_path / "b")
    assert here == there


def test_what_does_not_fit_is_named_and_the_judgements_go_in_any_case(smoke: Any, tmp_path: Path) -> None:
    packed = pack(STUDY, "smoke", smoke.records, tmp_path / "packed", max_files=1, max_bytes=2**18)
    assert len(packed.files) == 1
    assert packed.files[0].stat().st_size <= 2**18
    assert any(name.endswith("outputs.safetensors") for name in packed.left_out)
    unpack(packed.files, tmp_path / "there")
    there = tmp_path / "there"
    assert all((there / cell.name / "run.json").is_file() for cell in cells("smoke"))
    for cell in cells("smoke"):
        if cell.settings["kind"] == "whole":
            (there / cell.name / "samples.parquet").unlink(missing_ok=True)
    here = results_of(smoke.records, tmp_path / "a")["noises"]
    for noise, found in results_of(there, tmp_path / "b")["noises"].items():
        # The trees are taught from the samples, and judged only where these are.
        assert found == {name: row for name, row in here[noise].items() if name != TAUGHT}


def test_an_unfinished_cell_is_not_packed(smoke: Any, tmp_path: Path) -> None:
    shutil.copytree(smoke.records, tmp_path / "records")
    path = tmp_path / "records" / cells("smoke")[0].name / "run.json"
    path.write_text(path.read_text().replace('"finished"', '"running"'))
    packed = pack(STUDY, "smoke", tmp_path / "records", tmp_path / "packed")
    assert cells("smoke")[0].name not in unpack(packed.files, tmp_path / "there")


def test_nothing_is_written_outside_the_folder(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        member = tarfile.TarInfo("../outside.txt")
        member.size = 3
        archive.addfile(member, io.BytesIO(b"bad"))
    with pytest.raises(ValueError, match="must be a file that `pack` wrote"):
        unpack([tmp_path / "evil.tar"], tmp_path / "there")
    assert not (tmp_path / "outside.txt").exists()


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.tar").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"no\.tar must be a file that `pack` wrote"):
        unpack([tmp_path / "no.tar"], tmp_path / "there")
