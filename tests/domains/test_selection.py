"""Selectors against slow loops over lists, their laws, ties, empty classes, chunks; wrong rules the laws refuse."""

import dataclasses
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from hardsight.domains.selection import (
    SELECTORS,
    Confidences,
    Evidence,
    Selection,
    Selector,
    SelectorThresholds,
    Thresholds,
    confidences,
    evidence_of,
    get_selector,
    label_samples,
    select,
    thresholds_of,
)
from hardsight.hardness import angular_visual_confidence


def make(seed: int = 0, samples: int = 200, classes: int = 5, levels: int | None = None) -> Evidence:
    """Random evidence; with `levels`, rounded so that many confidences are tied."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, classes, generator=generator)
    visual = torch.rand(samples, classes, generator=generator) + 0.2
    softmax, visual = logits.softmax(1), visual / visual.sum(1, keepdim=True)
    if levels is not None:
        softmax, visual = ((values * levels).ceil() / levels for values in (softmax, visual))
    return Evidence(softmax, visual)


def threshold_by_lists(confidence: list[float], predicted: list[int], classes: int, portion: float) -> list[float]:
    """Sorted lists, class by class, as the facts print it."""
    found = []
    for number in range(classes):
        mine = sorted((one for one, its in zip(confidence, predicted, strict=True) if its == number), reverse=True)
        count = math.floor(round(len(mine) * portion, 6))
        found.append(mine[count - 1] if count else 1.0)
    return found


def empty_by_lists(predicted: list[int], classes: int, portion: float) -> list[bool]:
    return [math.floor(round(predicted.count(number) * portion, 6)) == 0 for number in range(classes)]


def first_largest(row: list[float]) -> int:
    return max(range(len(row)), key=lambda place: (row[place], -place))


def by_loops(rule: Selector, evidence: Evidence, portion: float) -> tuple[list[int], list[list[float]]]:
    """Labels and soft labels, a sample at a time, in Python's doubles."""
    softmax = evidence.softmax.tolist()
    assert evidence.visual is not None
    measures = {"softmax": softmax, "visual": evidence.visual.tolist()}
    labelling, keeping = measures[rule.label_by], measures[rule.keep_by]
    classes = len(softmax[0])
    predicted = [first_largest(row) for row in labelling]
    of_label = [row[one] for row, one in zip(labelling, predicted, strict=True)]
    of_keep = [row[one] for row, one in zip(keeping, predicted, strict=True)]
    if rule.balance == "class":
        weigh = threshold_by_lists(of_label, predicted, classes, portion)
        needed = threshold_by_lists(of_keep, predicted, classes, portion)
        empty = empty_by_lists(predicted, classes, portion)
    else:
        weigh, empty = [1.0] * classes, [False] * classes
        overall = threshold_by_lists(of_keep, [0] * len(predicted), 1, portion)[0]
        needed = [overall if rule.balance == "overall" else 0.0] * classes
    labels, soft = [], []
    for row, sure in zip(labelling, keeping, strict=True):
        # Ratios as float32 makes them: a tie there is a tie here.
        ratios = (torch.tensor(row) / torch.tensor(weigh)).tolist()
        label = first_largest(ratios)
        if rule.entropy_weight:
            kept, shares = lrent_by_loop(row, weigh, rule.entropy_weight, label)
            soft.append(shares)
        else:
            kept = sure[label] >= needed[label] if rule.keeps_threshold else sure[label] > needed[label]
        labels.append(label if kept and not empty[label] else -1)
    return labels, soft


