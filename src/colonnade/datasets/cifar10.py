"""CIFAR-10: small photographs of ten kinds of things, cut into a left and a right half.

A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; for research. Each party holds one half of
every photograph, as in FedCVT's experiment.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, did_you_mean

__all__ = ["CIFAR10_CLASSES", "cifar10_halves"]

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
    for given, known, what in ((part, _PARTS, "part"), (label_at, _SIDES, "side to carry the label")):
        if given not in known:
            raise ConfigError(f"There is no '{given}' as {what}. {did_you_mean(given, known)}")
    kind, column = ("lossless_subset", "webp") if lossless else ("full_jpeg", "jpeg")
    stored = pd.read_parquet(data_file(f"cifar10/cifar10_{part}_{kind}.parquet", _ORIGIN))
    rows = len(stored) if rows is None else rows
    if not 1 <= rows <= len(stored):
        raise ConfigError(
            f"There are {len(stored)} photographs, so rows = {rows} cannot be read. Give 1 to {len(stored)}; with "
            "lossless = False there are 50000 to train and 10000 to test."
        )
    stored = stored.iloc[:rows]
    photographs = _decoded(stored[column])
    ids = stored["original_index"].to_numpy("int64") + _PARTS[part]
    tables = {}
    for side, columns in _SIDES.items():
        pixels = photographs[:, :, :, columns].reshape(rows, -1).astype("float32")
        table = pd.DataFrame(pixels, columns=[f"p{place:04d}" for place in range(pixels.shape[1])])
        table.insert(0, "id", ids)
        if side == label_at:
            table["label"] = [CIFAR10_CLASSES[number] for number in stored["label"]]
        tables[side] = table
    return tables


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
