"""Torch parts that methods share: layers, networks and losses."""

from colonnade.nn.additive_attention import AdditiveAttention, masked_softmax
from colonnade.nn.adversarial import SpectralLinear, discriminator, reverse_gradient
from colonnade.nn.attention import attention_weights, key_counts
from colonnade.nn.autoint import AutoInt
from colonnade.nn.average import WeightAverage
from colonnade.nn.convolutions import convolutions, redrawn
from colonnade.nn.density import KernelDensity, thinned
from colonnade.nn.draws import drawn_normal, drawn_uniform
from colonnade.nn.embedding_mlp import EmbeddingMLP
from colonnade.nn.feature_groups import FeatureGroups, GroupShape, default_widths, pair_groups
from colonnade.nn.field_embeddings import FieldEmbeddings
from colonnade.nn.gru import GRU
from colonnade.nn.heads import Heads
from colonnade.nn.learner import Learner, make_optimizer, tensors_under
from colonnade.nn.losses import backpropagate, balanced_weights, loss_gradient, row_losses, supervised_loss
from colonnade.nn.lstur import LSTUR
from colonnade.nn.mlp import ACTIVATIONS, SeededDropout, find_dropouts, mlp, reseed_dropout, seeded_linear
from colonnade.nn.naml import NAML
from colonnade.nn.news import ConvolvedText, UserEncoder, WordEmbeddings, index_texts
from colonnade.nn.nrms import NRMS
from colonnade.nn.probes import ATTACKS, Attack, attack, attack_value
from colonnade.nn.self_attention import SelfAttention
from colonnade.nn.sparsemax import sparsemax
from colonnade.nn.tabnet import TabNet

__all__ = [
    "ACTIVATIONS",
    "ATTACKS",
    "GRU",
    "LSTUR",
    "NAML",
    "NRMS",
    "AdditiveAttention",
    "Attack",
    "AutoInt",
    "ConvolvedText",
    "EmbeddingMLP",
    "FeatureGroups",
    "FieldEmbeddings",
    "GroupShape",
    "Heads",
    "KernelDensity",
    "Learner",
    "SeededDropout",
    "SelfAttention",
    "SpectralLinear",
    "TabNet",
    "UserEncoder",
    "WeightAverage",
    "WordEmbeddings",
    "attack",
    "attack_value",
    "attention_weights",
    "backpropagate",
    "balanced_weights",
    "convolutions",
    "default_widths",
    "discriminator",
    "drawn_normal",
    "drawn_uniform",
    "find_dropouts",
    "index_texts",
    "key_counts",
    "loss_gradient",
    "make_optimizer",
    "masked_softmax",
    "mlp",
    "pair_groups",
    "redrawn",
    "reseed_dropout",
    "reverse_gradient",
    "row_losses",
    "seeded_linear",
    "sparsemax",
    "supervised_loss",
    "tensors_under",
    "thinned",
]