def lrent_by_loop(row: list[float], weigh: list[float], alpha: float, label: int) -> tuple[bool, list[float]]:
    """The authors' sums, term by term."""
    powers = [(p / k) ** (1 / alpha) for p, k in zip(row, weigh, strict=True)]
    shares = [power / sum(powers) for power in powers]
    left = sum(-y * math.log(p) + alpha * y * math.log(y) for y, p in zip(shares, row, strict=True) if y > 0)
    right = sum(-y * math.log(k) for y, k in zip(shares, weigh, strict=True))
    # At the threshold itself both sides are equal up to the other classes' shares, which rounding may hide.
    return left < right or row[label] == weigh[label], shares


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize(("seed", "portion", "levels"), [(0, 0.2, None), (1, 0.35, 8), (2, 1.0, None), (3, 0.05, 20)])
def test_it_equals_loops_over_lists(name: str, seed: int, portion: float, levels: int | None) -> None:
    evidence = make(seed, levels=levels)
    found = select(name, evidence, portion)
    labels, soft = by_loops(SELECTORS[name], evidence, portion)
    assert found.labels.tolist() == labels
    if SELECTORS[name].entropy_weight:
        torch.testing.assert_close(found.soft, torch.tensor(soft), rtol=1e-4, atol=1e-6)
    else:
        assert found.soft is None


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("samples", [1, 60])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_confidences_of_any_precision_are_taken_as_float32(name: str, samples: int, dtype: torch.dtype) -> None:
    """Bits of another width are no confidences: one sample's were read without a word, several failed."""
    evidence = Evidence(*(one if one is None else one.to(dtype) for one in make(6, samples=samples)))
    single = Evidence(*(one if one is None else one.float() for one in evidence))
    assert torch.equal(select(name, evidence, 1.0).labels, select(name, single, 1.0).labels)


@pytest.mark.parametrize("name", SELECTORS)
def test_chunks_and_their_order_change_nothing(name: str) -> None:
    evidence = make(4, samples=300, levels=30)
    whole = select(name, evidence, 0.3)
    assert evidence.visual is not None
    for sizes in ([1, 299], [100, 100, 100], [7, 0, 293]):
        chunks = [Evidence(*parts) for parts in zip(evidence.softmax.split(sizes), evidence.visual.split(sizes))]  # noqa: B905
        assert torch.equal(select(name, chunks, 0.3).labels, whole.labels)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    shuffled = select(name, Evidence(evidence.softmax[order], evidence.visual[order]), 0.3)
    assert torch.equal(shuffled.labels, whole.labels[order])


@pytest.mark.parametrize("name", [name for name, one in SELECTORS.items() if one.balance == "class"])
def test_thresholds_of_gathered_confidences_label_each_part_as_the_whole(name: str) -> None:
    """What several processes do: gather three numbers a sample, label their own part."""
    rule, evidence = SELECTORS[name], make(5)
    assert evidence.visual is not None
    shards = [Evidence(evidence.softmax[at::3], evidence.visual[at::3]) for at in range(3)]
    gathered = Confidences.joined([confidences(rule, one) for one in shards])
    thresholds = thresholds_of(rule, gathered, 5, 0.25)
    whole = select(name, evidence, 0.25).labels
    for at, shard in enumerate(shards):
        assert torch.equal(label_samples(rule, shard, thresholds).labels, whole[at::3])
    # Wrong on purpose: thresholds of a shard alone are other thresholds.
    alone = [select(name, shard, 0.25).labels for shard in shards]
    assert any(not torch.equal(one, whole[at::3]) for at, one in enumerate(alone))


def test_the_weighed_class_can_differ_from_the_likeliest() -> None:
    """Class 0 is easy (threshold 0.9), class 1 hard (0.36): 0.42 against 0.38 goes to the hard one, and is kept."""
    softmax = torch.tensor([[0.9, 0.1, 0.0], [0.9, 0.1, 0.0], [0.32, 0.36, 0.32], [0.42, 0.38, 0.2]])
    assert select("cbst", Evidence(softmax[:3]), 1.0).labels.tolist() == [0, 0, 1]
    rule = SELECTORS["cbst"]
    thresholds = thresholds_of(rule, confidences(rule, Evidence(softmax[:3])), 3, 1.0)
    assert label_samples(rule, Evidence(softmax), thresholds).labels.tolist() == [0, 0, 1, 1]
    assert select("argmax", Evidence(softmax), 0.5).labels.tolist() == [0, 0, 1, 0]


