"""`hardsight study`: list, table, import, and one sentence for what is wrong."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hardsight_studies import get_study, keeping, read_results
from hardsight_studies.engine.command import study_app
from hardsight_studies.transport import pack, unpack
from typer.testing import CliRunner


def run(*arguments: object) -> Any:
    return CliRunner().invoke(study_app, [str(one) for one in arguments])


def test_list_names_the_studies() -> None:
    assert run("list").stdout.startswith("label-errors\t")
    assert '"id": "label-errors"' in run("list", "--json").stdout


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("amc-figure2", "amc-figure6"),
        ("avh-figure12", "avh-figure4"),
        ("avh-table7", "avh-tables6-9"),
        ("avh-figure21", "avh-table3"),
        ("gr-figure9", "gr-table3"),
        ("gr-table2", "gr-table2"),  # gr-protocol looks at Table 2 too: the id comes first
    ],
)
def test_a_number_of_a_paper_finds_the_study_that_holds_it(asked: str, found: str) -> None:
    assert get_study(asked).id == found
    with pytest.raises(ValueError, match="did you mean"):
        get_study("amc-figure66")


def test_table_prints_the_results(smoke: Any) -> None:
    done = run("table", "label-errors", "--results", smoke.results)
    assert done.exit_code == 0
    assert "| `el2n_mean` |" in done.stdout
    printed = json.loads(run("table", "label-errors", "--results", smoke.results, "--json").stdout)
    assert printed == read_results(get_study("label-errors"), smoke.results)


def test_run_finds_everything_done_and_packs_it(smoke: Any, tmp_path: Path) -> None:
    done = run(
        *("run", "label-errors", "--output", smoke.records, "--results", tmp_path),
        *("--pack-to", tmp_path / "packed", "--limit-seconds", 60),
    )
    assert done.exit_code == 0
    assert "packed into 1 file; left out: nothing" in done.stdout


def test_what_was_finished_before_a_run_is_killed_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = get_study("gr-figure1")
    compute, groups = study.compute, iter(range(3))

    def killed(preset: str, mine: Any, options: Any) -> None:
        if next(groups) == 2:
            raise KeyboardInterrupt
        compute(preset, mine, options)

    monkeypatch.setattr("hardsight_studies.get_study", lambda name: dataclasses.replace(study, compute=killed))
    folders = ("--output", tmp_path / "records", "--results", tmp_path, "--pack-to", tmp_path / "packed")
    assert run("run", "gr-figure1", "--at-once", "1", *folders).exit_code != 0
    names = [cell.name for cell in study.cells("smoke")]
    assert unpack([*(tmp_path / "packed").iterdir()], tmp_path / "there") == sorted(names[:2])


def test_another_studys_records_are_refused_before_anything_is_unpacked(smoke: Any, tmp_path: Path) -> None:
    packed = pack(get_study("label-errors"), "smoke", smoke.records, tmp_path / "packed")
    done = run("import", "gr-figure1", *packed.files, "--preset", "smoke", "--output", tmp_path / "records")
    assert done.exit_code == 2
    assert "must hold cells of this study and preset; it holds only others, such as" in " ".join(done.stderr.split())
    assert not (tmp_path / "records").exists()


def test_import_unpacks_and_judges(smoke: Any, tmp_path: Path) -> None:
    packed = pack(get_study("label-errors"), "smoke", smoke.records, tmp_path / "packed")
    done = run(
        *("import", "label-errors", *packed.files, "--preset", "smoke"),
        *("--output", tmp_path / "records", "--results", tmp_path),
    )
    assert done.exit_code == 0
    assert f"{len(get_study('label-errors').cells('smoke'))} cells" in done.stdout
    assert (tmp_path / "label-errors-smoke.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "lable-errors"), "did you mean 'label-errors'?"),
        (("table", "label-errors", "--results", "nowhere"), "were looked for in nowhere"),
        (("run", "label-errors", "--preset", "huge"), "--preset must be one of"),
        (("import", "label-errors", "any.tar", "--preset", "huge"), "--preset must be one of"),
        (("run", "gr-figure1", "--at-once", "0"), "--at-once must be at least 1"),
        (("run", "gr-figure1", "--limit-seconds", "nan"), "--limit-seconds must be a finite number"),
        (("run", "gr-figure1", "--limit-seconds", "-5"), "--limit-seconds must be a finite number"),
        (
            ("run", "gr-table3", "--device", "quantum"),
            "--device must be one that this machine has, cpu or cuda:0, say; got 'quantum'",
        ),
        (("table", "gr-figure1", "--preset", "cpu", "--results", "nowhere"), "study run gr-figure1 --preset cpu`"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"a": 1}', b"\xff", b'{"study": "gr-table1"}', b'{"study": "gr-figure1"}']
)
def test_a_file_that_is_no_result_of_the_study_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "gr-figure1-cpu.json").write_bytes(content)
    for command in ("table", "figures"):
        done = run(command, "gr-figure1", "--results", tmp_path)
        assert done.exit_code == 2
        assert "gr-figure1-cpu.json must be a results file of gr-figure1" in done.stderr


@pytest.mark.parametrize("shown", ["table", "figures"])
def test_results_of_another_version_are_refused_in_words(shown: str, smoke: Any, tmp_path: Path) -> None:
    header = read_results(get_study("label-errors"), smoke.results)
    header = {name: header[name] for name in keeping.HEADER} | {"study": "avh-figure3", "preset": "smoke"}
    (tmp_path / "avh-figure3-smoke.json").write_text(json.dumps(header))
    refused = run(shown, "avh-figure3", "--results", tmp_path, *(["-o", tmp_path] if shown == "figures" else []))
    assert refused.exit_code == 2
    assert "must be of this version" in refused.stderr
    assert "`hardsight study run avh-figure3 --preset smoke`" in refused.stderr


@pytest.mark.parametrize("lacking", ["seed", "device", "versions"])
def test_a_record_that_no_study_wrote_is_refused_in_words(lacking: str, smoke: Any, tmp_path: Path) -> None:
    packed = pack(get_study("label-errors"), "smoke", smoke.records, tmp_path).files
    (name, *_) = unpack(packed, tmp_path / "there")
    path = tmp_path / "there" / name / "run.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != lacking}))
    refused = run("run", "label-errors", "--output", tmp_path / "there", "--results", tmp_path)
    assert refused.exit_code == 2
    assert f"{path.parent} must be a record with seed, device and versions" in refused.stderr


def test_a_results_folder_that_cannot_be_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("run", "gr-figure1", "--output", tmp_path / "records", "--results", tmp_path / "file")
    assert done.exit_code == 2
    assert not (tmp_path / "records").exists()


def test_studies_of_the_same_cells_share_their_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = run("run", "avh-hypotheses", "--preset", "smoke")
    assert first.exit_code == 0, first.stderr
    assert "network=" in first.stdout, "what was computed is named"
    second = run("run", "avh-table1", "--preset", "smoke")
    assert second.exit_code == 0, second.stderr
    assert second.stdout.split() == [str(Path("results") / "avh-table1-smoke.json")], "nothing is computed twice"
    assert [one.name for one in Path("runs/studies").iterdir()] == ["avh-people"]


def test_a_study_without_figures_says_so(smoke: Any, tmp_path: Path) -> None:
    done = run("figures", "label-errors", "--results", smoke.results, "-o", tmp_path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "label-errors has no figures" in done.stderr


def test_a_file_that_is_no_tar_file_is_refused_in_words(tmp_path: Path) -> None:
    for content in (b"", b"junk"):
        (tmp_path / "junk.tar").write_bytes(content)
        done = run("import", "gr-figure1", tmp_path / "junk.tar", "--output", tmp_path / "records")
        assert done.exit_code == 2
        assert done.stderr.endswith("must be a file that `pack` wrote; it is no tar file, or cut short\n")
