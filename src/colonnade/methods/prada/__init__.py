"""PrADA: adversarial domain adaptation over feature groups, for a target with few labels and a source with many.

Y. Kang et al., "Privacy-preserving Federated Adversarial Domain Adaptation over Feature Groups for Interpretability",
IEEE Transactions on Big Data, 2022.

Roles: ``target``, a bank with few labelled rows; ``source``, a bank of the same kind with many, or several; and
``feature_holder``, which has many columns about the customers of all of them. Banks never speak with each other.

What each party learns. The feature holder learns which of its rows each bank has, which of these are labelled, and, in
pre-training and wherever its networks learn, the gradient at its groups' numbers. Without a defence every label can be
read from that gradient, exactly. MARVELL's noise, the default, bounds what one release tells; every epoch is a further
release. With ``tune = "nothing"``, also the default, fine-tuning sends no gradient; what then still depends on the
target's labels is which model it chooses (``compare``) and whether an epoch was better (``fine_patience``). A feature
holder that knows some labels can fit a model to its own groups' numbers: no noise prevents that.

Each bank learns the groups' names and, for every row and epoch, what all groups together add to the row's score: over
more epochs than groups these span the groups' numbers up to an unknown linear map. With ``explanations`` the target
learns what each group adds to each row. Neither side knows the weights of groups while they are encrypted; from
gradients the feature holder learns them, about, or exactly where nothing adds noise.

Differs from the paper: its signs, its order of updates and its noise are corrected, as the method's page lists; two
round trips per batch instead of three; shares are drawn anew in every step; noise off the line of the weights goes with
MARVELL; a category that hardly any source row has starts as the one most like it; rows of both domains are normalised
in one batch; inference, explanation and the target's choice between models are added.
"""

from colonnade.methods.prada import explain, predict, train
from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.groups import propose_groups
from colonnade.methods.prada.messages import HOLDER, MESSAGES, choose_messages
from colonnade.session import Method, Role, Stage

__all__ = ["METHOD", "PrADA", "propose_groups"]

METHOD = Method(
    name="prada",
    title="Adversarial domain adaptation over feature groups",
    citation='Y. Kang et al., "Privacy-preserving Federated Adversarial Domain Adaptation over Feature Groups for '
    'Interpretability", IEEE Transactions on Big Data, 2022',
    situation="few labels here, many at a sister organisation, rich columns at a third party; explained by groups",
    config=PrADA,
    roles=(
        Role(HOLDER, "columns about the customers of all banks"),
        Role("target", "few labels, and columns of its own", at_most=None, has_label=True),
        Role("source", "many labels, and columns of its own", at_least=0, at_most=None, has_label=True),
    ),
    lead=HOLDER,
    every_message=MESSAGES,
    stages={
        "train": Stage(
            roles={"source": train.source, "target": train.target, HOLDER: train.feature_holder},
            rows="pairwise",
            makes_model=True,
            judge="target",
        ),
        "pretrain": Stage(
            roles={"source": train.source, "target": train.target, HOLDER: train.feature_holder},
            rows="pairwise",
            judge="source",
        ),
        "finetune": Stage(
            roles={"target": train.target, HOLDER: train.feature_holder},
            rows="pairwise",
            after=("pretrain",),
            makes_model=True,
            judge="target",
        ),
        "explain": Stage(
            roles={"target": explain.target, HOLDER: explain.feature_holder},
            rows="pairwise",
            after=("train", "finetune"),
            scores=True,
        ),
        "predict": Stage(
            roles={"target": predict.target, HOLDER: predict.feature_holder}, rows="pairwise", scores=True
        ),
    },
    choose_messages=choose_messages,
)
