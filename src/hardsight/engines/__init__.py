"""Where scoring runs: a model over a loader, features in a file, a model and images named on the command line."""

from hardsight.engines.files import score_file, write_features
from hardsight.engines.images import open_images, score_images
from hardsight.engines.model_spec import load_model
from hardsight.engines.streaming import score_model

__all__ = ["load_model", "open_images", "score_file", "score_images", "score_model", "write_features"]
