"""Torch parts that methods share."""

from colonnade.nn.learner import Learner, make_optimiser
from colonnade.nn.losses import backpropagate, balanced_weights, supervised_loss
from colonnade.nn.mlp import ACTIVATIONS, SeededDropout, find_dropouts, mlp, reseed_dropout

__all__ = [
    "ACTIVATIONS",
    "Learner",
    "SeededDropout",
    "backpropagate",
    "balanced_weights",
    "find_dropouts",
    "make_optimiser",
    "mlp",
    "reseed_dropout",
    "supervised_loss",
]
