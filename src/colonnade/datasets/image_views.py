"""Images of which each of two parties has lost another part.

As in the experiments of M. Gong et al., "Multi-party dual learning" (IEEE Transactions on Cybernetics, 2022): something
stood before the camera of party A, so that it holds the lower rows only, and the images of party B are stained in their
lower right corner. Most of what is left they hold both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.errors import ConfigError, did_you_mean

__all__ = ["CIFAR10_VIEWS", "MNIST_VIEWS", "ImageViews"]

_PARTIES = ("a", "b")


@dataclass(frozen=True)
class ImageViews:
    """Which pixels of square images the parties `a` and `b` hold.

    A pixel's place is that in the flattened image: colours x rows x columns, in this order.
    """

    colours: int
    side: int
    lower: int
    """How many rows from the bottom `a` holds."""
    stain: tuple[int, int]
    """How many rows and columns of the lower right corner `b` has lost."""

    def places(self, party: str) -> npt.NDArray[np.int64]:
        """Return the places of a party's pixels, in rising order.

        >>> [len(MNIST_VIEWS.places(party)) for party in ("a", "b")]
        [504, 560]
        """
        if party not in _PARTIES:
            raise ConfigError(
                f"There is no party '{party}' among those of these images. {did_you_mean(party, _PARTIES)}"
            )
        return np.flatnonzero(self._held()[party])

    def columns(self, party: str) -> list[str]:
        """Return the names of a party's pixels: `common_` if both hold it, else `a_` or `b_`, and then its place."""
        places = self.places(party)
        is_common = np.logical_and(*self._held().values())
        return [f"{'common' if is_common[place] else party}_{place}" for place in places]

    def tables(
        self, images: npt.NDArray[np.float32], ids: list[str], label: str, labels: npt.NDArray[Any] | list[str]
    ) -> dict[str, pd.DataFrame]:
        """Return each party's table of these flattened images: an `id`, its pixels, and at `b` the label."""
        tables = {}
        for party in _PARTIES:
            table = pd.DataFrame(images[:, self.places(party)], columns=self.columns(party))
            table.insert(0, "id", ids)
            tables[party] = table
        tables["b"][label] = labels
        return tables

    def _held(self) -> dict[str, npt.NDArray[np.bool_]]:
        lower = np.zeros((self.colours, self.side, self.side), np.bool_)
        lower[:, self.side - self.lower :] = True
        clean = np.ones_like(lower)
        rows, columns = self.stain
        clean[:, self.side - rows :, self.side - columns :] = False
        return {"a": lower.ravel(), "b": clean.ravel()}


MNIST_VIEWS = ImageViews(colours=1, side=28, lower=18, stain=(14, 16))
"""224 pixels only at `a`, 280 only at `b`, 280 at both."""

CIFAR10_VIEWS = ImageViews(colours=3, side=32, lower=20, stain=(16, 18))
"""864 values only at `a`, 1152 only at `b`, 1056 at both. The paper gives sizes only: they are taken as rows x
columns, of the same regions as in MNIST, in all three colours."""
