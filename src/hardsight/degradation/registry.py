"""The degradations by name: function, levels from hard to easy, unit, and the level that changes nothing."""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from hardsight.degradation.jpeg import jpeg
from hardsight.degradation.pictures import (
    Images,
    Level,
    brightness,
    contrast,
    gaussian_blur,
    occlusion,
    uniform_noise,
)
from hardsight.names import check_name


@dataclasses.dataclass(frozen=True)
class Degradation:
    """One way to make an image harder."""

    name: str
    function: Callable[..., Tensor]
    levels: tuple[float, ...]
    """The levels it is studied at, hardest first."""
    unit: str
    no_change: float | None
    """The level that gives the image back as it was; None where there is none."""
    larger_is_harder: bool
    random: bool
    """Whether the function draws, and needs a generator."""
    source: str


_AVH = "AVH, Appendix B.1; Geirhos et al. (2018)"
_OURS = "this project's levels"
_ALL = (
    Degradation(
        name="contrast",
        function=contrast,
        levels=(0.1, 0.2, 0.3, 0.6, 1.0),
        unit="share of the contrast kept",
        no_change=1.0,
        larger_is_harder=False,
        random=False,
        source=_AVH,
    ),
    Degradation(
        name="uniform_noise",
        function=uniform_noise,
        levels=(0.4, 0.3, 0.2, 0.1, 0.0),
        unit="half-width of the noise; a pixel's range is 1",
        no_change=0.0,
        larger_is_harder=True,
        random=True,
        source=_AVH,
    ),
    Degradation(
        name="blur",
        function=gaussian_blur,
        levels=(4.0, 2.0, 1.0, 0.5, 0.0),
        unit="standard deviation in pixels",
        no_change=0.0,
        larger_is_harder=True,
        random=False,
        source=_OURS,
    ),
    Degradation(
        name="brightness",
        function=brightness,
        levels=(0.1, 0.2, 0.4, 0.7, 1.0),
        unit="share of the light kept",
        no_change=1.0,
        larger_is_harder=False,
        random=False,
        source=_OURS,
    ),
    Degradation(
        name="jpeg",
        function=jpeg,
        levels=(5.0, 10.0, 20.0, 50.0, 95.0),
        unit="quality from 1 to 100",
        no_change=None,
        larger_is_harder=False,
        random=False,
        source=_OURS,
    ),
    Degradation(
        name="occlusion",
        function=occlusion,
        levels=(0.5, 0.3, 0.2, 0.1, 0.0),
        unit="share of the area covered",
        no_change=0.0,
        larger_is_harder=True,
        random=True,
        source=_OURS,
    ),
)

DEGRADATIONS: dict[str, Degradation] = {entry.name: entry for entry in _ALL}


def degrade(images: Images, name: str, level: Level, *, generator: torch.Generator | None = None) -> Images:
    """`DEGRADATIONS[name]` at `level`; the random ones need a generator, the others leave it alone."""
    check_name("name", name, DEGRADATIONS)
    entry = DEGRADATIONS[name]
    if not entry.random:
        return entry.function(images, level)
    if generator is None:
        raise ValueError(f"generator must be given for {name}, which draws; got None")
    return entry.function(images, level, generator=generator)
