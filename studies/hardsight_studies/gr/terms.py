"""The words that the pages of the GR studies share: each term is defined alike, where a page first uses it."""

CCE = """- **CCE**: cross-entropy, the usual loss of a classifier. It pulls hardest on samples whose label the
  network finds improbable, and so on wrong labels too."""
GR = """- **GR** (gradient rescaling), the paper's method: it keeps the direction of each sample's gradient and sets its
  length, the sample's weight, to exp(β p^λ (1 − p)). Here p is the probability that the network gives to the sample's
  label. λ says which samples pull hardest: those with p = λ/(1 + λ). β says how much harder than the rest; with β = 0
  all pull alike. GR (16, 1) stands for β = 16, λ = 1."""
NOISE = """- **Symmetric noise**: each training label is replaced, with the probability that is called the noise, by
  another class drawn at random. The test labels are right."""
BY_HEART = """- **Learnt by heart**: for some training images the network predicts the wrong label that it was given.
  The share of the wrong labels for which it does is the fit of wrong labels. It helps with no new image."""
CLASSES_LEARNT = """- **Classes learnt**: those of which the network recognises more than half of the test images."""
ROBUST = (
    """- **GCE, SL**: two other losses made for wrong labels, generalised cross-entropy and symmetric cross-entropy."""
)
GCE = """- `GCE`: generalised cross-entropy, between CCE and the mean absolute error."""
CORRECTIONS = """- `Forward`, `Backward`: correct the loss by the probabilities with which classes are swapped. Here
  they are told the true ones, which flatters them."""
BOOTSTRAPPING = """- `Boot-hard`, `Boot-soft`: replace a part of the given label by what the network predicts itself,
  its class or its probabilities."""
D2L = """- `D2L`: lets labels give way to predictions once the features' local dimensionality begins to grow."""
SL = """- `SL`: symmetric cross-entropy; adds the cross-entropy with label and prediction swapped."""
# Section 4.1 of the paper.
OPTIMISER = """SGD with momentum 0.9 and weight decay 1e-4, a learning rate of 0.1 that is divided by ten every 5,000
iterations, batches of 128, random crops and flips."""
HOW_LONG = """The paper does not print how long. Here it is 20,000 iterations (51 epochs), after which the rates are too
small to move anything."""
LET_GO = """GR lets go of samples that are fitted, as the authors' code does: it adds 1e-6 to the 2(1 − p) that it
divides by ([why that matters](gr-protocol.md))."""
# Of the tables that are planned as long as is printed.
LENGTH = """The preset `paper` is planned with this schedule. In [gr-table3](gr-table3.md) the paper's result hangs on
training longer, so this table may need longer trainings too."""
