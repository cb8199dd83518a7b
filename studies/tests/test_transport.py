"""Records packed into a few files, brought over, unpacked and judged there."""

import io
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hardsight_studies import get_study, judge_study
from hardsight_studies.label_errors import TAUGHT, cells
from hardsight_studies.transport import pack, unpack

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


def test_cells_of_two_machines_are_judged_with_the_versions_of_both(smoke: Any, tmp_path: Path) -> None:
    shutil.copytree(smoke.records, tmp_path / "records")
    path = tmp_path / "records" / cells("smoke")[-1].name / "run.json"
    details = json.loads(path.read_text())
    mine = details["versions"]["torch"]
    path.write_text(json.dumps(details | {"versions": {"torch": "1.0"}}))
    versions = results_of(tmp_path / "records", tmp_path / "results")["versions"]
    assert versions["torch"] == f"1.0, {mine}"
    assert versions["numpy"] == results_of(smoke.records, tmp_path / "other")["versions"]["numpy"]


def test_an_unfinished_cell_is_not_packed(smoke: Any, tmp_path: Path) -> None:
    shutil.copytree(smoke.records, tmp_path / "records")
    path = tmp_path / "records" / cells("smoke")[0].name / "run.json"
    path.write_text(path.read_text().replace('"finished"', '"running"'))
    packed = pack(STUDY, "smoke", tmp_path / "records", tmp_path / "packed")
    assert cells("smoke")[0].name not in unpack(packed.files, tmp_path / "there")


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, target, 3 if kind == tarfile.REGTYPE else 0
    return made


@pytest.mark.parametrize(
    "evil",
    [
        member("../outside.txt"),
        member("/outside.txt"),
        member("cell/../../outside.txt"),
        member("outside.txt"),
        member(".claims/cell.json"),
        member("cell/.hidden"),
        member("cell/link", tarfile.SYMTYPE, "run.json"),
        member("cell/link", tarfile.LNKTYPE, "cell/run.json"),
        member("cell/pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda one: f"{one.name} {one.linkname}",
)
def test_nothing_but_files_of_cells_is_written(evil: tarfile.TarInfo, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.addfile(member("cell/run.json"), io.BytesIO(b"{} "))
        archive.addfile(evil, io.BytesIO(b"bad"))
    with pytest.raises(ValueError, match="must be a file that `pack` wrote"):
        unpack([tmp_path / "evil.tar"], tmp_path / "there" / "records")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["evil.tar"]


def test_a_file_that_is_cut_short_leaves_no_cell_that_calls_itself_finished(smoke: Any, tmp_path: Path) -> None:
    (packed,) = pack(STUDY, "smoke", smoke.records, tmp_path / "packed").files
    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cut short"):
        unpack([packed], tmp_path / "there")
    assert not list((tmp_path / "there").rglob("run.json"))


def test_a_file_cut_between_two_members_or_damaged_there_is_not_taken_for_whole(smoke: Any, tmp_path: Path) -> None:
    (packed,) = pack(STUDY, "smoke", smoke.records, tmp_path / "packed").files
    whole = packed.read_bytes()
    with tarfile.open(packed) as archive:
        headers = [member.offset for member in archive][1:]
    for at in headers[0], headers[-1]:
        for left in (whole[:at], whole[: at + 100], whole[:at] + b"no header" + whole[at + 9 :]):
            packed.write_bytes(left)
            with pytest.raises(ValueError, match="cut short"):
                unpack([packed], tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_header_beside_the_truth_is_no_file_of_pack(tmp_path: Path) -> None:
    evil = tarfile.TarInfo("cell/epochs.parquet")
    evil.size = 3
    evil.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "10"}
    with tarfile.open(tmp_path / "evil.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(evil, io.BytesIO(b"abc"))
    with pytest.raises(ValueError, match=r"evil\.tar must be a file that `pack` wrote"):
        unpack([tmp_path / "evil.tar"], tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_sparse_member_which_may_be_of_any_size_is_refused(tmp_path: Path) -> None:
    evil = tarfile.TarInfo("cell/epochs.parquet")
    evil.size, evil.pax_headers = 0, {"GNU.sparse.major": "0", "GNU.sparse.map": "0,0", "GNU.sparse.size": str(2**30)}
    with tarfile.open(tmp_path / "evil.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(evil)
    with pytest.raises(ValueError, match="no file of a cell"):
        unpack([tmp_path / "evil.tar"], tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_an_import_cut_short_leaves_no_mixture_with_what_was_there_that_calls_itself_finished(
    smoke: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack(STUDY, "smoke", smoke.records, tmp_path / "packed").files
    unpack(packed, tmp_path / "there")
    written: list[object] = []

    def stop_at_the_second(*streams: Any) -> None:
        written.append(streams)
        if len(written) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfileobj", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        unpack(packed, tmp_path / "there")
    assert not list((tmp_path / "there").rglob("run.json"))


def test_a_cell_is_finished_only_when_all_its_files_are_there(smoke: Any, tmp_path: Path) -> None:
    packed = pack(STUDY, "smoke", smoke.records, tmp_path / "packed", max_bytes=2**18)
    in_the_way = tmp_path / "there" / cells("smoke")[-1].name / "epochs.parquet"
    in_the_way.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        unpack(packed.files, tmp_path / "there")
    assert not list((tmp_path / "there").rglob("run.json"))


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.tar").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"no\.tar must be a file that `pack` wrote"):
        unpack([tmp_path / "no.tar"], tmp_path / "there")
