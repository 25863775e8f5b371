"""SecureLR: logistic, multinomial and linear regression over columns that lie at several parties.

The baseline of the PrADA paper (Kang et al., "Privacy-preserving Federated Adversarial Domain Adaptation over Feature
Groups for Interpretability", IEEE Transactions on Big Data 2022), after S. Hardy et al., "Private federated learning on
vertically partitioned data via entity resolution and additively homomorphic encryption", arXiv:1711.10677.

Roles: one ``label_holder`` with the labels, with or without columns of its own, and any number of ``feature_holder``.

Each feature holder whitens its columns and sends them once, under a Paillier key of its own. In every epoch the label
holder fits its own columns and what it got of the partners' exactly, and returns sums of the encrypted columns over all
rows, weighted by what the fit leaves unexplained: masked until both have kept them, then with noise. They are
coefficients: the feature holder sends what they add to every row.

What each party learns. The label holder sees one number about each row in every epoch, and when a row is scored later.
As many as the columns have rank give two-valued columns away exactly, so each feature holder refuses to open more than
half that rank, over all its runs with the label holder. Rows with equal columns are seen to be equal even so. Each
feature holder learns about the coefficients of its own columns, with which factors they go into the scores, and whether
these need them. The coefficient of a column, or of a direction of several, that few rows make up tells these rows'
labels: the feature holder leaves such directions out, and against one that does otherwise there is the noise. It gets
no gradient for its columns' values: in the paper's protocol that gives away every label.

Differs from the papers: no third party; the exact sigmoid instead of a Taylor polynomial; whitened columns and exact
local fits, so that two steps of all rows do what hundreds of small ones did; no encrypted forward pass; as many scores
as classes less one; every reply is masked and re-randomised.
"""

from colonnade.exchanges.public_keys import PublicModulus
from colonnade.exchanges.weighted_sums import MaskedSums, SealedRows, SumShare
from colonnade.messages import between
from colonnade.methods.secure_lr import predict, train
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.messages import ColumnCount, Factors, RowScores, TrainingExtent
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
                between(SealedRows, _OWNER, _PARTNER),
                between(MaskedSums, _PARTNER, _OWNER),
                between(SumShare, _PARTNER, _OWNER),
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
