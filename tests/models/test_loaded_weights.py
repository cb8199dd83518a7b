"""Weights in their usual forms are put in; what could run code, is damaged or does not fit is refused."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hardsight.models.weights import load_weights, read_tensors


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize("wrapped", [lambda s: s, lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": s}])
@pytest.mark.parametrize(
    "prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", "model.net."]
)
def test_weights_in_their_usual_forms(wrapped, prefix: str, tmp_path: Path) -> None:
    trained, fresh = small(), small()
    state = {prefix + name: value for name, value in trained.state_dict().items()}
    torch.save(wrapped(state), tmp_path / "w.pth")
    load_weights(fresh, tmp_path / "w.pth")
    assert same(trained, fresh)
    other = small()
    save_file(state, tmp_path / "w.safetensors")
    load_weights(other, tmp_path / "w.safetensors")
    assert same(trained, other)


def test_a_model_that_owns_the_prefix_keeps_it(tmp_path: Path) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(2, 2)

    trained, fresh = Wrapped(), Wrapped()
    torch.save(trained.state_dict(), tmp_path / "w.pth")
    load_weights(fresh, tmp_path / "w.pth")
    assert same(trained, fresh)


class Bomb:
    def __reduce__(self) -> tuple:
        return (open, ("exploded", "w"))


def test_checkpoints_that_would_need_unpickling_are_refused_and_do_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(small(), tmp_path / "module.pth")
    torch.save({"weight": Bomb()}, tmp_path / "bomb.pth")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Bomb()))
    for name in ("module.pth", "bomb.pth", "plain.pkl"):
        with pytest.raises(ValueError, match="would need unpickling, which can run code"):
            read_tensors(tmp_path / name)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_damaged_weights_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    save_file(small().state_dict(), path) if name.endswith("tensors") else torch.save(small().state_dict(), path)
    whole = path.read_bytes()
    for keep in (0, 1, 50, len(whole) // 2):
        path.write_bytes(whole[:keep])
        with pytest.raises(ValueError, match="is truncated or is not"):
            read_tensors(path)
    with pytest.raises(FileNotFoundError, match="is not there"):
        read_tensors(tmp_path / "none.pth")


def test_weights_that_do_not_fit_say_where(tmp_path: Path) -> None:
    torch.save({**small().state_dict(), "3.bias": torch.zeros(7)}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"3\.bias has the shape \[7\] instead of \[5\]"):
        load_weights(small(), tmp_path / "w.pth")
    torch.save({"epoch": 3}, tmp_path / "w.pth")
    with pytest.raises(ValueError, match="must hold a state_dict"):
        read_tensors(tmp_path / "w.pth")
