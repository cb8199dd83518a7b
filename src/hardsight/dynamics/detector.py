"""Wrong labels by the course of training: a learned detector, and an estimate of their share.

The detector is an LSTM that reads a sample's curve (Jia et al., "Learning from Training Dynamics: Identifying
Mislabeled Data Beyond Manually Designed Features", 2023): two layers of 64 units over the probability of the given
label in each epoch, trained on a run whose wrong labels are known because they were made, then used on other runs as
it is. The optimizer is the authors' (AdamW, batches of 64, 10 epochs) but for its rate: 0.1 there, 0.01 falling to 0
here.

The estimate needs no clean label. A network learns what most samples of a class share before it memorises single
labels. So where it is surest early in training it is nearly always right, and labels that contradict it there are
wrong. The idea is that of anchor points (Liu & Tao 2016; Patrini et al. 2017): for the surest samples of a class, the
given label is that class with probability 1 - rate.
"""

import math
from pathlib import Path

import safetensors.torch
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from hardsight.dynamics.history import PHASES, History
from hardsight.files.arrays import load_tensors
from hardsight.hardness.dynamics import without_gaps
from hardsight.records import atomic_path

# Far above those of every training and detector.
_MOST_POINTS, _MOST_LAYERS = 1_000_000, 16
# Of the samples predicted as a class, the share that is used: fewer are surer, but their count is noisier.
SUREST = 0.1


