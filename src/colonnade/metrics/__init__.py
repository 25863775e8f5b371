"""How good a model is on rows it has not seen, as plain numbers and curves.

Binary: AUC, KS, accuracy, F1, log loss, Brier score, calibration error. Multi-class: accuracy, macro F1, macro AUC,
log loss, calibration error. Regression: RMSE, MAE, R². scikit-learn computes what it has for classes; KS, the
calibration error and the metrics of regression, for labels of any size, are written here. Everything an
:class:`Evaluation` holds can be written as JSON.
"""

from colonnade.metrics.evaluation import Evaluation, evaluate
from colonnade.metrics.names import TASKS, headline, higher_is_better
from colonnade.metrics.uncertainty import auc_interval, interval, proportion_interval

__all__ = [
    "TASKS",
    "Evaluation",
    "auc_interval",
    "evaluate",
    "headline",
    "higher_is_better",
    "interval",
    "proportion_interval",
]
