"""Cells trained together equal cells trained alone; batches made inside a step equal the loader's."""

import math

import pytest
import torch
from torch import nn

from hardsight import training
from hardsight.datasets.augment import Augmentation
from hardsight.dynamics import Recorder
from hardsight.losses import GradientRescaling
from hardsight.losses.margins import CosineLinear
from hardsight.training.feed import Feed, ResidentBatches, can_reside
from hardsight.training.stacked import Stack
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


def test_stacked_networks_equal_networks_alone(problem, small, tmp_path):
    """Double precision, no dropout: what is left is the order of sums. Own seed, labels, loss, momentum, rate each."""

    def loops(folder):
        made = []
        for seed in range(3):
            model = small(seed, dropout=0.0).double()
            labels = (problem.labels + seed) % 3
            batches = problem._replace(labels=labels).loader(seed=seed, dtype=torch.float64)
            optimizers = [
                torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5 + 0.1 * seed),
                torch.optim.AdamW(model.parameters(), lr=0.01),
            ]
            made.append(
                training.Loop(
                    model,
                    batches,
                    [None, GradientRescaling(beta=4.0), GradientRescaling(beta=8.0)][seed],
                    optimizers[seed % 2],
                    epochs=2,
                    folder=folder / str(seed),
                    recorder=Recorder(90),
                    test=batches,
                    progress=False,
                    steps=training.Steps(clip=1.0, average_decay=0.9),
                )
            )
        return made

    alone = [one.run() for one in loops(tmp_path / "alone")]
    together = run_together(loops(tmp_path / "stacked"), stacked=True)
    for one, other in zip(alone, together, strict=True):
        for (name, ours), theirs in zip(other.model.state_dict().items(), one.model.state_dict().values(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")
        for mine, its in zip(other.epochs, one.epochs, strict=True):
            assert mine | {"seconds": 0} == pytest.approx(its | {"seconds": 0})
    # What a stacked training leaves is a whole record, and can be gone on with alone.
    for seed in range(3):
        last = training.checkpoints.Checkpoints(tmp_path / "stacked" / str(seed)).latest()
        assert last.name == "step-00000012"
    again = [one.run() for one in loops(tmp_path / "stacked")]
    for one, other in zip(again, together, strict=True):
        assert torch.equal(one.model.head.weight, other.model.head.weight)


def test_stacked_trainings_go_on_alone_when_one_stops(problem, small):
    """One with a broken loss, one of another length: the rest ends as it would have."""
    count = 0

    def breaks(logits, labels):
        nonlocal count
        count += 1
        return nn.functional.cross_entropy(logits, labels) * (math.nan if count == 3 else 1.0)

    def loop(seed, loss=None, epochs=2):
        model = small(seed, dropout=0.0).double()
        batches = problem.loader(seed=seed, dtype=torch.float64)
        return training.Loop(
            model,
            batches,
            loss,
            torch.optim.SGD(model.parameters(), lr=0.1),
            epochs=epochs,
            progress=False,
            steps=training.Steps(check_every=1),
        )

    alone = [loop(0).run(), loop(1, epochs=1).run()]
    loops = [loop(0), loop(1, epochs=1), loop(2, breaks)]
    with pytest.raises(training.NonFiniteLossError, match="step 3"):
        run_together(loops, stacked=True)
    for one, other in zip(alone, loops, strict=False):
        torch.testing.assert_close(other.model.head.weight, one.model.head.weight)
        assert len(other.counters.rows) == len(one.epochs)


def test_when_one_has_ended_the_others_are_stacked_anew(problem, small, monkeypatch):
    def loop(seed, epochs):
        model = small(seed, dropout=0.0).double()
        batches = problem.loader(seed=seed, dtype=torch.float64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return training.Loop(model, batches, None, optimizer, epochs=epochs, progress=False)

    sizes = []
    take = Stack.take

    def counted(stack, batches, **how):
        sizes.append(len(batches))
        take(stack, batches, **how)

    monkeypatch.setattr(Stack, "take", counted)
    lengths = (3, 1, 2, 3)
    alone = [loop(seed, epochs).run() for seed, epochs in enumerate(lengths)]
    together = run_together([loop(seed, epochs) for seed, epochs in enumerate(lengths)], stacked=True)
    steps = len(problem.loader())
    assert sizes == [4] * steps + [3] * steps + [2] * steps
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other.model.state_dict(), one.model.state_dict())


@pytest.mark.parametrize("sizes", [(16, 16), (16, 20), (30, 18)])
@pytest.mark.parametrize("samples", [(90, 90), (90, 82)])
def test_batches_of_different_sizes_are_taken_one_by_one(problem, small, sizes, samples):
    """Other batches or other numbers of samples: sizes differ in the last batch of an epoch, or throughout."""

    def loop(seed):
        model = small(seed, dropout=0.0).double()
        part = problem._replace(images=problem.images[: samples[seed]], labels=problem.labels[: samples[seed]])
        batches = part.loader(seed=seed, batch_size=sizes[seed], dtype=torch.float64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return training.Loop(model, batches, None, optimizer, epochs=2, progress=False)

    alone = [loop(seed).run() for seed in range(2)]
    together = run_together([loop(seed) for seed in range(2)], stacked=True)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other.model.state_dict(), one.model.state_dict())


def test_networks_that_cannot_be_stacked_are_refused(problem, small):
    def loop(model):
        return training.Loop(model, problem.loader(), epochs=1, progress=False)

    with pytest.raises(ValueError, match=r"number 1 differs in linear\.weight"):
        run_together([loop(small()), loop(small(classes=4))], stacked=True)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with pytest.raises(ValueError, match=r"must be a Classifier of hardsight\.models"):
        run_together([loop(plain), loop(plain)], stacked=True)


def test_networks_that_differ_in_a_setting_are_refused(problem, small):
    """No tensor says how much is dropped, or how a head scales: all would be computed as the first one is."""

    def loop(model):
        return training.Loop(model, problem.loader(), epochs=1, progress=False)

    with pytest.raises(ValueError, match=r"number 1 differs in dropout\.p"):
        run_together([loop(small(dropout=0.1)), loop(small(dropout=0.5))], stacked=True)
    heads = [small(), small()]
    for scale, model in zip((8.0, 16.0), heads, strict=True):
        model.linear = CosineLinear(8, 3, scale=scale)
    with pytest.raises(ValueError, match=r"number 1 differs in linear\.scale"):
        run_together([loop(model) for model in heads], stacked=True)
    frozen = small()
    frozen.convolution.requires_grad_(False)
    with pytest.raises(ValueError, match=r"number 1 differs in convolution\.weight"):
        run_together([loop(small()), loop(frozen)], stacked=True)
    quiet = small()
    quiet.dropout = nn.Identity()
    with pytest.raises(ValueError, match=r"number 1 differs in dropout"):
        run_together([loop(small()), loop(quiet)], stacked=True)


@pytest.mark.parametrize("is_module", [True, False])
def test_a_loss_on_the_weights_of_its_network_is_stacked_as_alone(problem, small, is_module):
    """A margin loss trains the network's own head: that gradient comes beside the stacked one."""

    class OnHead(nn.Module):
        def __init__(self, head):
            super().__init__()
            self.head = head if is_module else (lambda features: head(features))

        def forward(self, features, labels):
            return nn.functional.cross_entropy(3 * self.head(features), labels)

    def loop(seed):
        model = small(seed, dropout=0.0).double()
        batches = problem.loader(seed=seed, dtype=torch.float64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return training.Loop(model, batches, OnHead(model.head), optimizer, epochs=1, progress=False)

    alone = [loop(seed).run() for seed in range(2)]
    together = run_together([loop(seed) for seed in range(2)], stacked=True)
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other.model.state_dict(), one.model.state_dict())
