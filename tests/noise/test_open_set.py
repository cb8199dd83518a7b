"""Open-set noise: labels stay, foreign images stand where they should, none is used twice too early."""

import jaxtyping
import pytest
import torch
from scipy import stats

from hardsight import noise


@pytest.fixture
def images() -> torch.Tensor:
    return torch.arange(200, dtype=torch.uint8).reshape(200, 1, 1, 1).expand(200, 3, 8, 8).contiguous()


@pytest.fixture
def outliers() -> torch.Tensor:
    return (200 + torch.arange(30, dtype=torch.uint8)).reshape(30, 1, 1, 1).expand(30, 3, 8, 8).contiguous()


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.6, 1.0])
def test_images_are_replaced_and_labels_stay(rate, exact, images, outliers, seeded):
    labels = torch.arange(200) % 10
    before = images.clone()
    out = noise.replace_images(images, labels, outliers, rate, generator=seeded(), exact=exact)
    assert torch.equal(images, before)
    assert torch.equal(out.labels, labels)
    assert torch.equal(out.changed, out.images[:, 0, 0, 0] >= 200)
    assert torch.equal(out.changed, out.source >= 0)
    for place in range(200):
        expected = outliers[out.source[place]] if out.changed[place] else images[place]
        assert torch.equal(out.images[place], expected)
    count = int(out.changed.sum())
    if exact:
        assert count == round(rate * 200)
    assert stats.binomtest(count, 200, rate).pvalue > 1e-4
    uses = torch.bincount(out.source[out.changed], minlength=30)
    assert int(uses.max() - uses.min()) <= 1


def test_the_same_seed_gives_the_same_images(images, outliers, seeded):
    labels = torch.zeros(200, dtype=torch.long)
    one, two, other = (noise.replace_images(images, labels, outliers, 0.3, generator=seeded(s)) for s in (1, 1, 2))
    assert torch.equal(one.images, two.images)
    assert not torch.equal(one.images, other.images)


def test_background_comes_from_the_corners_only(seeded):
    """An object in the middle leaves no trace; the corners' colours stay within their range."""
    images = torch.full((20, 3, 32, 32), 50, dtype=torch.uint8)
    images[:, :, 8:24, 8:24] = 255
    images[:, :, 24:, 24:] = 90
    background = noise.background_images(images, 100, generator=seeded())
    assert background.shape == (100, 3, 32, 32)
    assert background.dtype == torch.uint8
    assert set(background.unique().tolist()) == {50, 90}


def test_background_equals_a_stretched_corner(seeded):
    images = torch.rand(5, 2, 16, 12, generator=seeded(1))
    background = noise.background_images(images, 40, generator=seeded(2))
    corners = [
        torch.nn.functional.interpolate(image[None, :, rows, columns], size=(16, 12), mode="bilinear")[0]
        for image in images
        for rows in (slice(4), slice(-4, None))
        for columns in (slice(3), slice(-3, None))
    ]
    matched = {next(i for i, corner in enumerate(corners) if torch.allclose(corner, one)) for one in background}
    assert len(matched) > 8


def test_refusals(images, outliers, seeded):
    labels = torch.zeros(200, dtype=torch.long)
    with pytest.raises(ValueError, match="outliers must have the images' shape"):
        noise.replace_images(images, labels, outliers[:, :, :4], 0.1, generator=seeded())
    with pytest.raises(ValueError, match="at least one image"):
        noise.replace_images(images, labels, outliers[:0], 0.5, generator=seeded())
    with pytest.raises(ValueError, match="share must lie"):
        noise.background_images(images, 3, generator=seeded(), share=0.7)
    assert not noise.replace_images(images, labels, outliers[:0], 0.0, generator=seeded()).changed.any()


def test_what_is_no_tensor_is_refused_by_name(images, outliers, seeded, monkeypatch):
    # The annotations, which only the tests enforce, would refuse it first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    good = {"images": images, "labels": torch.zeros(200, dtype=torch.long), "outliers": outliers}
    for name, value in good.items():
        with pytest.raises(TypeError, match=rf"^{name} must be a torch\.Tensor; got ndarray$"):
            noise.replace_images(**(good | {name: value.numpy()}), rate=0.1, generator=seeded())
    with pytest.raises(TypeError, match=r"^images must be a torch\.Tensor; got list$"):
        noise.background_images([[0.0]], 1, generator=seeded())
