"""What training reveals of every sample: a recorder, the scores made from it, adapters for training frameworks."""

from hardsight.dynamics.aggregates import Aggregates
from hardsight.dynamics.catalogue import DynamicsScore, dynamics_scores
from hardsight.dynamics.recorder import Recorder

__all__ = ["Aggregates", "DynamicsScore", "Recorder", "dynamics_scores"]
