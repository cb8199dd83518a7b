"""The networks of the AMC-Loss paper (its Table 2) and of AVH's domain generalization (its Appendix F).

AMC's follow Laine & Aila's 13-layer network. What the table leaves open is settled by the authors' public code: batch
normalization between the convolution and the leaky ReLU, Glorot-uniform weights, no biases but the head's. (Their
training script has a smaller network than the table: 64, 128 and 256 channels and a single 1x1 convolution. Here the
table counts.) AVH's are plain: no shortcuts, no branches.
"""

from torch import nn

from hardsight.models.classifier import (
    AveragingClassifier,
    Classifier,
    EmbeddingClassifier,
    GaussianNoise,
    Head,
    convolutions,
    initialize_he,
)

_LEAK = 0.1


class CNN13(AveragingClassifier):
    """Nine convolutions for 32x32 images, averaged to 128 features: 3,121,802 parameters at 10 classes.

    Gaussian noise of standard deviation `noise` is added to the images in training, so they must be scaled to a
    comparable range.
    """

    feature_dim = 128

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        head: Head = nn.Linear,
        *,
        noise: float = 0.15,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.input_shape = (in_channels, 32, 32)
        self.convolutions = convolutions(
            in_channels,
            GaussianNoise(noise),
            *(128, 128, 128, nn.MaxPool2d(2), nn.Dropout(dropout)),
            *(256, 256, 256, nn.MaxPool2d(2), nn.Dropout(dropout)),
            *((512, 3, 0), (256, 1, 0), (self.feature_dim, 1, 0)),
            leak=_LEAK,
        )
        self.linear = head(self.feature_dim, num_classes)
        _initialize_glorot(self)


class CNN28(AveragingClassifier):
    """Five convolutions for 28x28 images, averaged to `feature_dim` features (the paper: 2, 3 or 128).

    The table's last convolution has 64 channels, yet 2, 3 or 128 features enter the head: a further 1x1 convolution
    is meant. Here it is linear, without normalization and ReLU, so that few features may still point anywhere.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 1,
        head: Head = nn.Linear,
        *,
        feature_dim: int = 128,
        noise: float = 0.15,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.feature_dim = feature_dim
        self.input_shape = (in_channels, 28, 28)
        self.convolutions = convolutions(
            in_channels,
            GaussianNoise(noise),
            *(64, nn.MaxPool2d(2), nn.Dropout(dropout)),
            *(64, nn.MaxPool2d(2), nn.Dropout(dropout)),
            *((128, 3, 0), (64, 1, 0)),
            leak=_LEAK,
        ).append(nn.Conv2d(64, feature_dim, 1, bias=False))
        self.linear = head(feature_dim, num_classes)
        _initialize_glorot(self)


def _initialize_glorot(model: Classifier) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.xavier_uniform_(module.weight)
    if isinstance(model.head, nn.Linear):
        nn.init.xavier_uniform_(model.head.weight)
        if model.head.bias is not None:
            nn.init.zeros_(model.head.bias)


class PlainCNN(EmbeddingClassifier):
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
        size = image_size
        plan: list[int | tuple[int, ...] | nn.Module] = []
        if stem:
            plan += [(64, 7, 3, stem_stride), nn.MaxPool2d(2)]
            size = -(-image_size // stem_stride) // 2
        for width in (64, 128, 256):
            plan += [width, width, width, nn.MaxPool2d(2)]
            size //= 2
        if size < 1:
            raise ValueError(f"image_size must leave a pixel after the poolings; got {image_size}")
        self.convolutions = convolutions(in_channels, *plan)
        connected = nn.Linear(256 * size * size, self.feature_dim, bias=False)
        self.embedding = nn.Sequential(connected, nn.BatchNorm1d(self.feature_dim))
        self.linear = head(self.feature_dim, num_classes)
        initialize_he(self, "fan_in")
        nn.init.kaiming_normal_(connected.weight, nonlinearity="relu")


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
