"""Multi-party dual learning: complete what the other side is missing, and score rows that only one side knows.

M. Gong et al., "Multi-Party Dual Learning", IEEE Transactions on Cybernetics, 2022.

Roles: ``label_holder`` brings columns and labels, one or more ``feature_holder`` bring other columns, and a
``collaborator`` without any table has the upper layers of the classifier.
"""

from colonnade.methods.mpdl import graph, predict, train
from colonnade.methods.mpdl.config import COLLABORATOR, MPDL
from colonnade.methods.mpdl.messages import MESSAGES, choose_messages
from colonnade.session import Method, Role

__all__ = ["METHOD", "MPDL"]

_LEARNING = {
    "label_holder": train.label_holder,
    "feature_holder": train.feature_holder,
    COLLABORATOR: train.collaborator,
}

METHOD = Method(
    name="mpdl",
    title="Multi-party dual learning",
    citation='M. Gong et al., "Multi-Party Dual Learning", IEEE Transactions on Cybernetics, 2022',
    situation="few shared rows and different columns; complete rows, and score those that only one side knows",
    config=MPDL,
    roles=(
        Role("label_holder", "labels, and columns of its own", has_label=True),
        Role("feature_holder", "columns of its own", at_most=None),
        Role(COLLABORATOR, "no table: it adds up and has the upper layers", has_rows=False),
    ),
    lead="label_holder",
    messages=MESSAGES,
    stages={
        "train": _LEARNING,
        "dual": _LEARNING,
        "central": _LEARNING,
        "graph": {
            "label_holder": graph.label_holder,
            "feature_holder": graph.feature_holder,
            COLLABORATOR: graph.collaborator,
        },
        "predict": {
            "label_holder": predict.label_holder,
            "feature_holder": predict.feature_holder,
            COLLABORATOR: predict.collaborator,
        },
    },
    choose_messages=choose_messages,
    absent={"dual": (COLLABORATOR,)},
    stands_on={"central": ("dual",)},
    scored_after=("train", "central"),
    scores_rest=True,
)
