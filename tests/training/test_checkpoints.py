"""Checkpoints: what is not as it was written is refused in a sentence, never continued."""

import json
from pathlib import Path

import pytest
import torch

from hardsight.training.checkpoints import Checkpoints, check_fits, read_state, read_tensors, write_state

FILES = ["model.safetensors", "shared.json", "shared.safetensors", "process-0.json", "process-0.safetensors"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    shared = {"optimizer": {0: {"step": torch.ones(3)}}, "rows": [1.5, (2, "three")]}
    return Checkpoints(tmp_path).save(3, {"weight": torch.arange(4.0)}, shared, {"random": torch.zeros(2)})


def test_a_whole_checkpoint_is_read_back(kept: Path, tmp_path: Path) -> None:
    weights, shared, own = Checkpoints(tmp_path).load(kept)
    assert torch.equal(weights["weight"], torch.arange(4.0))
    assert shared["rows"] == [1.5, (2, "three")]
    assert torch.equal(own["random"], torch.zeros(2))


@pytest.mark.parametrize("file", FILES)
def test_a_bit_that_was_turned_over_is_noticed_wherever_it_is(kept: Path, tmp_path: Path, file: str) -> None:
    """Formats without a checksum would let it through: training would go on from other numbers."""
    data = (kept / file).read_bytes()
    for place in {0, len(data) // 2, len(data) - 1}:
        (kept / file).write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ValueError, match=rf"step-00000003 is damaged .*: {file} is not as .* written; start over$"):
            Checkpoints(tmp_path).load(kept)


@pytest.mark.parametrize("file", ["model.safetensors", "shared.json", "process-0.safetensors"])
def test_a_file_that_is_missing_is_damage(kept: Path, tmp_path: Path, file: str) -> None:
    (kept / file).unlink()
    for instead in (None, "/dev/zero"):
        if instead:
            # Its sum would never be done.
            (kept / file).symlink_to(instead)
        with pytest.raises(ValueError, match=rf"step-00000003 is damaged .*: {file} is missing; start over$"):
            Checkpoints(tmp_path).load(kept)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "5", "[" * 100_000])
def test_damaged_checksums_are_damage_too(kept: Path, tmp_path: Path, text: str) -> None:
    (kept / "checksums.json").write_text(text)
    with pytest.raises(ValueError, match=r"step-00000003 is damaged and cannot be continued: .*; start over$"):
        Checkpoints(tmp_path).load(kept)


def test_a_checkpoint_from_before_there_were_checksums_is_continued(kept: Path, tmp_path: Path) -> None:
    (kept / "checksums.json").unlink()
    weights, _, _ = Checkpoints(tmp_path).load(kept)
    assert torch.equal(weights["weight"], torch.arange(4.0))


@pytest.mark.parametrize(
    "skeleton",
    [
        '{"$tensor": ["a"]}',
        '{"$tensor": "no such"}',
        '{"$tuple": 5}',
        '{"$pairs": [[["a"], 1]]}',
        '{"$pairs": [1]}',
        "[" * 100_000,
        "[" * 990 + "]" * 990,
        '{"a": ' + "9" * 5000 + "}",
        '{"$tensor": "' + "x" * 10_000 + '"}',
    ],
)
def test_a_state_that_is_none_is_one_short_sentence(kept: Path, tmp_path: Path, skeleton: str) -> None:
    (kept / "checksums.json").unlink()
    (kept / "shared.json").write_text(skeleton)
    with pytest.raises(ValueError, match=r"damaged and cannot be continued: .*shared\.json.*; start over$") as refusal:
        Checkpoints(tmp_path).load(kept)
    assert len(str(refusal.value)) < 1000


def test_a_state_names_its_file(tmp_path: Path) -> None:
    write_state(tmp_path / "state", {"a": torch.ones(1)})
    (tmp_path / "state.safetensors").write_bytes(b"{")
    with pytest.raises(ValueError, match=r"state\.safetensors must be a safetensors file"):
        read_state(tmp_path / "state")


def test_numbers_of_a_kind_that_torch_has_not_are_refused(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with pytest.raises(ValueError, match=r"w\.safetensors must be a safetensors file"):
        read_tensors(tmp_path / "w.safetensors")


def test_a_tensor_of_nothing_with_endless_sides_is_refused(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [0, 1 << 62, 8], "data_offsets": [0, 0]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match=r"w\.safetensors must be a safetensors file"):
        read_tensors(tmp_path / "w.safetensors")


def test_whole_numbers_are_no_weights() -> None:
    model = torch.nn.Linear(2, 3)
    check_fits(model, {name: one.half() for name, one in model.state_dict().items()}, "w.safetensors")
    with pytest.raises(ValueError, match=r"w\.safetensors must hold .*; weight is \[3, 2\] of whole numbers there"):
        check_fits(model, model.state_dict() | {"weight": torch.ones(3, 2, dtype=torch.int32)}, "w.safetensors")
