"""Noise by class: rates within binomial bounds, uniform wrong classes, and one set of laws for every kind."""

import jaxtyping
import numpy as np
import pytest
import torch
from scipy import stats

from hardsight import noise

RATE = 0.4
GROUPS = [0, 0, 0, 1, 1, 1, 1, 2, 2, 3]
MATRIX = torch.full((10, 10), RATE / 9, dtype=torch.float64).fill_diagonal_(1 - RATE)
KINDS = {
    "symmetric": lambda labels, rate, g: noise.flip_symmetric(labels, rate, 10, generator=g),
    "symmetric exact": lambda labels, rate, g: noise.flip_symmetric(labels, rate, 10, generator=g, exact=True),
    "groups": lambda labels, rate, g: noise.flip_within_groups(labels, rate, GROUPS, generator=g),
    "groups exact": lambda labels, rate, g: noise.flip_within_groups(labels, rate, GROUPS, generator=g, exact=True),
    "mapping": lambda labels, rate, g: noise.flip_by_mapping(labels, rate, noise.CIFAR10_LOOKALIKES, 10, generator=g),
    "pairwise": lambda labels, rate, g: noise.flip_pairwise(labels, rate, 10, generator=g),
    "matrix": lambda labels, rate, g: noise.flip_by_matrix(
        labels, torch.full((10, 10), rate / 9, dtype=torch.float64).fill_diagonal_(1 - rate), generator=g
    ),
    "projection": lambda labels, rate, g: noise.flip_by_projection(
        labels, torch.linspace(-1, 1, len(labels) * 4).reshape(-1, 4), rate, 10, generator=g
    ),
    "margin": lambda labels, rate, g: noise.flip_by_margin(
        labels, torch.linspace(0, 1, len(labels) * 10).reshape(-1, 10), rate, generator=g
    ),
}
# Classes that each kind can change at all.
CHANGEABLE = {
    "groups": [label for label in range(10) if label != 9],
    "groups exact": [label for label in range(10) if label != 9],
    "mapping": sorted(noise.CIFAR10_LOOKALIKES),
}


def within_binomial(successes: int, trials: int, rate: float) -> bool:
    return stats.binomtest(successes, trials, rate).pvalue > 1e-4


def wrong_classes_are_uniform(clean: torch.Tensor, noisy: torch.Tensor, classes: int = 10) -> bool:
    """Chi-square over the wrong classes of each true class, all tables summed."""
    statistic, freedom = 0.0, 0
    for label in range(classes):
        wrong = noisy[(clean == label) & (noisy != label)]
        counts = np.delete(np.bincount(wrong.numpy(), minlength=classes), label)
        statistic += stats.chisquare(counts).statistic
        freedom += classes - 2
    return stats.chi2.sf(statistic, freedom) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_laws_of_every_kind(kind, clean, seeded):
    before = clean.clone()
    first, again, other = (KINDS[kind](clean, RATE, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(clean, before)
    assert first.labels.data_ptr() != clean.data_ptr()
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.labels, other.labels)
    assert torch.equal(first.changed, first.labels != clean)
    assert first.labels.dtype == clean.dtype
    assert first.labels.min() >= 0
    assert first.labels.max() < 10


@pytest.mark.parametrize("kind", KINDS)
def test_rate_zero_changes_nothing_and_rate_one_everything_it_can(kind, clean, seeded):
    assert not KINDS[kind](clean, 0.0, seeded()).changed.any()
    can = torch.isin(clean, torch.tensor(CHANGEABLE.get(kind, range(10))))
    assert torch.equal(KINDS[kind](clean, 1.0, seeded()).changed, can)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"projection", "margin"}))
def test_rate_is_within_binomial_bounds(kind, clean, seeded):
    can = torch.isin(clean, torch.tensor(CHANGEABLE.get(kind, range(10))))
    changed = KINDS[kind](clean, RATE, seeded()).changed
    assert not changed[~can].any()
    assert within_binomial(int(changed.sum()), int(can.sum()), RATE)
    for label in clean[can].unique():
        of_class = clean == label
        assert within_binomial(int(changed[of_class].sum()), int(of_class.sum()), RATE)


