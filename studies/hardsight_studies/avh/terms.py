"""The words that the pages of the AVH studies share: each term is defined alike, where a page first uses it."""

AVH = """- **AVH** (angular visual hardness): the last layer of a network holds one weight vector for each class, and
  its input is called the features. AVH is the angle between an image's features and the weights of its label,
  divided by the sum of the angles to all classes. It lies between 0 and 1, and larger is harder. An image equally
  far from all classes has 1 / (number of classes)."""
CONFIDENCE = """- **Confidence**: the softmax probability that the network gives to the image's label. Smaller is
  harder."""
NORM = """- **Norm**: the length of the feature vector."""
ANGLE = """- **Angle**: the last layer of a network holds one weight vector for each class, and its input is called
  the features. The angle is that between an image's features and the weights of its label: 0 if they point the same
  way."""
CLASS_NORM = """- **Norm within class**: the length of the feature vector, scaled to [0, 1] among the images of one
  class."""
HSF = """- **Human selection frequency**: people were asked what an image shows; this is the share of them who chose
  the image's label. A small share is an image that people find hard."""
SPEARMAN = """- **Spearman's ρ**: the correlation of two rankings. It is 1 for the same order, 0 for unrelated orders
  and −1 for the opposite order."""
TURNED = """Every score is turned so that a positive ρ means agreement: the images that people find hard are hard by
the score too."""
# The networks of the studies that hold scores against people's answers.
CELLS = """**How it was made.** The images are the 10,000 test images of CIFAR-10. The human answers are those of
CIFAR-10H, about 50 people for each image. Some networks are public ResNets, used as published. The others are
trained here on the training images, with five seeds each: SGD with momentum 0.9 and weight decay 5e-4, a cosine
schedule, batches of 128, random crops and flips, a learning rate of 0.1 (AlexNet and VGG-19: 0.01), 20 epochs
(DenseNet-121: 10). No network trains on a test image. The preset `cpu` trains only one network, with one seed, for 8
epochs, on a fifth of the images at a quarter of the pixels. Confidence is computed from the loss, because in float32
many confidences are exactly 1 and would tie. The studies of this section share their trained networks: what one
study has computed, the others reuse."""
SCOPE = """The numbers speak for CIFAR-10 and for these networks. They do not speak for ImageNet, which the paper
uses: here the images have 32 x 32 pixels and ten classes, and the networks trained here train for a short time.
People agree on most of these images, so part of their order is chance."""
SPREADS = """An interval says how much a number depends on which images were drawn, and ± how much it depends on the
seed. A public network is one training, without a spread over seeds."""
