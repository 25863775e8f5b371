"""Torch parts that methods share."""

from colonnade.nn.adversarial import SpectralLinear, discriminator, reverse_gradient
from colonnade.nn.attention import attention_weights, key_counts
from colonnade.nn.average import WeightAverage
from colonnade.nn.convolutions import convolutions, redrawn
from colonnade.nn.density import KernelDensity, thinned
from colonnade.nn.feature_groups import FeatureGroups, GroupShape, default_widths, pair_groups
from colonnade.nn.learner import Learner, make_optimiser, tensors_under
from colonnade.nn.losses import backpropagate, balanced_weights, row_losses, supervised_loss
from colonnade.nn.mlp import ACTIVATIONS, SeededDropout, find_dropouts, mlp, reseed_dropout, seeded_linear

__all__ = [
    "ACTIVATIONS",
    "FeatureGroups",
    "GroupShape",
    "KernelDensity",
    "Learner",
    "SeededDropout",
    "SpectralLinear",
    "WeightAverage",
    "attention_weights",
    "backpropagate",
    "balanced_weights",
    "convolutions",
    "default_widths",
    "discriminator",
    "find_dropouts",
    "key_counts",
    "make_optimiser",
    "mlp",
    "pair_groups",
    "redrawn",
    "reseed_dropout",
    "reverse_gradient",
    "row_losses",
    "seeded_linear",
    "supervised_loss",
    "tensors_under",
    "thinned",
]