def test_ties_at_the_threshold_stay_together() -> None:
    softmax = torch.tensor([[0.8, 0.2]] * 6 + [[0.7, 0.3]] * 4)
    visual = softmax.clone()
    evidence = Evidence(softmax, visual)
    # Rank 3 of 10 is 0.8, which six samples have.
    assert int(select("cbst", evidence, 0.3).selected.sum()) == 6
    assert int(select("avh-inclusive", evidence, 0.3).selected.sum()) == 6
    # Eq. 4 keeps what lies above its threshold: of all tied at the top, nothing.
    assert int(select("avh", evidence, 0.3).selected.sum()) == 0
    assert int(select("avh", evidence, 0.7).selected.sum()) == 6


def surest_by_lists(logits: Tensor, portion: float, *, by_class: bool) -> list[int]:
    """Labels of the portion of each predicted class, or of all, whose other classes are least likely, in doubles."""
    rows = logits.double().tolist()
    predicted = [first_largest(row) for row in rows]
    # log(1 - p) up to what is the same for all that compare: the logarithm of the others' sum.
    doubts = []
    for row, label in zip(rows, predicted, strict=True):
        away = [value - row[label] for place, value in enumerate(row) if place != label]
        log_others = max(away) + math.log(sum(math.exp(one - max(away)) for one in away))
        doubts.append(log_others - math.log1p(math.exp(log_others)))
    labels = [-1] * len(rows)
    groups = [predicted] if by_class else [[0] * len(rows)]
    for number in sorted(set(groups[0])):
        mine = sorted((doubts[at], at) for at in range(len(rows)) if groups[0][at] == number)
        for _, at in mine[: math.floor(round(len(mine) * portion, 6))]:
            labels[at] = predicted[at]
    return labels


@pytest.mark.parametrize("name", ["cbst", "crst-mrkld", "crst-lrent", "crst", "confidence"])
@pytest.mark.parametrize("length", [30.0, 60.0, 1000.0])
def test_samples_whose_probability_is_rounded_to_one_are_told_apart(name: str, length: float) -> None:
    """A model that is sure of most of its target: the portion is still the portion, and the surest are in it."""
    logits = length * torch.randn(600, 4, generator=torch.Generator().manual_seed(0))
    evidence = evidence_of(logits)
    assert float((evidence.softmax.amax(1) == 1).float().mean()) > 0.4
    chosen = select(name, evidence, 0.2).labels
    assert chosen.tolist() == surest_by_lists(logits, 0.2, by_class=SELECTORS[name].balance == "class")
    # Wrong on purpose: all that are rounded to 1 are tied, and all of them are taken.
    tied = select(name, Evidence(evidence.softmax), 0.2)
    assert int(tied.selected.sum()) > 2 * int((chosen >= 0).sum())


@pytest.mark.parametrize("name", SELECTORS)
def test_certainty_changes_nothing_where_probabilities_differ(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    features, weight = torch.randn(500, 6, generator=generator), torch.randn(4, 6, generator=generator)
    evidence = evidence_of(features @ weight.T, features, weight)
    assert float(evidence.softmax.amax(1).max()) < 1
    for portion in (0.1, 0.3, 1.0):
        plain, fine = (select(name, one, portion) for one in (evidence._replace(certainty=None), evidence))
        assert torch.equal(plain.labels, fine.labels)
    chunks = [Evidence(*parts) for parts in zip(*(part.split(70) for part in evidence), strict=True)]
    assert torch.equal(select(name, chunks, 1.0).labels, fine.labels)


@pytest.mark.parametrize("name", [name for name, one in SELECTORS.items() if one.balance == "class"])
def test_a_class_too_small_for_a_rank_selects_nothing_not_even_certainty(name: str) -> None:
    """One sample predicted as class 1, nobody as class 2: floor(1 * 0.5) = 0."""
    softmax = torch.tensor([[0.7, 0.2, 0.1]] * 4 + [[0.0, 1.0, 0.0]])
    visual = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.2, 0.2], [0.4, 0.3, 0.3], [0.7, 0.2, 0.1], [0.0, 1.0, 0.0]])
    labels = select(name, Evidence(softmax, visual), 0.5).labels
    assert set(labels.tolist()) == {0, -1}
    assert labels[-1] == -1


