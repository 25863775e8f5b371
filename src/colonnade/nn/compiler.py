"""Keep torch's compiler out of processes that compile nothing.

An optimizer's first step loads ``torch._dynamo``, only to tell it not to look. That takes nearly two seconds, which a
party that was killed and started again spends while all others wait. So a stand-in answers those two calls. Whoever
asks it for anything else, such as a user's module with ``torch.compile``, gets the real one.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["spare_compiler"]

_NAME = "torch._dynamo"


class _StandIn(types.ModuleType):
    """Knows the two functions that optimizers call; becomes the real module when more is wanted."""

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None:
        """Do nothing, as the real one does outside of compiled code."""

    @staticmethod
    def disable(function: Callable[..., Any], *_: Any, **__: Any) -> Callable[..., Any]:
        """Return a function as it is: nothing compiles it."""
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__path__", "__all__"):
            raise AttributeError(name)  # inspected, as all modules are now and then, not used
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
            vars(torch).pop("_dynamo", None)
        return getattr(importlib.import_module(_NAME), name)


def spare_compiler() -> None:
    """Put the stand-in where optimizers look, unless the real module is loaded already."""
    if _NAME not in sys.modules:
        sys.modules[_NAME] = _StandIn(_NAME)
