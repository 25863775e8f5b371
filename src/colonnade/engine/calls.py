"""Call functions by name, and keep what they have prepared."""

from __future__ import annotations

import importlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from colonnade import errors
from colonnade.errors import ColonnadeError, DeclarationError, EngineFailed

__all__ = ["KEPT", "Caller", "check_name", "function_named", "raise_again", "told"]

KEPT = 8
"""How many contexts are kept at most; a table may take 60 MB."""

_NAME = re.compile(r"colonnade(\.[a-z_][a-z0-9_]*)+:[A-Za-z_]\w*", re.ASCII)

Load = Callable[[], memoryview]


class Caller:
    """Call named functions, preparing each context only once. Any number of threads may use it."""

    def __init__(self) -> None:
        self._slots: OrderedDict[tuple[str, bytes], _Slot] = OrderedDict()
        self._lock = threading.Lock()

    def call(self, function: str, prepare: str, digest: bytes, load: Load, chunk: bytes) -> bytes:
        """Return the function's answer; ``load`` is asked for the context if it is not prepared yet."""
        called = function_named(function)
        answer = _guarded(function, called, self._prepared(prepare, digest, load), chunk)
        if not isinstance(answer, bytes):
            raise DeclarationError(f"{function} returned {type(answer).__name__} where bytes were expected.")
        return answer

    def forget(self) -> None:
        """Forget all contexts."""
        with self._lock:
            self._slots.clear()

    def _prepared(self, prepare: str, digest: bytes, load: Load) -> Any:
        with self._lock:
            slot = self._slots.setdefault((prepare, digest), _Slot())
            self._slots.move_to_end((prepare, digest))
            if len(self._slots) > KEPT:
                self._slots.popitem(last=False)
        # Only who needs the same context waits for it.
        with slot.lock:
            if not slot.is_ready:
                slot.value = _guarded(prepare, lambda: function_named(prepare)(load()))
                slot.is_ready = True
            return slot.value


@dataclass
class _Slot:
    value: Any = None
    is_ready: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


def check_name(name: str) -> None:
    """Refuse what does not name a function of colonnade: an engine must not be a way to run anything else."""
    if not _NAME.fullmatch(name):
        raise DeclarationError(
            f"An engine cannot run '{name}'. Name a function of colonnade as 'colonnade.module:function'."
        )


def function_named(name: str) -> Callable[..., Any]:
    """Return a function of colonnade by its name."""
    check_name(name)
    module_name, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise DeclarationError(f"An engine cannot run '{name}': {type(error).__name__}. Check the name.") from error
    # What a module of colonnade has imported from elsewhere is not a function of colonnade.
    origin = str(getattr(found, "__module__", ""))
    if not callable(found) or not origin.startswith("colonnade."):
        raise DeclarationError(f"An engine cannot run '{name}': it is not a function of colonnade.")
    function: Callable[..., Any] = found
    return function


def told(error: ColonnadeError) -> tuple[str, str]:
    """Return an error as the name of its kind and its message, to be raised again in another process."""
    kind = next(one for one in type(error).__mro__ if getattr(errors, one.__name__, None) is one)
    return kind.__name__, str(error)


def raise_again(kind: str, message: str) -> NoReturn:
    """Raise an error as another process told it."""
    found = getattr(errors, kind, None)
    if not isinstance(found, type) or not issubclass(found, ColonnadeError):
        found = EngineFailed
    # Some errors take other things than their message.
    error: ColonnadeError = found.__new__(found)
    error.args = (message,)
    raise error


def _guarded(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except ColonnadeError:
        raise
    except Exception as error:
        # Not the error's own message: it may hold values of rows.
        raise EngineFailed(
            f"{name} failed with an unforeseen {type(error).__name__} {_place(error)}. This is a fault in colonnade; "
            '--traceback with kind = "inline" in [engine] of party.toml shows it.'
        ) from error


def _place(error: Exception) -> str:
    """Say where an error came from, in the file's name and line only."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
