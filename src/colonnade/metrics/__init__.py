"""How good a model is on rows it has not seen, as plain numbers and curves.

Binary: AUC, KS, accuracy, F1, log loss, Brier score, calibration error. Multi-class: accuracy, macro F1, macro AUC,
log loss, calibration error. Regression: RMSE, MAE, R². scikit-learn computes what it has for classes; KS, the
calibration error and the metrics of regression, for labels of any size, are written here. Everything an
:class:`Evaluation` holds can be written as JSON. Beside these: how well gradients give labels away.
"""

from colonnade.metrics.counting import area_under_roc, widest_gap
from colonnade.metrics.evaluation import Evaluation, evaluate
from colonnade.metrics.leakage import direction_attack_auc, norm_attack_auc, sign_attack_accuracy
from colonnade.metrics.names import TASKS, headline, higher_is_better
from colonnade.metrics.uncertainty import auc_interval, interval, proportion_interval

__all__ = [
    "TASKS",
    "Evaluation",
    "area_under_roc",
    "auc_interval",
    "direction_attack_auc",
    "evaluate",
    "headline",
    "higher_is_better",
    "interval",
    "norm_attack_auc",
    "proportion_interval",
    "sign_attack_accuracy",
    "widest_gap",
]
