"""FedCVT: learn from rows the parties do not share, by estimating the views they lack.

Y. Kang, Y. Liu, X. Liang, "FedCVT: Semi-supervised Vertical Federated Learning with Cross-view Training", ACM
Transactions on Intelligent Systems and Technology 13(4), 2022.

Roles: one ``label_holder`` with labels and columns, and ``feature_holder``, one or more, with columns. Rows known to
all are few; every party may have many others.

What each party learns depends on the level. At level 0, the paper's, the label holder gets every feature holder's codes
in the clear, also of rows it does not know, without their ids; feature holders get gradients that give most labels of
shared rows away, and tell which of their own rows got a label. At level 1 codes carry noise, which bounds what a row's
releases tell. At level 2 codes, and from the label holder the weights of partners' codes, stay hidden: it gets what a
partner's codes add to scores, by kind of code for shared rows. Feature holders still see the gradient at their codes,
from which they can read these weights, and most labels of shared rows.

Differs from the paper: its ambiguous and misprinted formulas are fixed as the method's page lists; attention carries
the temperature; a shared row does not look at itself; labels of partners' rows are watched and switched off when too
few are right; the best of FedCVT, a split network and the label holder's own model is used, for each situation; more
than two parties, numbers as labels, and levels 1 and 2 are added.
"""

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.public_keys import PublicModulus
from colonnade.exchanges.split_linear import split_linear
from colonnade.messages import Template, between, template_of
from colonnade.methods.fedcvt import messages, predict, train
from colonnade.methods.fedcvt.config import FedCVT, cautions
from colonnade.session import Method, Role, Stage

__all__ = ["METHOD", "FedCVT"]

_ROLES = ("feature_holder", "label_holder")


def _layer(*, trains: bool) -> tuple[Template, ...]:
    """Return the messages of the encrypted layer, and the keys for it."""
    layer = (between(PublicModulus, _ROLES, _ROLES), *split_linear(*_ROLES, trains=trains))
    return tuple(one.where(lambda plan: plan.config["level"] == 2) for one in layer)


METHOD = Method(
    name="fedcvt",
    title="Cross-view training",
    citation='Y. Kang, Y. Liu, X. Liang, "FedCVT: Semi-supervised Vertical Federated Learning with Cross-view '
    'Training", ACM TIST 13(4), 2022',
    situation="few shared rows, many unmatched ones on both sides; also scores rows that only one party knows",
    config=FedCVT,
    roles=(
        Role("label_holder", "the labels of all its rows, and columns of its own", has_label=True),
        Role("feature_holder", "columns about some of the same rows, and about others", at_least=0, at_most=None),
    ),
    lead="label_holder",
    stages={
        "train": Stage(
            roles={"label_holder": train.label_holder, "feature_holder": train.feature_holder},
            messages=(
                messages.OwnRows,
                messages.Schedule,
                EpochVerdict,
                messages.Choice,
                messages.Codes,
                template_of(messages.CodeGradient).where(lambda plan: plan.config["level"] < 2),
                messages.HeldOutCodes,
                *_layer(trains=True),
                messages.AlignedLogits,
                messages.EstimatedLogits,
                messages.EstimateGradient,
                messages.AlignedGradient,
                template_of(messages.FitCodes).where(lambda plan: plan.config["sealed_fit"] != "off"),
                template_of(messages.FitGradient).where(lambda plan: plan.config["sealed_fit"] != "off"),
                template_of(messages.SharedCodes).where(lambda plan: plan.config["level"] == 2),
            ),
            makes_model=True,
        ),
        "predict": Stage(
            roles={"label_holder": predict.label_holder, "feature_holder": predict.feature_holder},
            messages=(
                messages.ModelMark,
                messages.RowsAlone,
                messages.AnswersAlone,
                messages.HeldOutCodes,
                *_layer(trains=False),
                messages.AlignedLogits,
                messages.EstimatedLogits,
            ),
            scores=True,
            rows="shared and rest",
        ),
    },
    cautions=cautions,
)
