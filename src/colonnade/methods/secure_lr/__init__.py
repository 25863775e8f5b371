"""SecureLR: logistic, multinomial and linear regression over columns that lie at several parties.

The baseline of the PrADA paper (Kang et al., "Privacy-preserving Federated Adversarial Domain Adaptation over Feature
Groups for Interpretability", IEEE Transactions on Big Data 2022), after S. Hardy et al., "Private federated learning on
vertically partitioned data via entity resolution and additively homomorphic encryption", arXiv:1711.10677.

Roles: one ``label_holder`` with the labels, with or without columns of its own, and any number of ``feature_holder``.

Each feature holder whitens its columns, makes a Paillier key and sends them encrypted, once. The coefficients of its
columns are shared between it and the label holder while training: neither knows them. The label holder fits its own
columns exactly, step by step together with what the partners' columns add. At the end it gives up its shares, with
noise, so that every party has the coefficients of its own columns.

What each party learns. The label holder sees what each feature holder's columns add to a row's scores: for training
rows once in every epoch but the first, and for all rows once when they are scored. Such numbers span the columns up to
an unknown linear map, and as many as the columns have rank give two-valued columns away exactly. So each feature holder
refuses to open more numbers about a row than half that rank, over all its runs with the label holder (`guard.py`). Rows
with equal columns are seen to be equal even so. Each feature holder learns the coefficients of its own columns, about,
with which factors they go into the scores, and whether these need them. The coefficient of a column, or of a direction
of several, that few rows make up tells these rows' labels: such directions are left out by the feature holder, and
against one that does otherwise the label holder adds noise. It gets no gradient for its columns' values: a linear model
needs none, and in the paper's protocol that gradient gives away every label.

Differs from the papers: no third party; the exact sigmoid instead of a Taylor polynomial; whitened columns and exact
local fits, so that two steps of all rows do what hundreds of small ones did; as many scores as classes less one;
integer shares that are drawn anew in every step; every reply is re-randomised.
"""

from colonnade.exchanges.public_keys import PublicModulus
from colonnade.messages import between
from colonnade.methods.secure_lr import predict, train
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.messages import (
    ColumnCount,
    Factors,
    MaskedSlopes,
    RowScores,
    SealedColumns,
    SlopeShare,
    TrainingExtent,
)
from colonnade.session import Method, Role, Stage
from colonnade.training import ModelToScore, TrainedModel

__all__ = ["METHOD", "SecureLR"]

_OWNER, _PARTNER = "feature_holder", "label_holder"
METHOD = Method(
    name="secure_lr",
    title="Secure regression",
    citation='S. Hardy et al., "Private federated learning on vertically partitioned data via entity resolution and '
    'additively homomorphic encryption", arXiv:1711.10677, 2017',
    situation="many shared rows and a linear model will do; columns and labels are encrypted or masked",
    config=SecureLR,
    roles=(
        Role("label_holder", "the labels, and columns of its own if it has any", has_label=True),
        Role("feature_holder", "columns about the same rows", at_least=0, at_most=None),
    ),
    lead="label_holder",
    stages={
        "train": Stage(
            roles={"label_holder": train.label_holder, "feature_holder": train.feature_holder},
            messages=(
                between(PublicModulus, _OWNER, _PARTNER),
                ColumnCount,
                TrainingExtent,
                SealedColumns,
                MaskedSlopes,
                SlopeShare,
                RowScores,
                Factors,
                between(TrainedModel, _PARTNER, _OWNER),
            ),
            makes_model=True,
        ),
        "predict": Stage(
            roles={"label_holder": predict.label_holder, "feature_holder": predict.feature_holder},
            messages=(RowScores, between(ModelToScore, _PARTNER, _OWNER)),
            scores=True,
        ),
    },
)
