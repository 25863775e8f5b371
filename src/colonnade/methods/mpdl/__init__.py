"""Multi-party dual learning: complete what the other side is missing, and score rows that only one side knows.

M. Gong et al., "Multi-Party Dual Learning", IEEE Transactions on Cybernetics, 2022.

Roles: ``label_holder`` brings columns and labels, one or more ``feature_holder`` bring other columns, and a
``collaborator`` without any table adds up and has the upper layers of the classifier. All holders are assumed not to
side with the collaborator.

What each party learns. Holders learn which rows they share, and get each other's columns of shared training rows once,
behind noise that is drawn once for every cell: what that tells of a cell and of a row is in the ledger and the report.
Feature holders also learn how many labelled rows only the label holder has, and get the gradient at the first layer for
every training row, from which labels can often be told. The collaborator gets the first layer's sums over all holders,
for rows that only one holder knows that holder's part itself, and the loss's gradient at every score: in effect the
labels. It does not learn whose rows these are, nor, as holders alone know the order of batches, which rows of two
epochs are the same; could it tell, by how little sums move, it could work out how alike all rows are. The label holder
gets scores. With ``completion = "ship"`` holders also get what others generate of their columns; with
"secure_block" they can work it out.

Differs from the paper: tables are released once with noise of the local kind instead of gradients step by step (the
paper's exchange is an option, with the leaks closed that can be); its lemma's noise does not protect a row and needs
``paper_mode``; masks instead of a sum that a collaborator without a key "decrypts"; labels stay with their holder; the
penalty's densities are in logarithms, normalised and clipped; folds, choice and prediction are made precise; augmented
rows, more holders, numbers to predict, missing cells and convolutions of two kinds are added.
"""

from colonnade.methods.mpdl import graph, predict, train
from colonnade.methods.mpdl.config import COLLABORATOR, MPDL, cautions
from colonnade.methods.mpdl.messages import CENTRAL, DUAL, GRAPH, PREDICT, TRAIN
from colonnade.session import Method, Role, Stage

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
    stages={
        "train": Stage(roles=_LEARNING, messages=TRAIN, makes_model=True),
        "dual": Stage(
            roles={"label_holder": train.label_holder, "feature_holder": train.feature_holder}, messages=DUAL
        ),
        "central": Stage(roles=_LEARNING, messages=CENTRAL, after=("dual",), makes_model=True),
        "graph": Stage(
            roles={
                "label_holder": graph.label_holder,
                "feature_holder": graph.feature_holder,
                COLLABORATOR: graph.collaborator,
            },
            messages=GRAPH,
        ),
        "predict": Stage(
            roles={
                "label_holder": predict.label_holder,
                "feature_holder": predict.feature_holder,
                COLLABORATOR: predict.collaborator,
            },
            messages=PREDICT,
            rows="shared and rest",
            scores=True,
        ),
    },
    cautions=cautions,
)
