"""Split network: one encoder per party, one head at the label holder.

O. Gupta and R. Raskar, "Distributed learning of deep neural network over multiple agents", Journal of Network and
Computer Applications 116, 2018; P. Vepakomma et al., "Split learning for health", arXiv:1812.00564. The papers of this
product call it vanilla VFL and measure against it.

Roles: one ``label_holder`` with the labels, with or without columns of its own, and any number of ``feature_holder``.

What each party learns. The label holder sees every feature holder's activations for every shared row, in the clear.
Each feature holder sees the gradient at its activations, in the clear, which for binary labels usually gives the labels
away. This method is the fast baseline for parties that accept that; it protects raw columns only from being copied.

Two defences of labels are offered, none by default. ``marvell`` puts noise on the gradients, by which ``label_budget``
bounds what one release of a row tells a feature holder; releases add up over the epochs. ``coae`` lets the network
learn secret codes of the classes; with two classes that hides little by itself. Only codes hinder a feature holder that
knows some labels and fits a head to its own outputs, and nothing hides activations from the label holder.

Differs from the papers: the label holder's gradient is sent before its own encoder learns, so that both sides work at
the same time; a feature holder may send batches ahead; training stops on a validation loss, and the model serves only
as far as it is not clearly worse than one of the label holder's columns alone; the defences are from other papers,
named in `colonnade.privacy`. A run with a defence does not repeat from its seed alone: its noise
and codes are secret.
"""

from colonnade.messages import between
from colonnade.methods.splitnn import predict, train
from colonnade.methods.splitnn.config import SplitNN, cautions
from colonnade.methods.splitnn.messages import CutActivations, CutGradient, CutWidth, HeldOutActivations
from colonnade.session import Method, Role, Stage
from colonnade.training import ModelToScore, TrainedModel, Verdict

__all__ = ["METHOD", "SplitNN"]

METHOD = Method(
    name="splitnn",
    title="Split network",
    citation='O. Gupta, R. Raskar, "Distributed learning of deep neural network over multiple agents", JNCA 116, 2018',
    situation="many shared rows, and a joint model is all you want; activations and gradients cross in the clear",
    config=SplitNN,
    cautions=cautions,
    roles=(
        Role("label_holder", "the labels, and columns of its own if it has any", has_label=True),
        Role("feature_holder", "columns about the same rows", at_least=0, at_most=None),
    ),
    lead="label_holder",
    stages={
        "train": Stage(
            roles={"label_holder": train.label_holder, "feature_holder": train.feature_holder},
            messages=(
                CutWidth,
                CutActivations,
                CutGradient,
                HeldOutActivations,
                *(between(one, "label_holder", "feature_holder") for one in (Verdict, TrainedModel)),
            ),
            makes_model=True,
        ),
        "predict": Stage(
            roles={"label_holder": predict.label_holder, "feature_holder": predict.feature_holder},
            messages=(HeldOutActivations, between(ModelToScore, "label_holder", "feature_holder")),
            scores=True,
        ),
    },
)
