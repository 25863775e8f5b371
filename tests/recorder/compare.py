"""Say how what is played now differs from what was recorded."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

ELSEWHERE = 1e-4
"""How far numbers may be apart on another machine, in parts of the largest; there digests say nothing."""
_LEAST = 0.01
_SIZE = re.compile(r" ~(\d+)$")


def differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    within: float,
    is_same_machine: bool,
    elsewhere: float = ELSEWHERE,
) -> list[str]:
    """Return one sentence for everything that is not as it was."""
    found = [] if list(old) == list(new) else [f"The stages were {', '.join(old)} and are {', '.join(new)}."]
    for stage in (one for one in old if one in new):
        said = [
            *_of_messages(old[stage]["messages"], new[stage]["messages"]),
            *_of_numbers(old[stage]["numbers"], new[stage]["numbers"], within, None if is_same_machine else elsewhere),
        ]
        found += [f"{stage}: {one}" for one in said]
    return found


def _of_messages(old: Mapping[str, list[str]], new: Mapping[str, list[str]]) -> Iterator[str]:
    for channel in sorted({*old, *new}):
        if channel not in new or channel not in old:
            yield f"{channel}: {'now' if channel in new else 'no longer'} there are messages between these two."
            continue
        before, now = old[channel], new[channel]
        pairs = dict.fromkeys(pair for pair in zip(before, now, strict=False) if not _are_alike(*pair))
        if len(before) == len(now) and all(_are_alike(_bare(one), _bare(other)) for one, other in pairs):
            # Nothing but names or protections changed, so it is enough to say which.
            yield from (f"{channel}: the message '{one}' is now '{other}'." for one, other in pairs)
            continue
        at = next((place for place, pair in enumerate(zip(before, now, strict=False)) if pair in pairs), None)
        at = min(len(before), len(now)) if at is None else at
        was, is_now = (f"'{one[at]}'" if at < len(one) else "nothing" for one in (before, now))
        yield f"{channel}: message {at + 1} of {len(before)} was {was} and is {is_now}.{_counts(before, now)}"


def _counts(before: list[str], now: list[str]) -> str:
    one, other = (Counter(" ".join(kind.split(" ")[:3]) for kind in crossed) for crossed in (before, now))
    changed = [
        f"{kind}: {one[kind]} before, {other[kind]} now" for kind in {**one, **other} if one[kind] != other[kind]
    ]
    return f" In number: {'; '.join(changed)}." if changed else ""


def _are_alike(one: str, other: str) -> bool:
    """Tell whether two messages are the same; sizes of whole numbers vary a little."""
    sizes = [_SIZE.search(kind) for kind in (one, other)]
    if one == other or sizes[0] is None or sizes[1] is None:
        return one == other
    first, second = (int(found.group(1)) for found in sizes if found)
    return _SIZE.sub("", one) == _SIZE.sub("", other) and abs(first - second) <= 2 + 0.05 * first


def _bare(kind: str) -> str:
    """Return who sends how much to whom, without the message's name and protection."""
    way, _, _, *rest = kind.split(" ")
    return " ".join([way, *rest])


def _of_numbers(
    old: Mapping[str, str], new: Mapping[str, str], within: float, elsewhere: float | None
) -> Iterator[str]:
    gone, added = ([name for name in one if name not in other] for one, other in ((old, new), (new, old)))
    for name in gone:
        same = next((one for one in added if new[one] == old[name]), None)
        yield f"{name} is gone." if same is None else f"{name} is now called {same}."
        added = [one for one in added if one != same]
    yield from (f"{name} is new." for name in added)
    for name in (one for one in old if one in new and old[one] != new[one]):
        (kind, *before), (now_kind, *now) = old[name].split(" "), new[name].split(" ")
        if kind != now_kind or len(before) != len(now):
            yield f"{name} was {kind} and is {now_kind}."
            continue
        one, other = (np.frombuffer(base64.b64decode(said[0]), "<f4").astype(float) for said in (before, now))
        apart, largest = float(np.abs(one - other).max(initial=0.0)), float(np.abs(one).max(initial=0.0))
        allowed = max(within * (1.0 + largest), (elsewhere or 0.0) * (_LEAST + largest))
        if before[1:] != now[1:] and elsewhere is None:
            yield f"{name} is not the same bit for bit: it is {apart:.1e} away from what it was."
        elif apart > allowed:
            yield f"{name} is {apart:.1e} away from what it was, and {allowed:.1e} is allowed."
