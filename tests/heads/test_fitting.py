"""Out-of-fold heads: scikit-learn's own solutions, heads that never saw what they judge, folds, and bad input."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from hardsight.hardness import angular_visual_hardness
from hardsight.heads import fit_head, minimising


def blobs(samples: int = 300, dim: int = 8, classes: int = 4, spread: float = 1.5) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, classes, (samples,), generator=generator)
    centres = 2 * torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return centres[labels] + spread * torch.randn(samples, dim, generator=generator, dtype=torch.float64), labels


def units(features: Tensor) -> Tensor:
    return torch.nn.functional.normalize(features - features.mean(0), dim=1)


def test_every_head_is_scikit_learns_solution_of_the_other_folds() -> None:
    features, labels = blobs()
    fitted = fit_head(features, labels, 3, penalties=(0.7,), tolerance=1e-13)
    said = fitted.probabilities()
    for fold in range(3):
        mine = fitted.fold == fold
        theirs = LogisticRegression(C=1 / 0.7, tol=1e-10, max_iter=10_000)
        theirs.fit(units(features)[~mine].numpy(), labels[~mine].numpy())
        expected = torch.from_numpy(theirs.predict_proba(units(features)[mine].numpy()))
        torch.testing.assert_close(said[mine], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fitted.log_loss, -said[torch.arange(300), labels].log().mean().item(), rtol=1e-5, atol=0)


def test_noise_cannot_be_foretold_by_heads_that_never_saw_it() -> None:
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(200, 150, generator=generator), torch.randint(0, 2, (200,), generator=generator)
    fitted = fit_head(features, labels, penalties=(0.001,))
    right = (fitted.probabilities().argmax(1) == labels).float().mean()
    # A head that saw its samples separates 200 points in 150 dimensions: what a leak would show.
    seen = LogisticRegression(C=1000.0, max_iter=1000).fit(units(features).numpy(), labels.numpy())
    assert 0.35 < right < 0.65
    assert seen.score(units(features).numpy(), labels.numpy()) > 0.95


def test_scores_are_those_of_the_head_of_the_samples_fold() -> None:
    features, labels = blobs()
    fitted = fit_head(features, labels)
    assert fitted.weight is not None
    found = fitted.score(("avh", "confidence"))
    each = torch.stack(
        [
            angular_visual_hardness(units(features)[at : at + 1], fitted.weight[fitted.fold[at]], labels[at : at + 1])[
                0
            ]
            for at in range(300)
        ]
    )
    torch.testing.assert_close(found["avh"], each)
    torch.testing.assert_close(found["confidence"], fitted.probabilities()[torch.arange(300), labels])


def test_heads_do_not_depend_on_rotation_shift_or_scale() -> None:
    features, labels = blobs()
    turned = features @ torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64)).Q * 7 + 3
    first, second = (fit_head(one, labels, tolerance=1e-10).probabilities() for one in (features, turned))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_folds_hold_their_share_of_every_class_and_groups_stay_whole() -> None:
    features, labels = blobs()
    fold = fit_head(features, labels, 4, penalties=(1.0,)).fold
    counts = torch.zeros(4, 4).index_put_((labels, fold), torch.ones(300), accumulate=True)
    assert (counts.amax(1) - counts.amin(1)).max() <= 1
    groups = np.array([f"patient {at // 6}" for at in range(300)])
    fold = fit_head(features, labels, 4, groups=groups, penalties=(1.0,)).fold
    assert all(len(fold[torch.from_numpy(groups == one)].unique()) == 1 for one in np.unique(groups))
    assert len(fold.unique()) == 4


def test_the_penalty_is_chosen_without_the_fold_that_is_judged() -> None:
    features, labels = blobs(spread=4.0)
    strong, weak = (fit_head(features, labels, penalties=(one,)).log_loss for one in (30.0, 0.001))
    fitted = fit_head(features, labels, penalties=(30.0, 3.0, 0.3, 0.001))
    assert fitted.penalty is not None
    assert set(fitted.penalty.tolist()) <= {30.0, 3.0, 0.3, 0.001}
    assert fitted.log_loss <= max(strong, weak)


def test_features_on_disk_in_half_precision_and_in_small_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, labels = blobs()
    np.save(tmp_path / "features.npy", features.half().numpy())
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    whole = fit_head(features.half(), labels, tolerance=1e-9)
    monkeypatch.setattr(minimising, "_FEATURES", 8 * 17)
    monkeypatch.setattr(minimising, "_LOGITS", 4 * 5 * 13)
    pieces = fit_head(mapped, labels.numpy().astype(np.uint16), tolerance=1e-9)
    torch.testing.assert_close(pieces.probabilities(), whole.probabilities(), rtol=0, atol=2e-3)
    assert pieces.score(("avh",))["avh"].shape == (300,)


def test_many_samples_start_from_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = blobs()
    whole = fit_head(features, labels, penalties=(1.0,), tolerance=1e-10)
    monkeypatch.setattr("hardsight.heads.fitting._STARTING", 60)
    monkeypatch.setattr("hardsight.heads.fitting._CHOOSING", 80)
    warm = fit_head(features, labels, penalties=(1.0,), tolerance=1e-10)
    torch.testing.assert_close(warm.probabilities(), whole.probabilities(), rtol=1e-4, atol=1e-5)


def test_two_processes_fit_what_one_fits(in_two_processes: Callable[[str], list[dict[str, Any]]]) -> None:
    pieces = in_two_processes("""
