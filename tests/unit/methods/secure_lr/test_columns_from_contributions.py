"""A curious label holder looks for the feature holder's columns in the contributions to scores."""

from __future__ import annotations

import numpy as np
from tests.references import shared_rows
from tests.unit.methods.secure_lr.worlds import HALF_HELD_OUT, columns_found, contributions, frames, tables
from tests.worlds import integers_for_ciphertexts

import colonnade as cn
from colonnade.data import TableEncoder
from colonnade.launch.baselines import agreed_split
from colonnade.session import derive_seed


def attacked(config: cn.SecureLR) -> tuple[int, cn.Run]:
    """Train, and count the shop's two-valued columns that the bank finds from the validation rows' contributions."""
    brought = tables(frames())
    with integers_for_ciphertexts(), contributions() as seen:
        run = cn.simulate(config, brought, seed=7, evaluate=HALF_HELD_OUT)
    places = np.array(shared_rows(brought, derive_seed(7, "alignment"))["shop"])
    split = agreed_split(run.plan, len(places))
    # The batches of training rows are smaller than the one of validation rows, which ends each epoch.
    every = [one for one in seen if len(one) == len(split.validation)]
    encoder = TableEncoder.fit(brought["shop"], places[split.train])
    columns = encoder.transform(brought["shop"], places[split.validation], dtype=np.float64)
    return columns_found(np.hstack(every), columns), run


def test_with_default_settings_no_column_is_found() -> None:
    found, _ = attacked(cn.SecureLR(key_size="insecure_test"))
    assert found == 0
