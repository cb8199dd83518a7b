"""AlexNet (Krizhevsky, 2014: one column), under the parameter names of torchvision."""

from torch import nn

from hardsight.models.classifier import Head, StackedClassifier
from hardsight.models.layers import check_stem, hidden_dropout


class AlexNet(StackedClassifier):
    """Five convolutions; with the large stem two layers of 4096 units follow, the second giving the features.

    With the small stem, for 32x32 images, the 256 maps of the last convolution, each pooled to one pixel, are the
    features. PyTorch's own initialisation, as in torchvision.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_channels: int = 3,
        head: Head = nn.Linear,
        *,
        stem: str = "large",
        dropout: float | None = None,
    ) -> None:
        super().__init__()
        check_stem(stem)
        small = stem == "small"
        dropout = hidden_dropout(dropout, small)
        size = 32 if small else 224
        self.input_shape = (in_channels, size, size)
        self.feature_dim = 256 if small else 4096
        pool = (2, 2) if small else (3, 2)
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 64, 11, stride=4, padding=5 if small else 2),
            nn.ReLU(),
            nn.MaxPool2d(*pool),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(*pool),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(*pool),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1 if small else 6)
        hidden: list[nn.Module] = [
            nn.Dropout(dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(),
        ]
        self.classifier = nn.Sequential(*([] if small else hidden), head(self.feature_dim, num_classes))
