"""The plain networks of the AVH paper's domain generalization (its Appendix F): no shortcuts, no branches."""

from jaxtyping import Float
from torch import Tensor, nn

from hardsight.models.classifier import Classifier, Head
from hardsight.models.layers import initialize_he, normalized_convolution


class PlainCNN(Classifier):
    """Three groups of three 3x3 convolutions (64, 128, 256 channels), each pooled, then 512 fully connected features.

    With `stem`, a 7x7 convolution of 64 channels and a pooling come first: the ten convolutions of CNN-10. Without,
    the nine of CNN-9. Batch normalization and ReLU follow every convolution. The features are normalized but not
    rectified, and the weights are He's, as in the public code of Liu et al. (2017), whose network this resembles.
    The appendix prints no stride for the 7x7 convolution: it is 1 unless `stem_stride` says otherwise.
    """

    feature_dim = 512

    def __init__(
        self,
        num_classes: int,
        in_channels: int = 3,
        head: Head = nn.Linear,
        *,
        image_size: int,
        stem: bool,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        self.input_shape = (in_channels, image_size, image_size)
        layers: list[nn.Module] = []
        size, channels = image_size, in_channels
        if stem:
            layers += [*normalized_convolution(in_channels, 64, 7, stride=stem_stride), nn.MaxPool2d(2)]
            size, channels = -(-image_size // stem_stride) // 2, 64
        for width in (64, 128, 256):
            for _ in range(3):
                layers += normalized_convolution(channels, width, 3)
                channels = width
            layers.append(nn.MaxPool2d(2))
            size //= 2
        if size < 1:
            raise ValueError(f"image_size must leave a pixel after the poolings; got {image_size}")
        self.convolutions = nn.Sequential(*layers)
        connected = nn.Linear(channels * size * size, self.feature_dim, bias=False)
        self.embedding = nn.Sequential(connected, nn.BatchNorm1d(self.feature_dim))
        self.linear = head(self.feature_dim, num_classes)
        initialize_he(self, "fan_in")
        nn.init.kaiming_normal_(connected.weight, nonlinearity="relu")

    def forward_features(
        self, inputs: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        """The normalized output of the fully connected layer. Images must have the size given at construction."""
        return self.embedding(self.convolutions(inputs).flatten(1))


def cnn9(num_classes: int = 7, in_channels: int = 3, head: Head = nn.Linear, *, image_size: int = 32) -> PlainCNN:
    """Nine 3x3 convolutions.

    The AVH slides print the paper's CNN-10 baseline, to the hundredth, under the name CNN-9: for those rows use
    `cnn10`. This one is the same network without its 7x7 layer, for small images.
    """
    return PlainCNN(num_classes, in_channels, head, image_size=image_size, stem=False)


def cnn10(
    num_classes: int = 7,
    in_channels: int = 3,
    head: Head = nn.Linear,
    *,
    image_size: int = 224,
    stem_stride: int = 1,
) -> PlainCNN:
    """The network of Appendix F: one 7x7 and nine 3x3 convolutions, 512 features."""
    return PlainCNN(num_classes, in_channels, head, image_size=image_size, stem=True, stem_stride=stem_stride)