def test_the_last_bit_decides() -> None:
    """One float below, at and above each threshold: the quotient says exactly what the comparison says."""
    values = torch.rand(500, generator=torch.Generator().manual_seed(0)) * 0.4 + 0.55
    up, down = (torch.nextafter(values, torch.tensor(edge)) for edge in (1.0, 0.0))
    for value, above, below in zip(values, up, down, strict=True):
        softmax = torch.stack([torch.stack([one, torch.tensor(0.01)]) for one in (value, above, below)])
        for inclusive, expected in ((True, [0, 0, -1]), (False, [-1, 0, -1])):
            rule = dataclasses.replace(SELECTORS["cbst"], keeps_threshold=inclusive)
            at = Thresholds(torch.stack([value, torch.tensor(1.0)]), torch.tensor([1, 0]))
            assert label_samples(rule, Evidence(softmax), SelectorThresholds(at, at)).labels.tolist() == expected


def keeps_everything(name: str, evidence: Evidence, portion: float) -> Selection:
    return select("argmax", evidence, portion)


def ignores_classes(name: str, evidence: Evidence, portion: float) -> Selection:
    return select("confidence", evidence, portion)


def is_balanced(rule: Callable[..., Selection]) -> bool:
    """The law of class balance: of each class's predicted samples about the same share is selected."""
    generator = torch.Generator().manual_seed(6)
    # Class 0 is always surer than class 1.
    sure = torch.cat(
        [0.9 + 0.1 * torch.rand(500, generator=generator), 0.5 + 0.1 * torch.rand(500, generator=generator)]
    )
    first = torch.arange(1000) < 500
    softmax = torch.stack([torch.where(first, sure, 1 - sure), torch.where(first, 1 - sure, sure)], 1)
    labels = rule("cbst", Evidence(softmax), 0.2).labels
    shares = [float((labels[first] >= 0).float().mean()), float((labels[~first] >= 0).float().mean())]
    return max(abs(share - 0.2) for share in shares) < 0.01


def test_selection_is_class_balanced() -> None:
    assert is_balanced(select)
    assert not is_balanced(ignores_classes)
    assert not is_balanced(keeps_everything)


