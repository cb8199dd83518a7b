"""Do a classifier's scores follow readers? People's ratings of English texts beside heads that never saw them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from hardsight import fit_head
from hardsight.hardness import class_normalised_norm
from hardsight_studies.avh.watching import Votes, write_people
from hardsight_studies.engine import trainings
from hardsight_studies.language.texts import data_file, docstrings

if TYPE_CHECKING:
    from hardsight_studies.engine.clock import Options
    from hardsight_studies.engine.grid import Run

_SCORES = ("avh", "confidence", "loss", "angular_margin", "margin", "entropy")
# Components of the counts of words.
_COMPONENTS = 256


def compute(runs: Sequence["Run"], preset: str, options: "Options") -> None:
    """Fit the heads of every run, and write what they and people say of each text."""
    table = rated_texts("made" in runs[0].config)
    labels, votes = sides(table.column("ratings"))
    known = labels >= 0
    for run in runs:
        options.clock.check()
        chosen = known.nonzero().squeeze(1)
        features = features_of(run.settings["network"], table.column("text").to_pylist(), chosen)
        own = labels[chosen]
        fitted = fit_head(features, own, num_classes=2, seed=run.seed)
        probabilities = fitted.probabilities().double()
        norm = (features - features.mean(0)).norm(dim=1)
        columns = {
            "id": torch.arange(len(own)),
            "label": own,
            "predicted": probabilities.argmax(1),
            **fitted.score(_SCORES),
            "norm": norm,
            "class_norm": class_normalised_norm(features - features.mean(0), own),
        }
        run.folder.mkdir(parents=True, exist_ok=True)
        write_people(run.folder, columns, votes.of(chosen), probabilities.clamp_min(1e-300).log())
        accuracy = float((columns["predicted"] == own).double().mean())
        trainings.write_record(run, {"test_accuracy": accuracy}, torch.device("cpu"))


def rated_texts(made: bool) -> pa.Table:
    """The texts with their ratings, or docstrings with ratings that nobody gave, to test with."""
    if not made:
        return pq.read_table(data_file("rated_texts", "texts-with-ratings.parquet"))
    texts, draw = docstrings(), np.random.default_rng(0)
    ratings = [draw.normal(np.sign(len(text) - 150), 1 + len(text) % 3, 20).round().tolist() for text in texts]
    return pa.table({"text": texts, "ratings": pa.array(ratings, pa.list_(pa.int8()))})


def sides(ratings: Any) -> tuple[Tensor, Votes]:
    """The side on which more raters are, 1 positive and 0 negative (-1 of neither), and how many of all are there."""
    lists = ratings.combine_chunks()
    values, offsets = lists.flatten().to_numpy(), lists.offsets.to_numpy()
    up, down = (np.add.reduceat(side.astype(np.int64), offsets[:-1]) for side in (values > 0, values < 0))
    labels = np.where(up == down, -1, (up > down).astype(np.int64))
    return torch.from_numpy(labels), Votes(torch.from_numpy(np.maximum(up, down)), torch.from_numpy(np.diff(offsets)))


def features_of(network: str, texts: Sequence[str], chosen: Tensor) -> Tensor:
    """Embeddings of the encoder, or counts of words and pairs of them, weighed and cut to their first components."""
    if network == "minilm":
        embeddings = np.load(data_file("rated_texts", "texts-minilm.npy"), mmap_mode="r")
        return torch.from_numpy(embeddings[chosen.numpy()].astype(np.float32))
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    counts = TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True).fit_transform(
        [texts[one] for one in chosen.tolist()]
    )
    components = min(_COMPONENTS, min(counts.shape) - 1)
    found = TruncatedSVD(components, random_state=0).fit_transform(counts)
    return torch.from_numpy(found.astype(np.float32))
