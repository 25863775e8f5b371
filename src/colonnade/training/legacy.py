"""What methods that are not on the spine yet need beside it. The last of them takes this file with it."""

from __future__ import annotations

from colonnade.data import TableEncoder
from colonnade.session import ModelPart
from colonnade.training.inputs import Inputs

__all__ = ["encoder_of"]


def encoder_of(part: ModelPart) -> Inputs | TableEncoder | None:
    """Return what turned a party's table into numbers, as its part of a model keeps it; None without columns."""
    if saved := part.document.get("inputs"):
        inputs = Inputs.from_json(saved)
        return inputs if inputs.width else None
    encoder = part.document.get("table_encoder")
    return None if encoder is None else TableEncoder.from_json(encoder)
