"""Parties that bring more than a table."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

import colonnade as cn


def with_policies(
    tables: Mapping[str, cn.PartyTable], policies: Mapping[str, cn.Policy]
) -> dict[str, cn.PartyTable | cn.Party]:
    """Return tables, and with them, or in their place, the rules of some parties."""
    return {**tables, **{name: cn.Party(tables.get(name), policy=policy) for name, policy in policies.items()}}


def with_modules(
    tables: Mapping[str, cn.PartyTable], modules: Mapping[str, nn.Module]
) -> dict[str, cn.PartyTable | cn.Party]:
    """Return tables, and the networks of some parties."""
    return {**tables, **{name: cn.Party(tables.get(name), module=module) for name, module in modules.items()}}
