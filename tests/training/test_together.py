"""Cells trained together equal cells trained alone; batches made inside a step equal the loader's."""

import math

import pytest
import torch
from torch import nn

from hardsight import training
from hardsight.datasets.augment import Augmentation
from hardsight.dynamics import Recorder
from hardsight.losses import GradientRescaling
from hardsight.training.feed import Feed, ResidentBatches, can_reside
from hardsight.training.together import run_together


def cell(problem, small, seed, folder=None, loss=None):
    """Own seed, own loss parameters, own labels."""
    model = small(seed)
    labels = (problem.labels + seed) % 3
    batches = problem._replace(labels=labels).loader(seed=seed)
    return training.Loop(
        model,
        batches,
        loss or GradientRescaling(beta=2.0 + seed),
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        epochs=2,
        folder=folder,
        recorder=Recorder(90),
        test=batches,
        progress=False,
    )


def test_together_equals_alone_to_the_bit(problem, small):
    alone = [cell(problem, small, seed).run() for seed in range(3)]
    state = torch.get_rng_state()
    together = run_together([cell(problem, small, seed) for seed in range(3)])
    for one, other in zip(alone, together, strict=True):
        for ours, theirs in zip(other.model.state_dict().values(), one.model.state_dict().values(), strict=True):
            assert torch.equal(ours, theirs)
        assert [row["train_loss"] for row in one.epochs] == [row["train_loss"] for row in other.epochs]
    assert len({row["train_loss"] for one in together for row in one.epochs}) == 6, "cells differ from each other"
    assert not torch.equal(torch.get_rng_state(), state), "the loops' own seeding is the caller's"


def test_one_bad_cell_does_not_stop_the_others(problem, small, tmp_path):
    def bad(logits, labels):
        return nn.functional.cross_entropy(logits, labels) * math.nan

    loops = [
        cell(problem, small, 0, tmp_path / "bad", bad),
        cell(problem, small, 1, tmp_path / "good"),
    ]
    with pytest.raises(training.NonFiniteLossError, match="step 1"):
        run_together(loops)
    statuses = {run["name"]: run["status"] for run in training.list_runs(tmp_path)}
    assert statuses == {"bad": "failed", "good": "finished"}


def test_the_callers_random_states_survive_a_training_that_breaks(problem, small):
    def breaks(epoch, row):
        raise KeyError("of the caller")

    loops = [cell(problem, small, seed) for seed in range(2)]
    loops[1].hooks = training.Hooks(after_epoch=breaks)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    with pytest.raises(KeyError, match="of the caller"):
        run_together(loops)
    assert torch.equal(torch.get_rng_state(), state)


def test_batches_made_in_the_step_are_the_loaders(problem):
    loader = problem.loader(augmentation=Augmentation(shift=1, flip=True))
    assert can_reside(loader)
    assert not can_reside(problem.loader(augmentation=Augmentation(noise_std=0.1)))
    resident = None
    # In order, then a jump back, then another epoch.
    for epoch, indices in ((0, [0, 1, 2, 1, 4]), (1, [3, 4])):
        feed = Feed(loader, torch.device("cpu"))
        feed.places = True
        places = [group[0] for group in feed.epoch(epoch)]
        assert [place.is_full for place in places] == [True] * 5 + [False]
        resident = resident or ResidentBatches(loader, places[0].plan)
        for index in indices:
            resident.seek(places[index])
            for ours, theirs in zip(resident.make(), places[index].batch(), strict=True):
                assert torch.equal(ours, theirs)
    before = resident.baked()
    loader.set_labels((problem.labels + 1) % 3)
    assert resident.baked() != before, "a graph must be recorded anew when the labels are replaced"


def test_places_are_continued_where_the_loader_would_be(problem):
    loader, other = problem.loader(), problem.loader(seed=77)
    feed = Feed(loader, torch.device("cpu"))
    feed.places = True
    groups = feed.epoch(1)
    for _ in range(3):
        next(groups)
    state = feed.state_dict()
    assert (state["loader"]["epoch"], state["loader"]["batches"]) == (1, 3)
    rest = [group[0].batch()[2].tolist() for group in groups]
    resumed = Feed(other, torch.device("cpu"))
    resumed.places = True
    resumed.load_state_dict(state, within_epoch=True)
    assert [group[0].batch()[2].tolist() for group in resumed.epoch(1, 3)] == rest
    plain = Feed(problem.loader(seed=78), torch.device("cpu"))
    plain.load_state_dict(state, within_epoch=True)
    assert [group[0][2].tolist() for group in plain.epoch(1, 3)] == rest
