"""Tables in which some rows have no label."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from colonnade.data import PartyTable
from colonnade.errors import TableError


def table(labels: list[object], **options: object) -> PartyTable:
    frame = pd.DataFrame({"id": range(len(labels)), "y": pd.Series(labels, dtype=object), "age": 30.0})
    return PartyTable(frame, id="id", label="y", name="bank", **{"unlabelled": True, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("labels", [[0, 1, None, 1], [0.0, 1.0, np.nan, 1.0], ["no", "yes", None, "yes"]])
def test_rows_without_a_label_are_known(labels: list[object]) -> None:
    found = table(labels)
    assert found.is_labelled.tolist() == [True, True, False, True]
    assert found.labels is not None
    known = found.labels[found.is_labelled]
    assert list(known) == [labels[0], labels[1], labels[3]]


def test_without_leave_a_missing_label_is_refused() -> None:
    with pytest.raises(TableError, match="label"):
        table([0, 1, None], unlabelled=False)


def test_a_full_label_column_is_all_labelled() -> None:
    assert table([0, 1, 1]).is_labelled.all()


def test_no_label_at_all_or_one_class_is_refused() -> None:
    for labels in ([None, None], [1, None, 1]):
        with pytest.raises(TableError):
            table(list(labels))


def test_which_rows_have_a_label_belongs_to_the_content() -> None:
    """A resumed run must notice that labels were added or removed."""
    first, second = table([0, 1, None, 1]), table([0, 1, 1, None])
    assert first.digest() != second.digest()
