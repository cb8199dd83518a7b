"""`hs.fit_head`: seconds and memory for many samples, and scikit-learn's logistic regression on the same features.

    python benchmarks/fit_head.py                                   # 50,000 x 512, ten classes, beside scikit-learn
    python benchmarks/fit_head.py --samples 1000000 --classes 100   # five folds; scikit-learn only with --beside
    python benchmarks/fit_head.py --save

Features are clusters with much noise. scikit-learn fits one head to the samples outside each fold, on the same rows
(centred, of length one), with the strength that `fit_head` chose for that fold, and both log-losses are of all samples
out of fold. Wall clock and processor time are given; on a busy machine only the ratio of processor times says much.
"""

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from machine import RESULTS, about

from hardsight.heads import FittedHead, fit_head
from hardsight.records import write_json


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beside", action=argparse.BooleanOptionalAction, default=None, help="scikit-learn too")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    features, labels = clusters(options.samples, options.dim, options.classes)
    above = about("fit_head", torch.device("cpu"))
    before = peak_mib()
    timed, head = measured(lambda: fit_head(features, labels, options.folds))
    found: dict[str, Any] = {
        "samples": options.samples, "dim": options.dim, "classes": options.classes, "folds": options.folds,
        "hardsight": {**timed, "log_loss": head.log_loss, "passes": head.passes},
        "peak_mib": peak_mib(), "grown_mib": peak_mib() - before,
    }  # fmt: skip
    if options.beside if options.beside is not None else options.samples <= 100_000:
        timed, loss = measured(lambda: beside(features, labels, head))
        found["scikit-learn"] = {**timed, "log_loss": loss}
    print(json.dumps(found, indent=2))
    if options.save:
        path = RESULTS / "fit_head-cpu.json"
        runs = json.loads(path.read_text())["runs"] if path.is_file() else []
        sizes = ("samples", "dim", "classes", "folds")
        others = [one for one in runs if any(one[name] != found[name] for name in sizes)]
        write_json(path, {**above, "runs": [*others, found]})


def peak_mib() -> float:
    """The largest memory of this process so far, which includes the features."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def clusters(samples: int, dim: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of classes that overlap, and labels of which a tenth is wrong."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, classes, samples)
    features = generator.standard_normal((samples, dim), np.float32)
    centres = 3 * generator.standard_normal((classes, dim), np.float32) / np.sqrt(10)
    for start in range(0, samples, 2**16):
        # Some at a time, or this would be the peak of memory.
        features[start : start + 2**16] += centres[truth[start : start + 2**16]]
    wrong = generator.random(samples) < 0.1
    return features, np.where(wrong, generator.integers(0, classes, samples), truth)


def measured(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Wall clock and processor seconds of a call, and what it returns."""
    began, busy = time.perf_counter(), time.process_time()
    found = work()
    return {"seconds": time.perf_counter() - began, "processor_seconds": time.process_time() - busy}, found


def beside(features: np.ndarray, labels: np.ndarray, head: FittedHead) -> float:
    """scikit-learn's log-loss out of the same folds."""
    from sklearn.linear_model import LogisticRegression

    assert head.penalty is not None
    rows = features - features.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    fold, total = head.fold.numpy(), 0.0
    for one in range(int(fold.max()) + 1):
        inside = fold == one
        model = LogisticRegression(C=1 / float(head.penalty[one]), max_iter=1000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(rows[~inside], labels[~inside])
        said = model.predict_log_proba(rows[inside])
        total -= float(said[np.arange(inside.sum()), labels[inside]].sum())
    return total / len(labels)


if __name__ == "__main__":
    main()
