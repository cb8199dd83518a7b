"""How hard is each of your samples, and what should training do about it?"""

from hardsight.geometry import angle_between

__all__ = ["angle_between"]
