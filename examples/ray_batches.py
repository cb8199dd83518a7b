"""Ray Data: score features in a pipeline of your own, and find the wrong labels among them; about a minute.

Needs `pip install 'hardsight[ray]'`. The features are the digits of scikit-learn, a fifth of the labels flipped on
purpose; on a cluster they would be Parquet files that `ray.data.read_parquet` reads. For folders of such files,
`hardsight score --engine ray` does all of it.
"""

import pyarrow as pa
import ray
import torch
from sklearn.linear_model import LogisticRegression

import hardsight as hs
from hardsight.engines.ray import Scorer

data = hs.datasets.load("digits")
features, truth = data.images.flatten(1).float() / 255, data.labels
noisy = hs.noise.flip_symmetric(truth, 0.2, 10, generator=torch.Generator().manual_seed(0)).labels
fitted = LogisticRegression(C=0.1, max_iter=500).fit(features, noisy)
head = (torch.tensor(fitted.coef_).float(), torch.tensor(fitted.intercept_).float())

rows = pa.FixedSizeListArray.from_arrays(pa.array(features.numpy().reshape(-1)), features.shape[1])
table = pa.table({"id": pa.array(range(len(noisy))), "features": rows, "label": noisy.numpy()})

ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
scored = ray.data.from_arrow(table).map_batches(
    Scorer,
    fn_constructor_args=(head, ("avh", "margin")),
    batch_format="pyarrow",
    batch_size=256,
    concurrency=1,  # leave Ray a processor for reading
)
found = pa.concat_tables(ray.get(scored.to_arrow_refs())).sort_by("margin")
ray.shutdown()

worst = torch.tensor(found["id"].to_pylist()[: int((noisy != truth).sum())])
print(f"{(noisy != truth)[worst].sum()} of the {len(worst)} labels of smallest margin are flipped ones")
print(found.select(["id", "label", "avh", "margin"]).slice(0, 3).to_pylist())
