"""Secure federated transfer learning: labels at one party score customers of another.

Y. Liu, Y. Kang, C. Xing, T. Chen, Q. Yang, "A Secure Federated Transfer Learning Framework", IEEE Intelligent Systems
35(4), 2020 (arXiv:1812.03337).

Roles: a ``source`` with labels and columns of its own, and a ``target`` with other columns about some of the same rows
and about many more. Several targets may share one source, or one target may have several sources.

Each party trains an encoder of its own columns into a common space. Codes, their moments and the source's signals cross
encrypted; each party computes its own gradient on the other's ciphertexts, and has it opened behind a mask.

What each party learns. A party gets the gradient of its own parameters in every step, and so linear equations about the
other's codes; a guard refuses runs in which there are more equations than half the unknowns, but equations of many
steps about slowly moving codes add up. The target's gradients depend on the labels of labelled rows, and only the
source's codes beside them hide these: with a small gamma or many steps a target may work labels out. The source learns
the loss of every step, scores of labelled and held-out shared rows by transfer and of held-out ones by learning alone,
and scores of rows that it is asked for later, of these without an id. The target learns labels of such rows and, by
very many, the direction of the source's translator. Both learn which rows they share, and how many rows and parameters
there are. All this assumes that both follow the protocol: who deviates can have single numbers opened.

Differs from the paper: the sign and the scale of the loss's derivatives are corrected; scores have an offset and labels
are centred, without which scores of unbalanced or shifted rows are useless; one second moment replaces a matrix for
every row; means replace sums; the loss is masked like the gradients; replies are packed, masked over the whole
plaintext ring and re-randomised; squared distance aligns codes by default; a fit to the labelled rows alone stands by
and takes over where transfer does harm.
"""

from colonnade.exchanges.public_keys import PublicModulus
from colonnade.messages import between, template_of
from colonnade.methods.ftl import messages, predict, train, validate
from colonnade.methods.ftl.config import FTL, cautions
from colonnade.session import Method, Role, Stage

__all__ = ["FTL", "METHOD"]

_BOTH = ("source", "target")
_KEYS = between(PublicModulus, _BOTH, _BOTH).where(lambda plan: bool(plan.config["protection"] == "paillier"))
_STEPS = (
    _KEYS,
    messages.LayerInputs,
    messages.LabelledRows,
    messages.SourceSignals,
    messages.TargetSignals,
    messages.MaskedEncoderGradient,
    messages.OpenedEncoderGradient,
    messages.Verdict,
)
_SCORES = (
    between(messages.CodesToScore, "target", "source"),
    between(messages.MaskedScores, "source", "target"),
    between(messages.OpenedScores, "target", "source"),
)
_ALONE = (messages.LabelsToFit, messages.ScoresAlone)
_TAKING_OVER = (messages.Choice, messages.MaskedFit, messages.OpenedFit, messages.OwnLabels)

METHOD = Method(
    name="ftl",
    title="Federated transfer learning",
    citation='Y. Liu, Y. Kang, C. Xing, T. Chen, Q. Yang, "A Secure Federated Transfer Learning Framework", IEEE '
    "Intelligent Systems 35(4), 2020",
    situation="the partner has labels, you have almost none; scores customers only you know; encrypted",
    config=FTL,
    roles=(
        Role("source", "labels, and columns of its own", at_most=None, has_label=True),
        Role("target", "other columns about some of the same rows, and about more", at_most=None),
    ),
    lead=("source", "target"),
    stages={
        "train": Stage(
            roles={"source": train.source, "target": train.target},
            messages=(
                *_STEPS,
                *_SCORES,
                *(template_of(one).where(lambda plan: plan.config["safeguard"]) for one in (*_ALONE, *_TAKING_OVER)),
            ),
            rows="pairwise",
            makes_model=True,
        ),
        "validate": Stage(
            roles={"source": validate.source, "target": validate.target},
            messages=(
                *_STEPS,
                *_ALONE,
                messages.FoldRows,
                messages.CodesToScore,
                messages.MaskedScores,
                messages.OpenedScores,
                messages.RowCount,
                messages.PredictedLabels,
                messages.MirroredSignals,
            ),
            rows="pairwise",
        ),
        "predict": Stage(
            roles={"source": predict.source, "target": predict.target},
            messages=(
                _KEYS,
                messages.RowsToScore,
                *_SCORES,
                between(messages.PredictedLabels, "source", "target"),
                *(
                    template_of(one).where(lambda plan: len(plan.roles["source"]) > 1)
                    for one in (messages.ScoreParts, messages.AnswerParts)
                ),
            ),
            rows="own",
            rows_of="target",
        ),
    },
    cautions=cautions,
)