@pytest.mark.parametrize("name", [name for name, one in SELECTORS.items() if one.balance != "none"])
def test_a_larger_portion_keeps_more(name: str) -> None:
    evidence = make(7, samples=400)
    counts = [int(select(name, evidence, portion).selected.sum()) for portion in (0.1, 0.2, 0.5, 0.9)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_lrent_keeps_all_that_cbst_keeps_under_the_same_labels() -> None:
    evidence = make(8, samples=500)
    hard, soft = select("cbst", evidence, 0.3), select("crst-lrent", evidence, 0.3)
    assert torch.equal(soft.labels[hard.selected], hard.labels[hard.selected])
    assert soft.soft is not None
    torch.testing.assert_close(soft.soft.sum(1), torch.ones(500))
    assert torch.equal(soft.soft.argmax(1)[soft.selected], soft.labels[soft.selected])
    # The smaller alpha is, the harder the labels: in the limit they are CBST's.
    sharp = select(dataclasses.replace(SELECTORS["crst-lrent"], entropy_weight=1e-3), evidence, 0.3)
    assert torch.equal(sharp.labels, hard.labels)
    assert sharp.soft is not None
    assert bool(sharp.soft.isfinite().all())
    assert float(sharp.soft.amax(1).median()) > 0.999


def test_the_divergence_changes_the_loss_not_the_selection() -> None:
    evidence = make(9)
    assert torch.equal(select("crst-mrkld", evidence, 0.3).labels, select("cbst", evidence, 0.3).labels)
    assert torch.equal(select("crst", evidence, 0.3).labels, select("crst-lrent", evidence, 0.3).labels)


def test_visual_confidence_does_not_see_the_norm() -> None:
    """Longer features make the softmax surer and change no angle: AVH's selection within a class stays."""
    generator = torch.Generator().manual_seed(10)
    features, weight = torch.randn(300, 8, generator=generator), torch.randn(4, 8, generator=generator)
    longer = features * (0.5 + 3 * torch.rand(300, 1, generator=generator))
    plain, scaled = (evidence_of(one @ weight.T, one, weight) for one in (features, longer))
    torch.testing.assert_close(plain.visual, angular_visual_confidence(features, weight))
    before, after = (select("avh-slides", one, 0.3).labels for one in (plain, scaled))
    assert torch.equal(before, after)
    before, after = (select("cbst", one, 0.3).labels for one in (plain, scaled))
    assert not torch.equal(before, after)


@pytest.mark.parametrize("portion", [0.0, -0.1, 1.01, float("nan")])
def test_a_portion_outside_its_range_is_refused(portion: float) -> None:
    with pytest.raises(ValueError, match=r"portion must lie in \(0, 1\], the share of target samples .* got"):
        select("cbst", make(), portion)


def _evidence(values: object) -> Evidence:
    return Evidence(torch.tensor(values, dtype=torch.float32))


@pytest.mark.parametrize(
    ("evidence", "sentence"),
    [
        (_evidence([[0.5, float("nan")]]), "got nan to nan"),
        (_evidence([[0.5, 1.5]]), r"confidences in \[0, 1\]"),
        (_evidence([[1.0], [1.0]]), r"the same two classes or more in every chunk; got \[1\]"),
        (Evidence(torch.empty(0, 3)), "at least one sample"),
        (
            [_evidence([[0.5, 0.5]]), _evidence([[0.4, 0.3, 0.3]])],
            r"or more in every chunk; got \[2, 3\]",
        ),
        ([_evidence([[0.5, 0.5]]), evidence_of(torch.zeros(1, 2))], "certainty in every chunk or in none"),
        (Evidence(torch.full((1, 2), 0.5), None, torch.tensor([float("nan")])), "certainties from 0; got nan to nan"),
    ],
)
def test_bad_evidence_is_one_sentence(evidence: Evidence | list[Evidence], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        select("cbst", evidence, 0.2)


def test_bad_selectors_are_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"selector must be one of cbst, .* got 'avg', did you mean 'avh'\?"):
        get_selector("avg")
    # What resembles none of the names is told them, and no name that was hardly meant.
    with pytest.raises(ValueError, match=r"selector must be one of cbst, .*, argmax; got 'nope'$"):
        get_selector("nope")
    with pytest.raises(ValueError, match="must hold visual confidences"):
        select("avh", _evidence([[0.6, 0.4]]), 0.5)
    with pytest.raises(ValueError, match="entropy_weight must be a number not below 0"):
        Selector("mine", entropy_weight=-1.0)
    for angular in ({"keep_by": "visual"}, {"label_by": "visual"}):
        with pytest.raises(ValueError, match="entropy_weight must be 0 where"):
            Selector("mine", entropy_weight=0.25, **angular)
    with pytest.raises(ValueError, match="features and weight must be given together"):
        evidence_of(torch.zeros(2, 3), torch.zeros(2, 4))


def test_every_selector_names_its_source() -> None:
    assert all(one.source for one in SELECTORS.values())
    assert get_selector(SELECTORS["avh"]) is SELECTORS["avh"]


def test_nothing_is_written_into_the_evidence() -> None:
    evidence = make(11)
    assert evidence.visual is not None
    evidence = Evidence(evidence.softmax, evidence.visual, torch.rand(len(evidence.softmax)))
    before = [part.clone() for part in evidence]
    for name in SELECTORS:
        select(name, evidence, 0.3)
    assert all(torch.equal(one, other) for one, other in zip(evidence, before, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("name", SELECTORS)
def test_a_gpu_selects_the_same(name: str) -> None:
    evidence = make(12, samples=2000)
    there = Evidence(*(part.cuda() for part in evidence if isinstance(part, Tensor)))
    assert torch.equal(select(name, there, 0.3).labels.cpu(), select(name, evidence, 0.3).labels)
