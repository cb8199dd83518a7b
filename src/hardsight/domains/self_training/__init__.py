"""Self-training: a labelled source, then rounds on the target samples that the model is surest of."""

from hardsight.domains.self_training.method import SelfTrained, SelfTraining

__all__ = ["SelfTrained", "SelfTraining"]
