"""FairVFL: a vertical model whose code carries as little as possible of attributes that sit at other parties.

T. Qi et al., "FairVFL: A Fair Vertical Federated Learning Framework with Contrastive Adversarial Learning", NeurIPS
2022.

Roles: ``label_holder``, which has the task's labels; ``feature_holder``, any number, with columns; ``aggregator``,
which has no table; ``attribute_holder``, any number, with sensitive columns such as gender or age. Label holder and
feature holders may have sensitive columns too.

What each party learns. The aggregator learns every party's codes, and from the task's gradients the labels. From the
attributes' gradients it learns, without ``label_epsilon``, every sensitive value: directions fall into as many heaps as
there are classes. With it, it learns answers that were drawn at random once. The label holder learns the code, or, with
``task_cut = "server"``, scores only. An attribute holder learns protected codes: a few numbers about every row.

Differs from the paper: attention is scaled; the order of updates, the signs and what is kept fixed are made precise;
mappers take one step on both losses, because with an Adam of its own the contrastive weight has no effect. Its removal
leaves attributes to be read by a strong attacker, so that ``removal = "robust"``, the default, narrows the code, adds
noise and lets adversaries learn faster. Protected codes are narrow and noised; the contrastive step has not been seen
to protect them.
"""

from colonnade.exchanges.group_counts import CountsByGroup, SealedColumns
from colonnade.exchanges.public_keys import PublicModulus
from colonnade.messages import between, template_of
from colonnade.methods.fairvfl import audit, messages, predict, sweep, train
from colonnade.methods.fairvfl.config import AGGREGATOR, FairVFL, cautions, removes, trains_plain_model
from colonnade.methods.fairvfl.messages import COUNTED
from colonnade.session import Method, Role, Stage

__all__ = ["METHOD", "FairVFL"]

_SCORE = (messages.Amounts, messages.Offer, messages.LocalCode, messages.UnifiedCode, messages.TaskScores)
_LEARN = (messages.TaskGradient, messages.LocalGradient, messages.Mark)
_REMOVE = (
    *(template_of(one).where(removes) for one in (messages.ProtectedCode, messages.DiscriminatorGradient)),
    *(
        template_of(one).where(removes).where(lambda plan: plan.config["mapper_step"] != "merged")
        for one in (messages.ProtectedCodeAgain, messages.AdversarialGradient)
    ),
)
# A plain model to compare with: its code goes to who attacks it and, where that has the task's model, to the label
# holder.
_COMPARE = (
    between(messages.PlainCodes, AGGREGATOR, COUNTED).where(trains_plain_model),
    between(messages.PlainCodes, AGGREGATOR, "label_holder")
    .where(trains_plain_model)
    .where(lambda plan: plan.config["task_cut"] != "server"),
)

METHOD = Method(
    name="fairvfl",
    title="Fair vertical federated learning",
    citation='T. Qi et al., "FairVFL: A Fair Vertical Federated Learning Framework with Contrastive Adversarial '
    'Learning", NeurIPS 2022',
    situation="the model must not carry gender or age, which sit at yet another party",
    config=FairVFL,
    roles=(
        Role("label_holder", "the task's labels, and any columns of its own", has_label=True),
        Role("feature_holder", "columns", at_least=0, at_most=None),
        Role(AGGREGATOR, "nothing: it makes one code of all codes", has_rows=False),
        Role("attribute_holder", "sensitive columns, and nothing else", at_least=0, at_most=None),
    ),
    lead="label_holder",
    stages={
        "train": Stage(
            roles={
                "label_holder": train.label_holder,
                "feature_holder": train.feature_holder,
                AGGREGATOR: train.aggregator,
                "attribute_holder": train.attribute_holder,
            },
            messages=(*_SCORE, *_LEARN, *_REMOVE),
            makes_model=True,
        ),
        "audit": Stage(
            roles={
                "label_holder": audit.label_holder,
                "feature_holder": audit.feature_holder,
                AGGREGATOR: audit.aggregator,
                "attribute_holder": audit.attribute_holder,
            },
            messages=(
                *_SCORE,
                messages.AttackCodes,
                messages.AttackResult,
                messages.Countable,
                messages.CountRequest,
                between(PublicModulus, "label_holder", COUNTED),
                between(SealedColumns, "label_holder", COUNTED),
                between(CountsByGroup, COUNTED, "label_holder"),
                *_COMPARE,
                *(template_of(one).where(trains_plain_model) for one in _LEARN),
            ),
            after=("train",),
            scores=True,
        ),
        "sweep": Stage(
            roles={
                "label_holder": sweep.label_holder,
                "feature_holder": sweep.feature_holder,
                AGGREGATOR: sweep.aggregator,
                "attribute_holder": sweep.attribute_holder,
            },
            messages=(
                *_SCORE,
                *_LEARN,
                *_REMOVE,
                messages.Countable,
                messages.AttackResult,
                template_of(messages.VariantCodes).where(lambda plan: any(plan.config["sweep"])),
                *_COMPARE,
            ),
        ),
        "predict": Stage(
            roles={
                "label_holder": predict.label_holder,
                "feature_holder": predict.feature_holder,
                AGGREGATOR: predict.aggregator,
            },
            messages=_SCORE,
            scores=True,
        ),
    },
    cautions=cautions,
)
