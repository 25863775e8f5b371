"""CIFAR-10: small photographs of ten kinds of things, cut into halves or with other parts lost at each party.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; for research. In FedCVT's experiment each
party holds one half of every photograph; in that of multi-party dual learning each has lost another part.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.datasets.image_views import CIFAR10_VIEWS
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["CIFAR10_CLASSES", "cifar10", "cifar10_halves", "cifar10_views"]

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""The classes, in the order of the data's label numbers 0 to 9."""

_ORIGIN = "www.cs.toronto.edu/~kriz/cifar.html (the images as JPEG, or some of them as lossless WebP, in Parquet)"
_SIDES = {"left": slice(0, 16), "right": slice(16, 32)}
_PARTS = {"train": 0, "test": 50_000}


def cifar10_halves(
    *, part: str = "train", label_at: str = "left", lossless: bool = True, rows: int | None = None
) -> dict[str, pd.DataFrame]:
    """Return the tables of the left and of the right halves of the photographs of one part, `train` or `test`.

    A half has 3 colours x 32 rows x 16 columns, in this order, as the columns `p0000` to `p1535`: numbers from 0 to 255
    in single precision, 6 kB a half. `id` is the photograph's place in the original order; in `test` it goes on
    from 50000, so that both parts may stand in one table. The side `label_at` also carries the label `label`, a word.

    `lossless` reads the exact pixels, which are stored for the first 2000 training and 500 test photographs of each
    class; otherwise all 50000 and 10000 are read, from JPEGs that differ from them by 5.8 on average. `rows` stops
    after so many photographs.
    """
    _check_known(label_at, _SIDES, "side to carry the label")
    photographs, numbers, ids = _read(part, lossless, rows)
    tables = {}
    for side, columns in _SIDES.items():
        pixels = photographs[:, :, :, columns].reshape(len(ids), -1).astype("float32")
        table = pd.DataFrame(pixels, columns=[f"p{place:04d}" for place in range(pixels.shape[1])])
        table.insert(0, "id", ids)
        if side == label_at:
            table["label"] = [CIFAR10_CLASSES[number] for number in numbers]
        tables[side] = table
    return tables


def cifar10_views(*, part: str = "train", lossless: bool = True, rows: int | None = None) -> dict[str, pd.DataFrame]:
    """Return the tables of party `a`, the bottom 20 rows, and of party `b`, all but 16 x 18 pixels at the lower right.

    A column ends in its value's place in the flattened photograph, 3 colours x 32 rows x 32 columns: `common_…` at both
    parties, `a_…` and `b_…` at one. Values are from 0 to 1. `b` carries the label `label`, a word. Ids are words such
    as `photograph_00007`; the rest is as in `cifar10_halves`. For arrays at once use `cifar10`.
    """
    photographs, numbers, ids = cifar10(part=part, lossless=lossless, rows=rows)
    labels = [CIFAR10_CLASSES[number] for number in numbers]
    return CIFAR10_VIEWS.tables(photographs, [f"photograph_{place:05d}" for place in ids], "label", labels)


def cifar10(
    *, part: str = "train", lossless: bool = True, rows: int | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return photographs (one flattened photograph of numbers from 0 to 1 per row), class numbers, and ids.

    The arguments are those of `cifar10_halves`.
    """
    photographs, numbers, ids = _read(part, lossless, rows)
    return photographs.reshape(len(ids), -1).astype(np.float32) / np.float32(255), numbers, ids


def _read(
    part: str, lossless: bool, rows: int | None
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the pixels, the class numbers and the ids of the first photographs."""
    _check_known(part, _PARTS, "part")
    kind, column = ("lossless_subset", "webp") if lossless else ("full_jpeg", "jpeg")
    stored = pd.read_parquet(data_file(f"cifar10/cifar10_{part}_{kind}.parquet", _ORIGIN))
    rows = len(stored) if rows is None else rows
    if not 1 <= rows <= len(stored):
        raise ConfigError(
            f"There are {len(stored)} photographs, so rows = {rows} cannot be read. Give 1 to {len(stored)}; with "
            "lossless = False there are 50000 to train and 10000 to test."
        )
    stored = stored.iloc[:rows]
    ids = stored["original_index"].to_numpy("int64") + _PARTS[part]
    return _decoded(stored[column]), stored["label"].to_numpy("int64"), ids


def _check_known(given: str, known: Mapping[str, object], what: str) -> None:
    if given not in known:
        raise ConfigError(f"There is no '{given}' as {what}. {did_you_mean(given, known)}")


def _decoded(files: pd.Series[Any]) -> npt.NDArray[np.uint8]:
    """Return the pixels: photographs x colours x rows x columns."""
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError(
            "Reading photographs needs Pillow, which usually comes with matplotlib but is not installed. Run: "
            "pip install pillow"
        ) from None
    photographs = np.empty((len(files), 3, 32, 32), np.uint8)
    for place, file in enumerate(files):
        with Image.open(io.BytesIO(file)) as image:
            photographs[place] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return photographs
