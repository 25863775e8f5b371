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

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.public_keys import PublicModulus
from colonnade.exchanges.secure_linear import (
    MaskedGradient,
    MaskedLogits,
    OpenedLogits,
    OpeningShare,
    SealedInputs,
    ShareUpdate,
    TrainedGradients,
    TrainedInputs,
)
from colonnade.messages import Template, between
from colonnade.messages.declaration import Plan
from colonnade.methods.prada import explain, predict, train
from colonnade.methods.prada.config import PrADA, cautions
from colonnade.methods.prada.groups import propose_groups
from colonnade.methods.prada.messages import (
    HOLDER,
    Chosen,
    GroupGradients,
    GroupLevels,
    GroupNames,
    GroupNumbers,
    InitialWeights,
    LabelledRows,
    MaskedContributions,
    ModelMark,
    OpenedContributions,
    Turn,
    TurnSeen,
)
from colonnade.session import Method, Role, Stage

__all__ = ["METHOD", "PrADA", "propose_groups"]


def _is_sealed(plan: Plan) -> bool:
    return bool(plan.config["protection"] != "none")


def _crossing(bank: str, to_bank: tuple[type, ...] = (), to_holder: tuple[type, ...] = ()) -> list[Template]:
    return [between(one, HOLDER, bank) for one in to_bank] + [between(one, bank, HOLDER) for one in to_holder]


def _sealed(bank: str, to_bank: tuple[type, ...] = (), to_holder: tuple[type, ...] = ()) -> list[Template]:
    return [one.where(_is_sealed) for one in _crossing(bank, to_bank, to_holder)]


def _scoring(bank: str) -> list[Template]:
    sealed = _sealed(bank, (PublicModulus, SealedInputs, OpenedLogits), (MaskedLogits,))
    return [*sealed, *_crossing(bank, (GroupNumbers,))]


def _learning(bank: str) -> list[Template]:
    """Return what crosses with a bank from whose labels something learns."""

    def trains_inputs(plan: Plan) -> bool:
        return bank == "source" or plan.config["tune"] != "nothing" or plan.config["compare"] == "vfl"

    def keeps_inputs(plan: Plan) -> bool:
        return bank == "target" and (plan.config["tune"] == "nothing" or plan.config["compare"] == "vfl")

    clear = between(GroupGradients, bank, HOLDER).where(lambda plan: not _is_sealed(plan))
    return [
        *_crossing(bank, (GroupNames, Turn, InitialWeights), (LabelledRows, TurnSeen, EpochVerdict)),
        *_scoring(bank),
        *_sealed(bank, (OpeningShare, ShareUpdate)),
        *(one.where(trains_inputs) for one in (*_sealed(bank, (TrainedInputs,), (TrainedGradients,)), clear)),
        *(one.where(keeps_inputs) for one in _sealed(bank, (), (MaskedGradient,))),
    ]


_EXPLAINING = _sealed("target", (OpenedContributions,), (MaskedContributions,))

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
    stages={
        "train": Stage(
            roles={"source": train.source, "target": train.target, HOLDER: train.feature_holder},
            messages=(*_learning("source"), *_learning("target"), Chosen),
            rows="pairwise",
            makes_model=True,
            judge="target",
        ),
        "pretrain": Stage(
            roles={"source": train.source, "target": train.target, HOLDER: train.feature_holder},
            # The target only waits; the feature holder learns which rows are its own, by aligning with it.
            messages=(*_learning("source"), *_crossing("target", (Turn,), (TurnSeen,))),
            rows="pairwise",
            judge="source",
        ),
        "finetune": Stage(
            roles={"target": train.target, HOLDER: train.feature_holder},
            messages=(*_learning("target"), Chosen),
            rows="pairwise",
            after=("pretrain",),
            makes_model=True,
            judge="target",
        ),
        "explain": Stage(
            roles={"target": explain.target, HOLDER: explain.feature_holder},
            messages=(ModelMark, *_scoring("target"), *_EXPLAINING, GroupLevels),
            rows="pairwise",
            after=("train", "finetune"),
            needs="explanations",
            scores=True,
        ),
        "predict": Stage(
            roles={"target": predict.target, HOLDER: predict.feature_holder},
            messages=(ModelMark, *_scoring("target")),
            rows="pairwise",
            scores=True,
        ),
    },
    cautions=cautions,
)
