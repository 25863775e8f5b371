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

from colonnade.methods.fedcvt import predict, train
from colonnade.methods.fedcvt.config import FedCVT
from colonnade.methods.fedcvt.messages import MESSAGES, choose_messages
from colonnade.session import Method, Role, Stage

__all__ = ["METHOD", "FedCVT"]

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
    every_message=MESSAGES,
    stages={
        "train": Stage(
            roles={"label_holder": train.label_holder, "feature_holder": train.feature_holder}, makes_model=True
        ),
        "predict": Stage(
            roles={"label_holder": predict.label_holder, "feature_holder": predict.feature_holder},
            scores=True,
            rows="shared and rest",
        ),
    },
    choose_messages=choose_messages,
)