class NoiseDetector(nn.Module):
    """Log-odds that a label is wrong, from curves [samples, epochs] of its probability.

    A run of another length is stretched to the number of `points` that the detector was trained with: the state that
    it has learned to read is that after so many.
    """

    points: Tensor

    def __init__(self, points: int, hidden: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.register_buffer("points", torch.tensor(points))
        self.recurrent = nn.LSTM(1, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, curves: Float[Tensor, "samples epochs"]) -> Float[Tensor, "samples"]:
        """The head's output for the state after the last point."""
        stretched = nn.functional.interpolate(curves.unsqueeze(1), int(self.points), mode="linear", align_corners=True)
        states, _ = self.recurrent(stretched.transpose(1, 2))
        answer: Tensor = self.head(states[:, -1])
        return answer.squeeze(1)

    def save(self, path: Path | str) -> None:
        """Write the weights as safetensors."""
        with atomic_path(path) as temporary:
            safetensors.torch.save_file(
                {name: part.contiguous() for name, part in self.state_dict().items()}, temporary
            )

    @classmethod
    def load(cls, path: Path | str) -> "NoiseDetector":
        """Load a detector that `save` wrote, of any size."""
        try:
            state = load_tensors(path)
            layers = sum(name.startswith("recurrent.weight_hh") for name in state)
            points, hidden = int(state["points"]), state["head.weight"].shape[1]
            if not (1 <= points <= _MOST_POINTS and 1 <= layers <= _MOST_LAYERS):
                raise ValueError(f"it has {points} points and {layers} layers")
            with torch.device("meta"):
                # Without memory: a damaged file may name any size, and its tensors are there already.
                detector = cls(points, hidden, layers)
            detector.load_state_dict(state, assign=True)
        except (ValueError, KeyError, IndexError, RuntimeError) as problem:
            reason = str(problem).splitlines()[0]
            raise ValueError(f"{path} must be a detector that `save` wrote: {reason}") from None
        return detector.float().eval()


def confidence_curves(history: Path | str) -> Float[Tensor, "samples epochs"]:
    """Each sample's probability of its label over the epochs of a recorder's history; NaN where it was not shown."""
    folder = History(history)
    layout, epochs = folder.layout(), folder.count(PHASES[0])
    if "confidence" not in layout.measures:
        raise ValueError(f"history must hold the confidence of every epoch; it holds {', '.join(layout.measures)}")
    curves = torch.full((layout.num_samples, epochs), torch.nan)
    for epoch in range(epochs):
        _, table = folder.read(PHASES[0], epoch, layout)
        seen = table.column("seen").to_numpy() > 0
        values = table.column("confidence").to_numpy()[seen]
        curves[torch.from_numpy(table.column("id").to_numpy()[seen]), epoch] = torch.from_numpy(values)
    return curves


def train_detector(
    curves: Float[Tensor, "samples epochs"],
    wrong: Bool[Tensor, "samples"],
    *,
    generator: torch.Generator,
    epochs: int = 10,
    batch_size: int = 64,
    lr: float = 0.01,
) -> NoiseDetector:
    """A detector fitted to a run whose `wrong` labels are known; the learning rate falls to 0."""
    if curves.shape[1] == 0 or not bool(wrong.any()) or bool(wrong.all()):
        raise ValueError(
            "curves must have at least one epoch, and wrong must mark some samples and leave some; "
            f"got {curves.shape[1]} epochs and {int(wrong.sum())} of {len(wrong)}"
        )
    curves = without_gaps(curves)
    known = ~curves[:, 0].isnan()
    curves, target = curves[known].float(), wrong[known].float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        detector = NoiseDetector(curves.shape[1]).to(curves.device)
    optimizer = torch.optim.AdamW(detector.parameters(), lr=lr)
    steps = epochs * -(-len(curves) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    for _ in range(epochs):
        for rows in torch.randperm(len(curves), generator=generator).to(curves.device).split(batch_size):
            loss = nn.functional.binary_cross_entropy_with_logits(detector(curves[rows]), target[rows])
            optimizer.zero_grad()
            loss.backward()
            # A recurrent net's gradient may explode; then only its direction counts.
            nn.utils.clip_grad_norm_(detector.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return detector.eval()


def lead(logits: Float[Tensor, "samples classes"]) -> Float[Tensor, "samples"]:
    """Log-odds of the most probable class: its logit less the log-sum-exp of the others. Rises with the confidence.

    Unlike the probability itself it does not round to 1, so sure samples keep their order.
    """
    wide = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    top = wide.argmax(1, keepdim=True)
    return (wide.gather(1, top) - wide.scatter(1, top, -math.inf).logsumexp(1, keepdim=True)).squeeze(1)


def noise_rate(
    predicted: Integer[Tensor, "samples"],
    confidence: Float[Tensor, "samples"],
    labels: Integer[Tensor, "samples"],
    *,
    surest: float = SUREST,
) -> float:
    """Estimated share of wrong labels, in [0, 1]: labels unlike the prediction among the surest samples of each class.

    `confidence` may be anything that rises with the probability of the predicted class, such as `lead`. Classes count
    by how often they are predicted; equally sure samples at the edge count in equal parts, so their order does not
    matter. Samples with a negative label are left out. Too high where the network is not yet right about its surest
    samples, too low once it memorises, and too low where people err on hard samples more often than on easy ones.
    """
    if not 0 < surest <= 1:
        raise ValueError(f"surest must lie in (0, 1], the share of samples that is used; got {surest!r}")
    lengths = [len(predicted), len(confidence), len(labels)]
    if len(set(lengths)) > 1 or not bool((labels >= 0).any()):
        raise ValueError(
            f"predicted, confidence and labels must be of one length, labels of 0 or more among them; got {lengths}"
        )
    predicted, labels = predicted.long(), labels.long()
    known = labels >= 0
    predicted, confidence, labels = predicted[known], confidence[known], labels[known]
    if bool(confidence.isnan().any()):
        raise ValueError("confidence must be a number for every sample; got NaN")
    order = predicted.argsort(stable=True)
    contradicts = (labels != predicted)[order].double()
    sizes = [size for size in predicted.bincount().tolist() if size]
    estimate = 0.0
    for sure, wrong in zip(confidence[order].split(sizes), contradicts.split(sizes), strict=True):
        count = math.ceil(surest * len(sure))
        edge = sure.topk(count).values[-1]
        above, at = sure > edge, sure == edge
        places_left = count - int(above.sum())
        estimate += (float(wrong[above].sum()) + places_left * float(wrong[at].mean())) / count * len(sure)
    return estimate / len(labels)
