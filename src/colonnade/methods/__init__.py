"""One package per method, in the order in which `colonnade methods` lists them, and methods that other packages bring.

A package that is installed beside colonnade offers a method by an entry point of the group `colonnade.methods`, under
the method's name. It is loaded when it is asked for; what is wrong with it stops nothing else.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
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

__all__ = ["GROUP", "METHODS", "known_methods", "method_for", "method_named"]

METHODS: tuple[Method, ...] = (SPLITNN, SECURE_LR, FEDCVT, FTL, MPDL, PRADA, FAIRVFL)
"""Those that come with colonnade."""
GROUP = "colonnade.methods"
"""The group of entry points by which other packages offer theirs."""


def method_named(name: str) -> Method:
    """Return a method by name; raise ConfigError with a suggestion for an unknown one."""
    for method in METHODS:
        if method.name == name:
            return method
    offered = _offered()
    if name in offered:
        return _load(offered[name])
    raise ConfigError(
        f"There is no method '{name}' here. {did_you_mean(name, [*(one.name for one in METHODS), *offered])} One that "
        "does not come with colonnade needs its package at every party: ask your partners for its name and version."
    )


def method_for(config: Any) -> Method:
    """Return the method whose settings these are."""
    methods, faults = known_methods()
    for method in methods:
        if type(config) is method.config:
            return method
    names = ", ".join(method.config.__name__ for method in methods)
    said = [f"{type(config).__name__} is not the settings of any method. Use one of: {names}.", *faults]
    raise ConfigError(" ".join(said))


def known_methods() -> tuple[tuple[Method, ...], tuple[str, ...]]:
    """Return all methods, those of other packages last, and what is wrong with packages whose method cannot be used."""
    found, faults = list(METHODS), []
    for offers in _offered().values():
        try:
            found.append(_load(offers))
        except ConfigError as error:
            faults.append(str(error))
    return tuple(found), tuple(faults)


def _offered() -> dict[str, tuple[EntryPoint, ...]]:
    """Return what other packages offer, by the method's name."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for one in _entry_points():
        found[one.name] = (*found.get(one.name, ()), one)
    return found


@functools.cache
def _entry_points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def _load(offers: tuple[EntryPoint, ...]) -> Method:
    name, packages = offers[0].name, " and ".join(map(_package, offers))
    if any(method.name == name for method in METHODS):
        raise ConfigError(f"{packages} offers a method '{name}', which is the name of one of colonnade's own.")
    if len(offers) > 1:
        raise ConfigError(f"{packages} each offer a method '{name}'. Uninstall all but one of them.")
    return _loaded(offers[0])


@functools.cache
def _loaded(offer: EntryPoint) -> Method:
    name, where = offer.name, _package(offer)
    try:
        method = offer.load()
    except Exception as error:
        raise ConfigError(
            f"The method '{name}' of {where} cannot be loaded: {type(error).__name__}: {error}. Repair or uninstall "
            "that package."
        ) from error
    if not isinstance(method, Method) or method.name != name:
        raise ConfigError(f"{where} offers as '{name}' what is no Method of that name. Tell its author.")
    return replace(method, package=where)


def _package(offer: EntryPoint) -> str:
    return "an unnamed package" if offer.dist is None else f"{offer.dist.name} {offer.dist.version}"
