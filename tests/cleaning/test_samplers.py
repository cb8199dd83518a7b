"""Samplers: laws that all of them share, then what each one promises."""

from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Sampler, TensorDataset

from hardsight.cleaning import (
    ClassBalancedSampler,
    CurriculumSampler,
    EpochSampler,
    HardMiningSampler,
    ImportanceSampler,
    SelfPacedSampler,
    hardness_for,
)

COUNT = 53
HARDNESS = torch.rand(COUNT, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(5, (COUNT,), generator=torch.Generator().manual_seed(1))
MAKERS: dict[str, Callable[..., EpochSampler]] = {
    "HardMiningSampler": lambda **o: HardMiningSampler(HARDNESS, share=0.4, **o),
    "CurriculumSampler": lambda **o: CurriculumSampler(HARDNESS, epochs=4, **o),
    "SelfPacedSampler": lambda **o: SelfPacedSampler(HARDNESS, threshold=0.3, growth=0.2, shuffle=True, **o),
    "ClassBalancedSampler": lambda **o: ClassBalancedSampler(LABELS, classes_per_batch=3, samples_per_class=2, **o),
    "ImportanceSampler": lambda **o: ImportanceSampler(HARDNESS, **o),
}


def subclasses(of: type) -> set[str]:
    return {one.__name__ for one in of.__subclasses__()}.union(*(subclasses(one) for one in of.__subclasses__()))


def test_every_sampler_is_under_the_laws() -> None:
    assert subclasses(EpochSampler) == set(MAKERS)


def is_reproducible(make: Callable[..., EpochSampler]) -> bool:
    """Epoch 3 is the same reached straight or after others, another epoch and another seed differ."""
    straight, walked, other = make(seed=4), make(seed=4), make(seed=5)
    straight.set_epoch(3)
    other.set_epoch(3)
    for epoch in range(4):
        walked.set_epoch(epoch)
        last = list(walked)
    same = list(straight) == last == list(straight)
    straight.set_epoch(2)
    return same and list(straight) != last and list(other) != last


@pytest.mark.parametrize("name", MAKERS)
def test_an_epoch_depends_on_seed_and_number_alone(name: str) -> None:
    assert is_reproducible(MAKERS[name])


def test_the_law_rejects_a_sampler_that_counts_its_calls() -> None:
    class Counting(HardMiningSampler):
        def order(self, epoch: int) -> torch.Tensor:
            self.calls = getattr(self, "calls", 0) + 1
            return super().order(self.calls)

    assert not is_reproducible(lambda **o: Counting(HARDNESS, share=0.4, **o))
    del Counting
    __import__("gc").collect()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("processes", [2, 3, 7])
def test_processes_visit_together_what_one_would(name: str, processes: int) -> None:
    alone = MAKERS[name](seed=1)
    parts = [MAKERS[name](seed=1, processes=processes, rank=rank) for rank in range(processes)]
    for sampler in (alone, *parts):
        sampler.set_epoch(2)
    assert len({len(list(part)) for part in parts}) == 1
    assert all(len(list(part)) == len(part) for part in (alone, *parts))
    visited = Counter(one for part in parts for one in part)
    # Filling up the end only adds: nothing that one process would visit is left out.
    assert not Counter(alone) - visited
    extra = sum(visited.values()) - len(alone)
    unit = getattr(alone, "batch_size", 1)
    assert 0 <= extra < processes * unit


@pytest.mark.parametrize("name", MAKERS)
def test_works_in_a_loader(name: str) -> None:
    sampler = MAKERS[name]()
    assert isinstance(sampler, Sampler)
    loader = DataLoader(TensorDataset(torch.arange(COUNT)), batch_size=6, sampler=sampler)
    assert sum(len(batch) for (batch,) in loader) == len(sampler)
    assert len(loader) == -(-len(sampler) // 6)


@pytest.mark.parametrize("name", MAKERS)
def test_rank_and_epoch_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="rank must lie"):
        MAKERS[name](processes=2, rank=2)
    with pytest.raises(ValueError, match="epoch must not be negative"):
        MAKERS[name]().set_epoch(-1)


def test_hard_mining_takes_the_hardest_after_the_suspects() -> None:
    ranked = sorted(range(COUNT), key=lambda at: -HARDNESS[at])
    sampler = HardMiningSampler(HARDNESS, share=0.3, skip=0.1)
    assert sorted(sampler) == sorted(ranked[5 : 5 + 16])
    assert sorted(HardMiningSampler(HARDNESS, share=1.0)) == list(range(COUNT))


@pytest.mark.parametrize("pacing", ["linear", "root"])
def test_curriculum_grows_from_the_easiest_to_all(pacing: str) -> None:
    sampler = CurriculumSampler(HARDNESS, epochs=5, start=0.2, pacing=pacing)
    ranked = sorted(range(COUNT), key=lambda at: float(HARDNESS[at]))
    sizes = []
    for epoch in range(8):
        sampler.set_epoch(epoch)
        drawn = list(sampler)
        assert sorted(drawn) == sorted(ranked[: len(drawn)])
        sizes.append(len(drawn))
    assert sizes[0] == 11
    assert sizes == sorted(sizes)
    assert sizes[5:] == [COUNT] * 3
    assert sizes[4] < COUNT


def test_curriculum_by_class_keeps_every_class_in_its_share() -> None:
    sampler = CurriculumSampler(HARDNESS + 10 * (LABELS == 2), epochs=4, start=0.4, labels=LABELS)
    drawn = torch.tensor(list(sampler))
    share = torch.bincount(LABELS[drawn], minlength=5) / torch.bincount(LABELS, minlength=5)
    assert float((share - 0.4).abs().max()) < 0.15
    for label in range(5):
        own = HARDNESS[drawn[LABELS[drawn] == label]]
        left = [at for at in range(COUNT) if LABELS[at] == label and at not in drawn.tolist()]
        assert float(own.max()) <= float(HARDNESS[left].min())
    without = torch.tensor(list(CurriculumSampler(HARDNESS + 10 * (LABELS == 2), epochs=4, start=0.4)))
    assert 2 not in LABELS[without].tolist()


def test_self_paced_admits_below_a_growing_threshold_and_follows_updates() -> None:
    sampler = SelfPacedSampler(torch.tensor([0.9, 0.1, 0.5, 0.3]), threshold=0.2, growth=0.2)
    assert list(sampler) == [1]
    sampler.set_epoch(1)
    assert list(sampler) == [1, 3]
    sampler.update(torch.tensor([0.0, 0.9, 0.1, 0.2]))
    assert list(sampler) == [0, 2, 3]
    sampler.set_epoch(9)
    assert sorted(sampler) == [0, 1, 2, 3]
    assert list(SelfPacedSampler(torch.tensor([0.9, 0.5]), threshold=0.0, growth=0.0, minimum=1)) == [1]


def test_class_balanced_batches() -> None:
    sampler = ClassBalancedSampler(LABELS, classes_per_batch=3, samples_per_class=4, seed=2)
    seen, turns = Counter(), Counter()
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for batch in BatchSampler(sampler, sampler.batch_size, drop_last=False):
            classes = Counter(LABELS[batch].tolist())
            assert list(classes.values()) == [4, 4, 4]
            turns.update(classes.keys())
        seen.update(sampler)
    assert max(turns.values()) - min(turns.values()) <= 3
    for label in range(5):
        visits = [seen[at] for at in range(COUNT) if LABELS[at] == label]
        assert max(visits) - min(visits) <= 3


def test_importance_draws_by_its_probabilities_and_weights_undo_them() -> None:
    importance = torch.tensor([0.0, 1.0, 4.0])
    sampler = ImportanceSampler(importance, draws=60_000, uniform=0.3)
    expected = 0.7 * importance.double() / 5 + 0.1
    torch.testing.assert_close(sampler.probabilities, expected)
    drawn = torch.tensor(list(sampler))
    torch.testing.assert_close(torch.bincount(drawn) / 60_000, expected.float(), atol=0.01, rtol=0.0)
    values = torch.tensor([3.0, -2.0, 10.0])
    unbiased = float((sampler.weights[drawn] * values[drawn]).mean())
    assert unbiased == pytest.approx(float(values.mean()), abs=0.1)
    assert float(values[drawn].mean()) != pytest.approx(float(values.mean()), abs=0.1)
    assert float(sampler.weights.max()) <= 1 / 0.3 + 1e-9


def test_importance_of_nothing_and_of_huge_numbers() -> None:
    assert ImportanceSampler(torch.zeros(4)).probabilities.tolist() == [0.25] * 4
    huge = ImportanceSampler(torch.tensor([3e38, 3e38]), uniform=0.0)
    assert huge.probabilities.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: HardMiningSampler(HARDNESS, share=0.8, skip=0.5), "share and skip"),
        (lambda: HardMiningSampler(torch.tensor([float("nan")])), "hardness must be finite"),
        (lambda: HardMiningSampler(torch.zeros(0)), "at least 1 sample"),
        (lambda: CurriculumSampler(HARDNESS, epochs=0), "epochs must be at least 1"),
        (lambda: CurriculumSampler(HARDNESS, epochs=1, start=0.0), "start must lie"),
        (lambda: SelfPacedSampler(HARDNESS, threshold=0.0, growth=-1.0), "growth must not be negative"),
        (lambda: SelfPacedSampler(HARDNESS, threshold=0.0, growth=0.0, minimum=0), "minimum must lie"),
        (lambda: ClassBalancedSampler(LABELS, classes_per_batch=6, samples_per_class=1), "classes_per_batch must lie"),
        (lambda: ClassBalancedSampler(LABELS, classes_per_batch=1, samples_per_class=0), "samples_per_class must be"),
        (lambda: ImportanceSampler(torch.tensor([-1.0, 2.0])), "importance must not be negative"),
        (lambda: ImportanceSampler(torch.tensor([0.0, 2.0]), uniform=0.0), "uniform must be positive"),
        (lambda: ImportanceSampler(HARDNESS, draws=0), "draws must be at least 1"),
        (
            lambda: ImportanceSampler(torch.tensor([1e300, 1e-30], dtype=torch.float64), uniform=0.0),
            "uniform must be positive where an importance is zero",
        ),
        (
            lambda: ClassBalancedSampler(torch.tensor([0, 1, -100]), classes_per_batch=2, samples_per_class=1),
            r"labels must be 0 or larger, .*; got -100, which stands for none \(1 of 3\)",
        ),
        (
            lambda: CurriculumSampler(HARDNESS[:3], epochs=1, labels=torch.tensor([0, -1, 1])),
            r"labels must be 0 or larger, .*; got -1, which stands for none \(1 of 3\)",
        ),
    ],
)
def test_refusals(make: Callable[[], EpochSampler], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_hardness_from_a_table_in_the_data_sets_order(make_table: Callable[..., pa.Table]) -> None:
    table = make_table({"id": [12, 10, 11], "confidence": [0.2, 0.9, 0.5]})
    assert hardness_for(table, "confidence", torch.tensor([10, 11, 12])).tolist() == pytest.approx([-0.9, -0.5, -0.2])
    with pytest.raises(ValueError, match="1 are missing, first 13"):
        hardness_for(table, "confidence", [10, 13])
    with pytest.raises(ValueError, match="each id once"):
        hardness_for(make_table({"id": [1, 1], "avh": [0.1, 0.2]}), "avh", [1])


def test_a_share_is_not_rounded_up_past_its_samples() -> None:
    """0.07 of 100 are 7, though 0.07 * 100 is 7.000000000000001 in binary."""
    sampler = CurriculumSampler(torch.arange(100.0), epochs=5, start=0.07, pacing="linear")
    assert sorted(sampler.order(0).tolist()) == list(range(7))


def test_what_is_as_hard_as_the_threshold_is_not_admitted_yet() -> None:
    sampler = SelfPacedSampler(torch.tensor([2.0, 1.0, 3.0]), threshold=2.0, growth=1.0)
    assert [sampler.order(epoch).tolist() for epoch in (0, 1, 2)] == [[1], [1, 0], [1, 0, 2]]


def test_the_only_sample_of_a_class_stands_in_the_middle() -> None:
    """A prefix holds the same share of every class: half of one sample, half of ten."""
    sampler = CurriculumSampler(torch.arange(11.0), epochs=5, labels=torch.tensor([0] * 10 + [1]))
    assert sampler.easiest_first.tolist() == [0, 1, 2, 3, 4, 10, 5, 6, 7, 8, 9]


def test_seeds_do_not_draw_each_others_epochs() -> None:
    orders = [HardMiningSampler(torch.arange(50.0), seed=seed).order(epoch) for seed, epoch in ((0, 1), (1, 0))]
    assert orders[0].tolist() != orders[1].tolist()


@pytest.mark.parametrize(
    ("share", "skip", "first", "count"), [(0.07, 0.0, 0, 7), (0.71, 0.29, 29, 71), (0.5, 0.57, 57, 43)]
)
def test_shares_of_a_hundred_are_whole_numbers(share: float, skip: float, first: int, count: int) -> None:
    """0.07 of 100 is 7.000000000000001 in floating point, 0.29 of it 28.999999999999996."""
    hardness = torch.arange(100).flip(0).float()
    sampler = HardMiningSampler(hardness, share=min(share, 1 - skip), skip=skip)
    assert sorted(sampler) == list(range(first, first + count))


def test_an_update_of_another_length_is_refused() -> None:
    sampler = SelfPacedSampler(HARDNESS, threshold=0.3, growth=0.2)
    with pytest.raises(ValueError, match=f"hardness must be one number for each of {COUNT} samples"):
        sampler.update(HARDNESS[:-1])
    assert max(sampler) < COUNT
