"""Noise and disguises for what would give labels or rows away.

Nothing here knows of sessions or messages.
"""

from colonnade.privacy.cells import (
    CELL_GRID,
    CellBudget,
    CellColumn,
    CellRelease,
    Mechanism,
    largest_whole_laplace,
    whole_laplace,
)
from colonnade.privacy.coae import MOST_CLASSES, LabelDisguise
from colonnade.privacy.gaussian import RowBudget, clip_rows, sigma_for
from colonnade.privacy.label_response import UNKNOWN_LABEL, LabelBudget, LabelResponse, flip_bound
from colonnade.privacy.leak import AreaUnderRoc, LeakMeter, MeasuredLeak
from colonnade.privacy.marvell import Marvell, content_of, explained_bound
from colonnade.privacy.max_norm import equalise_norms
from colonnade.privacy.noise import SecretNoise, new_key
from colonnade.privacy.optimal_noise import (
    LARGEST_BUDGET,
    ClassNoise,
    TwoClasses,
    auc_bound,
    auc_bound_of_releases,
    best_noise,
    best_noise_along,
    check_budget,
    error_bound,
    noise_within,
)

__all__ = [
    "CELL_GRID",
    "LARGEST_BUDGET",
    "MOST_CLASSES",
    "UNKNOWN_LABEL",
    "AreaUnderRoc",
    "CellBudget",
    "CellColumn",
    "CellRelease",
    "ClassNoise",
    "LabelBudget",
    "LabelDisguise",
    "LabelResponse",
    "LeakMeter",
    "Marvell",
    "MeasuredLeak",
    "Mechanism",
    "RowBudget",
    "SecretNoise",
    "TwoClasses",
    "auc_bound",
    "auc_bound_of_releases",
    "best_noise",
    "best_noise_along",
    "check_budget",
    "clip_rows",
    "content_of",
    "equalise_norms",
    "error_bound",
    "explained_bound",
    "flip_bound",
    "largest_whole_laplace",
    "new_key",
    "noise_within",
    "sigma_for",
    "whole_laplace",
]
