"""Laws of the loader: every id once, resumed equals uninterrupted, shards make the one-process batch."""

import math

import pytest
import torch

from hardsight.datasets.augment import Augmentation
from hardsight.datasets.epochs import Batch
from hardsight.datasets.loader import DeviceLoader

FULL = Augmentation(shift=2, flip=True, noise_std=0.1)


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    images = torch.randint(256, (103, 3, 8, 8), generator=g, dtype=torch.uint8)
    return images, torch.randint(7, (103,), generator=g), 1000 + torch.arange(103)


def make(data, batch_size=16, **options) -> DeviceLoader:
    return DeviceLoader(*data, batch_size, **options)


def same(one: Batch, two: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def covers_once(batches: list[Batch], ids: torch.Tensor) -> bool:
    return torch.equal(torch.cat([batch.ids for batch in batches]).sort().values, ids)


@pytest.mark.parametrize("shuffle", [True, False])
def test_each_id_comes_once_an_epoch_with_its_own_image_and_label(data, shuffle):
    images, labels, ids = data
    loader = make(data, shuffle=shuffle)
    batches = list(loader)
    assert len(batches) == len(loader) == 7
    assert covers_once(batches, ids)
    for batch in batches:
        assert torch.equal(batch.labels, labels[batch.ids - 1000])
        torch.testing.assert_close(batch.images, images[batch.ids - 1000].float() / 255)
    order = torch.cat([batch.ids for batch in batches])
    assert torch.equal(order, ids) != shuffle


def test_the_law_of_once_rejects_sampling_with_replacement(data):
    ids = data[2]
    drawn = ids[torch.randint(103, (103,), generator=torch.Generator().manual_seed(1))]
    assert not covers_once([Batch(torch.empty(103, 1, 1, 1), drawn, drawn)], ids)


def test_drop_last_leaves_out_the_short_batch(data):
    loader = make(data, drop_last=True)
    assert [len(batch.ids) for batch in loader] == [16] * len(loader) == [16] * 6


def test_the_same_seed_and_epoch_give_the_same_bits_and_others_do_not(data):
    def order(loader: DeviceLoader) -> torch.Tensor:
        return torch.cat([batch.ids for batch in loader])

    one, two = make(data, seed=5, augmentation=FULL), make(data, seed=5, augmentation=FULL)
    assert all(same(a, b) for a, b in zip(one, two, strict=True))
    second = order(one)
    assert not torch.equal(second, order(make(data, seed=5)))
    assert not torch.equal(second, order(make(data, seed=6)))
    two.set_epoch(1)
    assert torch.equal(second, order(two))


def test_a_loop_over_samples_with_the_plan_gives_the_same_batches(data):
    """The whole path in float64, one sample at a time: order, crop of a padded image, mirror, normalisation."""
    images, labels, ids = data
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    augmentation = Augmentation(shift=2, flip=True)
    loader = make(data, augmentation=augmentation, mean=mean, std=std, seed=3)
    plan = loader.plan(0)
    places = iter(zip(plan.order.tolist(), *(part.tolist() for part in plan.draws), strict=True))
    for batch in loader:
        for image, label, name in zip(*batch, strict=True):
            n, row, column, flip = next(places)
            picture = images[n].flip(2) if flip else images[n]
            padded = torch.nn.functional.pad(picture, (2, 2, 2, 2))
            crop = padded[:, 2 + row : 10 + row, 2 + column : 10 + column].double() / 255
            expected = (crop - torch.tensor(mean).double()[:, None, None]) / torch.tensor(std).double()[:, None, None]
            torch.testing.assert_close(image.double(), expected, rtol=1e-6, atol=1e-6)
            assert (int(label), int(name)) == (int(labels[n]), int(ids[n]))


def test_noise_has_the_asked_deviation_and_is_fresh_in_every_batch(data):
    clean = list(make(data, batch_size=50))
    noisy = list(make(data, batch_size=50, augmentation=Augmentation(noise_std=0.15)))
    noise = [two.images - one.images for one, two in zip(clean, noisy, strict=True)]
    assert float(torch.cat(noise).std()) == pytest.approx(0.15, rel=0.02)
    assert abs(float(torch.cat(noise).mean())) < 0.005
    # Far beyond what rounding leaves of the same noise on other images.
    assert float((noise[0] - noise[1]).abs().mean()) > 0.1


@pytest.mark.parametrize("stop", [0, 1, 3, 6, 7, 9])
@pytest.mark.parametrize("balanced", [None, (4, 4)])
def test_resumed_equals_uninterrupted(data, stop, balanced):
    options = {"augmentation": FULL, "seed": 9, "class_balanced": balanced}
    whole = make(data, **options)
    expected = [batch for _ in range(3) for batch in whole]
    first = make(data, **options)
    passes = (batch for _ in range(3) for batch in first)
    for batch in expected[:stop]:
        assert same(next(passes), batch)
    second = make(data, **(options | {"seed": 0}))
    second.load_state_dict(first.state_dict())
    rest = [batch for _ in range(3) for batch in second][: len(expected) - stop]
    assert len(rest) == len(expected) - stop
    assert all(same(a, b) for a, b in zip(rest, expected[stop:], strict=True))


def test_the_resuming_law_rejects_a_loader_that_starts_its_epoch_again(data):
    first = make(data, seed=9)
    batches = list(first)
    again = make(data, seed=9)
    assert not same(next(iter(again)), batches[3])


def test_a_pass_left_early_is_followed_by_a_new_epoch(data):
    loader = make(data, shuffle=False)
    next(iter(loader))
    assert loader.state_dict()["batches"] == 1
    assert next(iter(loader)).ids[0] == 1000
    assert loader.epoch == 1


def test_a_saved_position_of_another_loader_is_refused(data):
    state = make(data).state_dict()
    with pytest.raises(ValueError, match="batch_size must be that of the saved position, 16; got 8"):
        make(data, batch_size=8).load_state_dict(state)


@pytest.mark.parametrize("world_size", [2, 3, 5, 16])
@pytest.mark.parametrize("balanced", [None, (4, 4)])
def test_shards_are_disjoint_and_make_the_batch_of_one_process(data, world_size, balanced):
    """Also where 103 samples in batches of 16 over 3 or 5 processes come out uneven."""
    options = {"augmentation": FULL, "seed": 4, "class_balanced": balanced}
    single = list(make(data, **options))
    shards = [list(make(data, rank=rank, world_size=world_size, **options)) for rank in range(world_size)]
    assert {len(shard) for shard in shards} == {len(single)}
    for index, whole in enumerate(single):
        parts = [shard[index] for shard in shards]
        sizes = [len(part.ids) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert same(Batch(*(torch.cat(columns) for columns in zip(*parts, strict=True))), whole)


def test_a_position_can_be_continued_by_another_number_of_processes(data):
    single = make(data, augmentation=FULL)
    batches = list(single)
    single.set_epoch(0)
    passing = iter(single)
    next(passing), next(passing)
    shards = [make(data, augmentation=FULL, rank=rank, world_size=2) for rank in range(2)]
    for shard in shards:
        shard.load_state_dict(single.state_dict())
    parts = [next(iter(shard)) for shard in shards]
    assert same(Batch(*(torch.cat(columns) for columns in zip(*parts, strict=True))), batches[2])


def test_class_balanced_batches_have_the_asked_counts_by_the_current_labels(data):
    labels = data[1]
    loader = make(data, batch_size=12, class_balanced=(4, 3))
    noisy = (labels * 3 + 1) % 7
    loader.set_labels(noisy)
    assert len(loader) == 103 // 12
    for batch in loader:
        assert torch.equal(batch.labels, noisy[batch.ids - 1000])
        assert sorted(torch.bincount(batch.labels, minlength=7).tolist()) == [0, 0, 0, 3, 3, 3, 3]
        assert len(batch.ids.unique()) == 12


def test_labels_are_swapped_and_the_callers_are_never_shared(data):
    labels = data[1]
    loader = make(data)
    noisy = (labels + 1) % 7
    loader.set_labels(noisy)
    noisy.zero_()
    assert all(torch.equal(batch.labels, (labels[batch.ids - 1000] + 1) % 7) for batch in loader)


def test_the_set_is_held_once(data):
    """No second copy of the images: the loader's are the caller's, where they lie on its device already."""
    assert make(data).images.data_ptr() == data[0].data_ptr()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_types_and_memory_formats(data, dtype):
    batch = next(iter(make(data, dtype=dtype, channels_last=True, augmentation=FULL)))
    full = next(iter(make(data, augmentation=FULL)))
    assert batch.images.dtype == dtype
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(batch.images.float(), full.images, rtol=2e-2, atol=2e-2)


def test_fewer_samples_than_a_batch_make_one_batch():
    images = torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
    batches = list(DeviceLoader(images, torch.arange(3), None, 8, shuffle=False))
    assert [batch.ids.tolist() for batch in batches] == [[0, 1, 2]]
    shards = [DeviceLoader(images, torch.arange(3), None, 8, rank=r, world_size=8) for r in range(8)]
    assert sorted(i for shard in shards for batch in shard for i in batch.ids.tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"batch_size": 0}, "batch_size must be at least one sample a process"),
        ({"batch_size": 2, "world_size": 3}, "batch_size must be at least one sample a process, 3; got 2"),
        ({"rank": 2, "world_size": 2}, r"rank must lie in \[0, world_size\)"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"class_balanced": (4, 3)}, "class_balanced must be .*16"),
        ({"class_balanced": (8, 2)}, "as many classes as the labels have, 7; got 8"),
        ({"batch_size": 200, "drop_last": True}, "batch_size must be at most 103 samples"),
        ({"mean": (0.5,)}, "mean must be finite, one number for each of 3 channels; got .0.5."),
        ({"std": (0.2, 0.0, 0.2)}, "std must be finite, above 0"),
        ({"std": (0.2, math.inf, 0.2)}, "std must be finite, above 0"),
        ({"std": (0.2, math.nan, 0.2)}, "std must be finite, above 0"),
        ({"mean": (0.2, math.nan, 0.2)}, "mean must be finite"),
        ({"augmentation": Augmentation(shift=8, fill="reflect")}, "shift must be at most 7"),
    ],
)
def test_refusals(data, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(data, **options)


def test_sets_of_the_wrong_shape_are_refused(data):
    images, labels, ids = data
    with pytest.raises(TypeError, match="images must be uint8"):
        DeviceLoader(images.float(), labels, ids)
    with pytest.raises(ValueError, match="labels must be one an image, 103"):
        DeviceLoader(images, labels[:5], ids)
    with pytest.raises(ValueError, match="ids must be one an image, 103"):
        DeviceLoader(images, labels, ids[:5])
    with pytest.raises(ValueError, match="at least one image"):
        DeviceLoader(images[:0], labels[:0])
    with pytest.raises(ValueError, match="labels must be one an image"):
        make(data).set_labels(labels[:5])


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode:UserWarning")
def test_a_gpu_makes_the_same_batches_without_waiting(data):
    augmentation = Augmentation(shift=2, flip=True)
    on_cpu = list(make(data, augmentation=augmentation, mean=(0.4,) * 3, std=(0.2,) * 3))
    loader = make(data, augmentation=augmentation, mean=(0.4,) * 3, std=(0.2,) * 3, device="cuda")
    noisy = make(data, augmentation=FULL, class_balanced=(4, 4), dtype=torch.bfloat16, device="cuda")
    plan, noisy_plan = loader.plan(0), noisy.plan(0)
    try:
        torch.cuda.set_sync_debug_mode("error")
        on_gpu = [loader.batch(plan, index) for index in range(len(loader))]
        assert all(noisy.batch(noisy_plan, index).images.is_cuda for index in range(len(noisy)))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for one, two in zip(on_cpu, on_gpu, strict=True):
        assert torch.equal(one.ids, two.ids.cpu())
        torch.testing.assert_close(one.images, two.images.cpu())