@pytest.mark.parametrize("rate", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("exact", [False, True])
def test_symmetric_wrong_classes_are_uniform(rate, exact, clean, seeded):
    noisy = noise.flip_symmetric(clean, rate, 10, generator=seeded(), exact=exact).labels
    assert wrong_classes_are_uniform(clean, noisy)


def test_the_chi_square_law_rejects_a_biased_and_a_self_mapping_flip(clean, seeded):
    """Drawing from all classes halves nobody's rate but the binomial law sees it; a bias is seen by chi-square."""
    chosen = torch.rand(len(clean), generator=seeded()) < RATE
    any_class = torch.where(chosen, torch.randint(10, clean.shape, generator=seeded(1)), clean)
    assert not within_binomial(int((any_class != clean).sum()), len(clean), RATE)
    steps = 1 + (torch.rand(len(clean), generator=seeded(2)) ** 1.3 * 9).long()
    biased = torch.where(chosen, (clean + steps) % 10, clean)
    assert not wrong_classes_are_uniform(clean, biased)


@pytest.mark.parametrize("rate", [0.0, 0.123, 0.5, 1.0])
def test_exact_fraction_is_exact(rate, clean, seeded):
    changed = noise.flip_symmetric(clean, rate, 10, generator=seeded(), exact=True).changed
    assert int(changed.sum()) == round(rate * len(clean))
    changed = noise.flip_within_groups(clean, rate, GROUPS, generator=seeded(), exact=True).changed
    assert int(changed.sum()) == round(rate * int((clean != 9).sum()))
    # Classes 1 and 3 alone can change: 2 maps to itself.
    changed = noise.flip_by_mapping(clean, rate, {1: 7, 2: 2, 3: 1}, 10, generator=seeded(), exact=True).changed
    assert int(changed.sum()) == round(rate * int(((clean == 1) | (clean == 3)).sum()))


def test_an_exact_share_is_rounded_not_cut_off(seeded):
    """0.29 * 100 is 28.999999999999996 in binary."""
    labels = torch.arange(100) % 10
    assert int(noise.flip_symmetric(labels, 0.29, 10, generator=seeded(), exact=True).changed.sum()) == 29


def test_within_groups_stays_inside_and_is_uniform(seeded):
    """CIFAR-100 as in GR's Appendix D: to one of the other four of the coarse class."""
    coarse = torch.tensor(noise.CIFAR100_COARSE)
    clean = torch.arange(100).repeat(400)
    noisy, changed = noise.flip_within_groups(clean, 0.2, noise.CIFAR100_COARSE, generator=seeded())
    assert torch.equal(coarse[noisy], coarse[clean])
    assert within_binomial(int(changed.sum()), len(clean), 0.2)
    transition = noise.measured_transition(clean[changed], noisy[changed], 100)
    kin = (coarse[:, None] == coarse[None, :]) & ~torch.eye(100, dtype=torch.bool)
    assert bool((transition[kin] > 0).all())
    counts = np.stack([np.bincount(noisy[changed & (clean == c)].numpy(), minlength=100)[kin[c]] for c in range(100)])
    assert stats.chi2.sf(sum(stats.chisquare(row).statistic for row in counts), 300) > 1e-4


def test_within_groups_accepts_any_numbering_of_the_groups(clean, seeded):
    one = noise.flip_within_groups(clean, RATE, GROUPS, generator=seeded())
    renamed = torch.tensor([7, 7, 7, 20, 20, 20, 20, 31, 31, 90])
    assert torch.equal(one.labels, noise.flip_within_groups(clean, RATE, renamed, generator=seeded()).labels)


def test_mapping_and_pairwise_go_only_where_they_point(clean, seeded):
    noisy, changed = noise.flip_by_mapping(clean, RATE, noise.CIFAR10_LOOKALIKES, 10, generator=seeded())
    assert {(int(a), int(b)) for a, b in zip(clean[changed], noisy[changed], strict=True)} == set(
        noise.CIFAR10_LOOKALIKES.items()
    )
    noisy, changed = noise.flip_pairwise(clean, RATE, 10, generator=seeded())
    assert torch.equal(noisy[changed], (clean[changed] + 1) % 10)


def test_matrix_reproduces_its_rows_and_never_draws_a_zero(seeded):
    transition = torch.tensor(
        [[0.0, 0.5, 0.5, 0.0], [0.0, 1.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4], [0.7, 0.0, 0.3, 0.0]], dtype=torch.float64
    )
    clean = torch.arange(4).repeat_interleave(20_000)
    noisy, changed = noise.flip_by_matrix(clean, transition, generator=seeded())
    counts = noise.measured_transition(clean, noisy, 4) * 20_000
    assert bool((counts[transition == 0] == 0).all())
    for row, expected in zip(counts, transition, strict=True):
        seen = expected > 0
        statistic = stats.chisquare(row[seen].numpy(), (expected * 20_000)[seen].numpy()).statistic
        assert stats.chi2.sf(statistic, max(1, int(seen.sum()) - 1)) > 1e-4
    assert torch.equal(changed, noisy != clean)


def test_rows_may_miss_one_by_the_rounding_of_half_precision_alone(seeded):
    labels, rounded = torch.arange(3), torch.full((3, 3), 1 / 3).half()
    noise.flip_by_matrix(labels, rounded.float(), generator=seeded())
    wrong = torch.eye(3) + torch.tensor([0.0, 0.01, 0.0]).diag()
    with pytest.raises(ValueError, match=r"transition must have rows that sum to 1; row 1 sums to 1\.01"):
        noise.flip_by_matrix(labels, wrong, generator=seeded())


def test_matrix_draw_equals_a_loop_over_cumulative_rows():
    from hardsight.noise.classes import draw_from_rows

    g = torch.Generator().manual_seed(5)
    weights = torch.rand(7, 5, generator=g, dtype=torch.float64)
    weights[torch.rand(7, 5, generator=g) < 0.3] = 0
    weights[:, 2] += 0.1
    rows = torch.randint(7, (500,), generator=g)
    uniform = torch.rand(500, generator=g, dtype=torch.float64)
    # The two ends of the interval, where rounding would step into a neighbour's row.
    uniform[:2] = torch.tensor([0.0, 1 - 2**-53])
    expected = []
    for row, u in zip(rows.tolist(), uniform.tolist(), strict=True):
        shares = weights[row] / weights[row].sum()
        total, drawn = 0.0, None
        for label, share in enumerate(shares.tolist()):
            total += share
            if share > 0:
                drawn = label
                if u < total:
                    break
        expected.append(drawn)
    assert draw_from_rows(weights, rows, uniform).tolist() == expected


def test_human_labels_are_the_column(clean, seeded):
    answers = (clean + (torch.arange(len(clean)) % 5 == 0)) % 10
    noisy, changed = noise.human_labels(clean, answers, 10)
    assert torch.equal(noisy, answers)
    assert torch.equal(changed, torch.arange(len(clean)) % 5 == 0)
    columns = torch.stack([clean, answers, answers], 1)
    drawn = noise.human_labels(clean, columns, 10, generator=seeded())
    assert within_binomial(int(drawn.changed.sum()), int(changed.sum()), 2 / 3)


def test_measured_transition_equals_a_loop(clean, seeded):
    noisy = noise.flip_symmetric(clean, RATE, 10, generator=seeded()).labels
    expected = torch.zeros(11, 11, dtype=torch.float64)
    for a, b in zip(clean.tolist(), noisy.tolist(), strict=True):
        expected[a, b] += 1
    expected /= expected.sum(1, keepdim=True).clamp_min(1)
    torch.testing.assert_close(noise.measured_transition(clean, noisy, 11), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_small_label_types_keep_their_type_and_do_not_overflow(dtype, seeded):
    labels = torch.arange(200).repeat(50).to(dtype)
    noisy = noise.flip_symmetric(labels, 1.0, 200, generator=seeded())
    assert noisy.labels.dtype == dtype
    assert bool(noisy.changed.all())
    assert int(noisy.labels.max()) < 200


@pytest.mark.parametrize("kind", KINDS)
def test_no_labels_give_no_labels(kind, seeded):
    assert len(KINDS[kind](torch.empty(0, dtype=torch.long), RATE, seeded()).labels) == 0


def test_two_classes_swap(seeded):
    labels = torch.tensor([0, 1, 1, 0])
    assert torch.equal(noise.flip_symmetric(labels, 1.0, 2, generator=seeded()).labels, 1 - labels)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda labels, g: noise.flip_symmetric(labels, 1.2, 10, generator=g), r"rate must lie in \[0, 1\].*1\.2"),
        (lambda labels, g: noise.flip_pairwise(labels, float("nan"), 10, generator=g), "rate must lie"),
        (lambda labels, g: noise.flip_symmetric(labels, 0.1, 1, generator=g), "num_classes must be at least 2.*1"),
        (lambda labels, g: noise.flip_symmetric(labels, 0.1, 9, generator=g), r"labels must lie in \[0, 9\).* = 9"),
        (lambda labels, g: noise.flip_symmetric(labels - 1, 0.1, 10, generator=g), "labels must lie.*-1"),
        (lambda labels, g: noise.flip_within_groups(labels, 0.1, [0, 1], generator=g), "labels must lie"),
        (lambda labels, g: noise.flip_by_mapping(labels, 0.1, {1: 12}, 10, generator=g), "mapping must.*1 -> 12"),
        (
            lambda labels, g: noise.flip_by_matrix(labels, MATRIX * 1.1, generator=g),
            r"rows that sum to 1; row \d.*1\.1",
        ),
        (lambda labels, g: noise.flip_by_matrix(labels, MATRIX - 0.1, generator=g), "none negative"),
        (lambda labels, g: noise.flip_by_matrix(labels, MATRIX * torch.nan, generator=g), "none negative or NaN"),
        (
            lambda labels, g: noise.human_labels(labels, labels[:5].repeat(3), 10),
            "annotations must have one row for each label; got 15 rows for 10",
        ),
        (lambda labels, g: noise.human_labels(labels, labels[:, None].repeat(1, 3), 10), "generator must be given"),
    ],
)
def test_refusals_are_one_sentence(call, sentence, seeded):
    with pytest.raises(ValueError, match=sentence) as refused:
        call(torch.arange(10), seeded())
    assert "\n" not in str(refused.value)


