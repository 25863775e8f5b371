"""How good a model is on rows it has not seen, as plain numbers and curves.

Binary: AUC, KS, accuracy, F1, log loss, Brier score, calibration error. Multi-class: accuracy, macro F1, macro AUC,
log loss, calibration error. Regression: RMSE, MAE, R². scikit-learn computes what it has for classes; KS, the
calibration error and the metrics of regression, for labels of any size, are written here. Everything an
:class:`Evaluation` holds can be written as JSON. Beside these: how well gradients give labels away, how differently
decisions fall on groups, how well lists are ordered, and how much an attacker reads from representations.
"""

from colonnade.metrics.classes import (
    ClassScores,
    above_threshold,
    chance_band,
    class_scores,
    macro_f1,
    tuned_threshold,
)
from colonnade.metrics.counting import area_under_roc, widest_gap
from colonnade.metrics.evaluation import Evaluation, evaluate
from colonnade.metrics.fairness import (
    GroupCounts,
    demographic_parity_gap,
    equal_opportunity_gap,
    equalised_odds_gap,
)
from colonnade.metrics.gaps import Gap
from colonnade.metrics.inference import (
    Inference,
    ValueInference,
    average_inference,
    measure_inference,
    measure_value_inference,
)
from colonnade.metrics.leakage import (
    direction_attack_auc,
    norm_attack_auc,
    sign_attack_accuracy,
    spectral_attack_auc,
)
from colonnade.metrics.names import TASKS, headline, headline_of, higher_is_better
from colonnade.metrics.operating import USUAL, OperatingPoint, Threshold, choose_threshold, given_threshold
from colonnade.metrics.paired import Gain, gains
from colonnade.metrics.ranking import Ranking, exposure_gap, exposures, rank_impressions
from colonnade.metrics.uncertainty import auc_interval, interval, proportion_interval

__all__ = [
    "TASKS",
    "USUAL",
    "ClassScores",
    "Evaluation",
    "Gain",
    "Gap",
    "GroupCounts",
    "Inference",
    "OperatingPoint",
    "Ranking",
    "Threshold",
    "ValueInference",
    "above_threshold",
    "area_under_roc",
    "auc_interval",
    "average_inference",
    "chance_band",
    "choose_threshold",
    "class_scores",
    "demographic_parity_gap",
    "direction_attack_auc",
    "equal_opportunity_gap",
    "equalised_odds_gap",
    "evaluate",
    "exposure_gap",
    "exposures",
    "gains",
    "given_threshold",
    "headline",
    "headline_of",
    "higher_is_better",
    "interval",
    "macro_f1",
    "measure_inference",
    "measure_value_inference",
    "norm_attack_auc",
    "proportion_interval",
    "rank_impressions",
    "sign_attack_accuracy",
    "spectral_attack_auc",
    "tuned_threshold",
    "widest_gap",
]
