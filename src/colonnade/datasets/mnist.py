"""MNIST: 60000 handwritten digits to train and 10000 to test, of 28 x 28 grey pixels.

Y. LeCun, C. Cortes and C. J. C. Burges, 1998. The two views are those of the paper on multi-party dual learning.
"""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.datasets.image_views import MNIST_VIEWS
from colonnade.errors import ConfigError, TableError, did_you_mean

__all__ = ["mnist", "mnist_views"]

_ORIGIN = "yann.lecun.com/exdb/mnist (the four files in idx format, gzipped)"
_PARTS = {"train": "train", "test": "t10k"}
_MAGIC = {"images-idx3": 0x803, "labels-idx1": 0x801}


def mnist(
    *, part: str = "train", rows: int | None = None, seed: int = 0
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return images (one flattened image of numbers from 0 to 1 per row), digits, and places in the published order.

    `rows` draws so many at random, by `seed`, and keeps them in their order.
    """
    if part not in _PARTS:
        raise ConfigError(f"There is no part '{part}' of MNIST. {did_you_mean(part, _PARTS)}")
    pixels, digits = (_read(f"mnist/{_PARTS[part]}-{kind}-ubyte.gz", magic) for kind, magic in _MAGIC.items())
    places = _drawn(len(digits), rows, seed)
    images = pixels[places].reshape(len(places), -1).astype(np.float32) / np.float32(255)
    return images, digits[places].astype(np.int64), places


def mnist_views(*, part: str = "train", rows: int | None = None, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return the tables of party `a`, the bottom 18 rows, and of party `b`, all but 14 x 16 pixels at the lower right.

    A column ends in its pixel's place in the flattened image, from 0 to 783: `common_…` at both parties, `a_…` and
    `b_…` at one. Values are from 0 to 1. `b` carries the label `digit`. Ids are words such as `train_00007`, the place
    in the published order. `rows` draws so many at random, by `seed`; for arrays at once use `mnist`.
    """
    images, digits, places = mnist(part=part, rows=rows, seed=seed)
    return MNIST_VIEWS.tables(images, [f"{part}_{place:05d}" for place in places], "digit", digits)


def _drawn(count: int, rows: int | None, seed: int) -> npt.NDArray[np.int64]:
    if rows is None:
        return np.arange(count)
    if not 1 <= rows <= count:
        raise ConfigError(f"There are {count} images, so rows = {rows} cannot be drawn. Give 1 to {count}.")
    return np.sort(np.random.default_rng(seed).permutation(count)[:rows])


def _read(name: str, magic: int) -> npt.NDArray[np.uint8]:
    """Return the array of an idx file: a magic number, its dimensions, and one byte per value."""
    path, words = data_file(name, _ORIGIN), 1 + (magic & 0xFF)
    try:
        content = gzip.decompress(path.read_bytes())
        header = np.frombuffer(content, ">u4", count=words).tolist()
        if header[0] == magic:
            return np.frombuffer(content, np.uint8, offset=4 * words).reshape(header[1:])
    except (ValueError, OSError, EOFError, zlib.error):
        pass
    raise TableError(f"The data file {name} is not what it should be. Get it again from {_ORIGIN}.")