def test_labels_that_are_no_numbers_are_refused(seeded):
    with pytest.raises(TypeError):
        noise.flip_symmetric(torch.zeros(3), 0.1, 2, generator=seeded())


@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_are_no_tensor_are_refused_by_name(kind, seeded, monkeypatch):
    # The annotations, which only the tests enforce, would refuse it first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for labels in (np.arange(10), list(range(10))):
        with pytest.raises(TypeError, match=rf"^labels must be a torch\.Tensor; got {type(labels).__name__}$"):
            KINDS[kind](labels, RATE, seeded())
    with pytest.raises(TypeError, match=r"^generator must be a torch\.Generator; got int$"):
        KINDS[kind](torch.arange(10), RATE, 0)


def test_other_arguments_that_are_no_tensor_are_refused_by_name(seeded, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    labels, given = torch.arange(10), np.arange(10)
    calls = {
        "transition": lambda: noise.flip_by_matrix(labels, MATRIX.numpy(), generator=seeded()),
        "annotations": lambda: noise.human_labels(labels, given, 10),
        "labels": lambda: noise.measured_transition(given, labels, 10),
        "noisy": lambda: noise.measured_transition(labels, given, 10),
        "features": lambda: noise.flip_by_projection(labels, np.ones((10, 2)), 0.1, 10, generator=seeded()),
        "probabilities": lambda: noise.flip_by_margin(labels, np.full((10, 10), 0.1), 0.1, generator=seeded()),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"^{name} must be a torch\.Tensor; got ndarray$"):
            call()


@pytest.mark.gpu
def test_on_a_gpu_the_laws_hold_too(clean):
    on_device = clean.cuda()
    for kind in KINDS.values():
        noisy, changed = kind(on_device, RATE, torch.Generator("cuda").manual_seed(0))
        assert noisy.is_cuda
        assert torch.equal(changed, noisy != on_device)
    with pytest.raises(ValueError, match="generator must be on the data's device"):
        noise.flip_symmetric(on_device, RATE, 10, generator=torch.Generator())


@pytest.mark.data
def test_cifar100_coarse_classes_are_those_of_the_files(data_root):
    records = np.fromfile(data_root / "cifar-100-binary" / "test.bin", dtype=np.uint8).reshape(-1, 3074)
    assert all(noise.CIFAR100_COARSE[fine] == coarse for coarse, fine in records[:, :2].tolist())


@pytest.mark.data
def test_cifar10n_columns_have_the_published_noise(data_root):
    answers = np.load(data_root / "cifar-10-batches-bin" / "CIFAR-10_human.npz")
    clean = torch.from_numpy(answers["clean_label"]).long()
    for column, rate in {"aggre_label": 0.0901, "random_label1": 0.1723, "worse_label": 0.4021}.items():
        changed = noise.human_labels(clean, torch.from_numpy(answers[column]).long(), 10).changed
        assert float(changed.double().mean()) == pytest.approx(rate, abs=6e-5)


@pytest.mark.parametrize(("dtype", "classes"), [(torch.uint8, 257), (torch.int8, 129), (torch.int16, 40_000)])
def test_labels_in_a_type_too_narrow_for_the_classes_are_refused(dtype, classes):
    # Class 256 would come out as 0 of uint8, class 128 as -128 of int8.
    labels, generator = torch.full((50,), 100, dtype=dtype), torch.Generator().manual_seed(0)
    for flip in (noise.flip_symmetric, noise.flip_pairwise):
        with pytest.raises(ValueError, match=rf"labels must be of a type that can hold {classes} classes; got {dtype}"):
            flip(labels, 1.0, classes, generator=generator)
    noisy = noise.flip_symmetric(labels, 1.0, min(classes - 1, 3000), generator=generator)
    assert noisy.labels.min() >= 0
    assert bool(noisy.changed.all())
