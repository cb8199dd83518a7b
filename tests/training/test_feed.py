"""Batches that are made inside a step equal the loader's."""

import torch

from hardsight.datasets.augment import Augmentation
from hardsight.training.feed import Feed, ResidentBatches, can_reside


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
