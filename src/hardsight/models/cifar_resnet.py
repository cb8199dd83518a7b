"""The residual networks of He et al. (2016) for CIFAR: 20, 32, 44 and 56 layers, shortcuts without parameters."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from hardsight.models.classifier import Classifier, Head
from hardsight.models.layers import initialize_he

DEPTHS = (20, 32, 44, 56)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions added to their input.

    Where the size halves, option A: every second pixel of the input, padded with channels of zeros on both sides.
    """

    def __init__(self, incoming: int, outgoing: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(incoming, outgoing, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outgoing)
        self.conv2 = nn.Conv2d(outgoing, outgoing, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outgoing)
        self.stride = stride
        self.padding = (outgoing - incoming) // 2

    def forward(self, inputs: Float[Tensor, "batch a height width"]) -> Float[Tensor, "batch b h w"]:
        outputs = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(inputs)))))
        if self.padding:
            inputs = F.pad(inputs[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(outputs + inputs)


class CifarResNet(Classifier):
    """`depth` = 6n + 2 layers in three groups of 16, 32 and 64 channels, averaged to 64 features.

    `dropout`: the share of features dropped in training (none by He et al.; GR's Table 8 drops 20 %).
    The parameters have the names of the public CIFAR-10 weights (see `load_cifar10_resnet`).
    """

    feature_dim = 64

    def __init__(
        self, depth: int, num_classes: int = 10, in_channels: int = 3, head: Head = nn.Linear, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if depth not in DEPTHS:
            raise ValueError(f"depth must be one of {', '.join(map(str, DEPTHS))}; got {depth!r}")
        blocks = (depth - 2) // 6
        self.input_shape = (in_channels, 32, 32)
        self.conv1 = nn.Conv2d(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _group(16, 16, 1, blocks)
        self.layer2 = _group(16, 32, 2, blocks)
        self.layer3 = _group(32, 64, 2, blocks)
        self.dropout = nn.Dropout(dropout)
        self.linear = head(self.feature_dim, num_classes)
        initialize_he(self, "fan_in")

    def forward_features(
        self, inputs: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch {self.feature_dim}"]:
        """The last block's maps, each averaged; in training after dropout, as the head sees them."""
        maps = F.relu(self.bn1(self.conv1(inputs)))
        return self.dropout(self.layer3(self.layer2(self.layer1(maps))).mean((2, 3)))


def _group(incoming: int, outgoing: int, stride: int, blocks: int) -> nn.Sequential:
    first = BasicBlock(incoming, outgoing, stride)
    return nn.Sequential(first, *(BasicBlock(outgoing, outgoing, 1) for _ in range(blocks - 1)))
