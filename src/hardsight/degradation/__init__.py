"""Image degradations with levels: contrast, uniform noise, blur, brightness, JPEG, occlusion; and attacks.

Every one takes a batch [N, C, H, W], float in [0, 1] or uint8, and a level: one number, or one a sample. It gives
back new images of the same type on the same device. `DEGRADATIONS` names them with the levels they are studied at.
"""

from hardsight.degradation.adversarial import adversarial
from hardsight.degradation.jpeg import jpeg
from hardsight.degradation.pictures import brightness, contrast, gaussian_blur, occlusion, uniform_noise
from hardsight.degradation.registry import DEGRADATIONS, Degradation, degrade

__all__ = [
    "DEGRADATIONS",
    "Degradation",
    "adversarial",
    "brightness",
    "contrast",
    "degrade",
    "gaussian_blur",
    "jpeg",
    "occlusion",
    "uniform_noise",
]