import json, sys
import torch, torch.distributed as dist
from hardsight.heads import fit_head, minimising
minimising._FEATURES = 8 * 40
generator = torch.Generator().manual_seed(3)
labels = torch.randint(0, 3, (130,), generator=generator)
features = torch.nn.functional.one_hot(labels, 8) + torch.randn(130, 8, generator=generator)
alone = fit_head(features, labels)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
both = fit_head(features, labels)
apart = (alone.probabilities() - both.probabilities()).abs().max().item()
dist.destroy_process_group()
print(json.dumps({"apart": apart, "loss": both.log_loss - alone.log_loss}))
""")
    assert all(one["apart"] < 1e-5 and abs(one["loss"]) < 1e-7 for one in pieces)


def test_an_estimator_of_ones_own_takes_the_heads_place() -> None:
    features, labels = blobs(spread=0.5)
    fitted = fit_head(features, labels, estimator=KNeighborsClassifier(5))
    assert (fitted.probabilities().argmax(1) == labels).float().mean() > 0.95
    with pytest.raises(ValueError, match="linear"):
        fitted.score(("avh",))
    with pytest.raises(TypeError, match=r"estimator.*predict_proba"):
        fit_head(features, labels, estimator=object())


def spoiled(place: tuple[int, int], value: float) -> Tensor:
    features = blobs()[0].clone()
    features[place] = value
    return features


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"features": torch.ones(300, 8)}, r"features must vary.*300"),
        ({"features": spoiled((4, 2), float("nan"))}, r"features must be finite.*row 4"),
        ({"features": torch.ones(300, 8, dtype=torch.long)}, r"features.*int64"),
        ({"features": torch.randn(299, 8)}, r"features.*300.*299"),
        ({"labels": torch.zeros(300, dtype=torch.long)}, r"labels.*2 classes"),
        ({"labels": torch.tensor([*[0, 1] * 149, 0, 2])}, r"class 2.*1"),
        ({"labels": torch.tensor([0, 10**9] * 150)}, r"labels.*1000000000"),
        ({"folds": 1}, r"folds.*2.*1"),
        ({"penalties": (0.0,)}, r"penalties.*0\.0"),
        ({"groups": np.arange(299)}, r"groups.*300.*299"),
        ({"groups": np.arange(300) % 3}, r"groups.*5.*3"),
    ],
)
def test_what_cannot_be_fitted_is_named(change: dict[str, Any], named: str) -> None:
    features, labels = blobs()
    given = {"features": features, "labels": labels, **change}
    with pytest.raises((ValueError, TypeError), match=named):
        fit_head(given.pop("features"), given.pop("labels"), **given)


def test_groups_that_keep_a_class_in_one_fold_are_named() -> None:
    features, labels = blobs()
    groups = torch.where(labels == 2, 1000, torch.arange(300)).numpy()
    with pytest.raises(ValueError, match=r"groups.*class 2"):
        fit_head(features, labels, groups=groups)
