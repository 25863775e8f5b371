"""Score rows that only the target knows: it gets labels, and no scores; the source learns the scores, and no rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import LabelEncoder, TableEncoder
from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.methods.ftl.config import FTL
from colonnade.methods.ftl.encoder import LARGEST_INPUT, build_encoder
from colonnade.methods.ftl.link import exchange_keys
from colonnade.methods.ftl.messages import answers
from colonnade.methods.ftl.scoring import Scorer, ask_for_scores, give_scores, probabilities
from colonnade.session import Holding, Result, Scores, Session

__all__ = ["source", "target"]

Numbers = npt.NDArray[np.float64]


def source(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party that scores."""
    raise NotImplementedError


def target(session: Session, holding: Holding, config: FTL) -> Result:
    """Play the party whose rows are scored."""
    raise NotImplementedError
