"""The degradations by name: function, levels from hard to easy, unit, and the level that changes nothing."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hardsight.degradation.jpeg import jpeg
from hardsight.degradation.pictures import Images, Level, brightness, contrast, gaussian_blur, occlusion, uniform_noise
from hardsight.names import check_name


@dataclass(frozen=True)
class Degradation:
    """One way to make an image harder.

    `levels`: those it is studied at, hardest first. `no_change`: the one that gives the image back as it was, None
    where there is none. `random`: whether the function draws, and needs a generator.
    """

    name: str
    function: Callable[..., Tensor]
    levels: tuple[float, ...]
    unit: str
    no_change: float | None
    larger_is_harder: bool
    random: bool
    source: str


_AVH, _OURS = "AVH, Appendix B.1; Geirhos et al. (2018)", "this project's levels"
_HALF = "half-width of the noise; a pixel's range is 1"
_BLUR, _LIGHT = "standard deviation in pixels", "share of the light kept"
_ALL = (
    Degradation("contrast", contrast, (0.1, 0.2, 0.3, 0.6, 1.0), "share of the contrast kept", 1.0, False, False, _AVH),
    Degradation("uniform_noise", uniform_noise, (0.4, 0.3, 0.2, 0.1, 0.0), _HALF, 0.0, True, True, _AVH),
    Degradation("blur", gaussian_blur, (4.0, 2.0, 1.0, 0.5, 0.0), _BLUR, 0.0, True, False, _OURS),
    Degradation("brightness", brightness, (0.1, 0.2, 0.4, 0.7, 1.0), _LIGHT, 1.0, False, False, _OURS),
    Degradation("jpeg", jpeg, (5.0, 10.0, 20.0, 50.0, 95.0), "quality from 1 to 100", None, False, False, _OURS),
    Degradation("occlusion", occlusion, (0.5, 0.3, 0.2, 0.1, 0.0), "share of the area covered", 0.0, True, True, _OURS),
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
