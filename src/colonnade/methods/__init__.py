"""One package per method, in the order in which `colonnade methods` lists them."""

from __future__ import annotations

from typing import Any

from colonnade.errors import ConfigError, did_you_mean
from colonnade.methods.fairvfl import METHOD as FAIRVFL
from colonnade.methods.fedcvt import METHOD as FEDCVT
from colonnade.methods.ftl import METHOD as FTL
from colonnade.methods.mpdl import METHOD as MPDL
from colonnade.methods.prada import METHOD as PRADA
from colonnade.methods.secure_lr import METHOD as SECURE_LR
from colonnade.methods.splitnn import METHOD as SPLITNN
from colonnade.session import Method

__all__ = ["METHODS", "method_for", "method_named"]

METHODS: tuple[Method, ...] = (SPLITNN, SECURE_LR, FEDCVT, FTL, MPDL, PRADA, FAIRVFL)


def method_named(name: str) -> Method:
    """Return a method by name; raise ConfigError with a suggestion for an unknown one."""
    for method in METHODS:
        if method.name == name:
            return method
    raise ConfigError(f"There is no method '{name}'. {did_you_mean(name, [method.name for method in METHODS])}")


def method_for(config: Any) -> Method:
    """Return the method whose settings these are."""
    for method in METHODS:
        if type(config) is method.config:
            return method
    names = ", ".join(method.config.__name__ for method in METHODS)
    raise ConfigError(f"{type(config).__name__} is not the settings of any method. Use one of: {names}.")
