"""Record anew what methods do: ``python -m tests.recorder.record [--names] [part of a variant's name]``.

It says what is not as it was, and leaves alone what is. With ``--names`` it takes over other names of messages, and
nothing else: where anything but a name differs, it says so and leaves the variant as it was recorded.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.recorder.compare import differences
from tests.recorder.observe import environment, observe
from tests.recorder.variants import VARIANTS, Variant

FOLDER = Path(__file__).parent / "recorded"


# One sign for each kind of message of a variant, so that what crossed a channel is a word.
_SIGNS = "".join(filter(str.isalpha, map(chr, range(0x41, 0x250))))


def read(method: str) -> dict[str, Any]:
    """Return what was recorded of a method, by variant, and in which environment."""
    path = FOLDER / f"{method}.json"
    found = json.loads(path.read_text("utf-8")) if path.exists() else {"environment": {}, "variants": {}}
    for variant in found["variants"].values():
        kinds = variant.pop("kinds")
        for stage in variant.values():
            stage["messages"] = {channel: [kinds[sign] for sign in word] for channel, word in stage["messages"].items()}
    return found


def write(method: str, found: dict[str, Any]) -> None:
    """Keep what was recorded of a method, short and one thing to a line."""
    variants = {}
    for name, variant in found["variants"].items():
        crossed = [one for stage in variant.values() for ones in stage["messages"].values() for one in ones]
        kinds = list(dict.fromkeys(crossed))
        signs = dict(zip(kinds, _SIGNS[: len(kinds)], strict=True))
        variants[name] = {"kinds": {sign: kind for kind, sign in signs.items()}} | {
            stage: {
                "messages": {channel: "".join(map(signs.get, ones)) for channel, ones in about["messages"].items()},
                "numbers": about["numbers"],
            }
            for stage, about in variant.items()
        }
    text = json.dumps({**found, "variants": variants}, indent=0, ensure_ascii=False)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{method}.json").write_text(text + "\n", "utf-8")


def main(*arguments: str) -> int:
    """Record the variants whose name has this in it, each twice to see that it repeats; return 1 if one does not."""
    odd: list[str] = []
    only_names, part = "--names" in arguments, " ".join(one for one in arguments if one != "--names")
    for method in dict.fromkeys(one.method for one in VARIANTS):
        mine = [one for one in VARIANTS if one.method == method]
        chosen = [one for one in mine if part in str(one)]
        if chosen:
            odd += _rename(method, chosen) if only_names else _record(method, mine, chosen)
    print("".join(f"{one}\n" for one in odd), end="")
    return int(bool(odd))


def _rename(method: str, chosen: list[Variant]) -> list[str]:
    """Take over other names of messages where nothing else differs; say what else does."""
    known, odd = read(method), []
    is_same = known["environment"] == environment()
    for variant in chosen:
        old, new = known["variants"][variant.name], observe(variant)
        for stage in (one for one in old if one in new):
            for channel, now in new[stage]["messages"].items():
                before = old[stage]["messages"].get(channel, [])
                if len(before) == len(now):
                    renamed = [_named(one, other) for one, other in zip(before, now, strict=True)]
                    old[stage]["messages"][channel] = renamed
        said = differences(old, new, within=variant.within, is_same_machine=is_same, elsewhere=variant.elsewhere)
        odd += [f"{variant}: {one}" for one in said]
        if said:
            known["variants"][variant.name] = read(method)["variants"][variant.name]
    write(method, known)
    return odd


def _named(old: str, new: str) -> str:
    way, _, *rest = old.split(" ")
    return " ".join([way, new.split(" ")[1], *rest])


def _record(method: str, mine: list[Variant], chosen: list[Variant]) -> list[str]:
    known, here = read(method), environment()
    is_same = known["environment"] == here
    if not is_same and known["variants"]:
        print(f"{method} was recorded elsewhere, so all of it is recorded anew.")
        chosen = mine
    found, odd = dict(known["variants"]), []
    for variant in chosen:
        old, new = found.get(variant.name), observe(variant)
        odd += [
            f"{variant} does not repeat. {one}"
            for one in differences(new, observe(variant), within=variant.within, is_same_machine=True)
        ]
        said = ["new"]
        if old is not None:
            said = differences(old, new, within=variant.within, is_same_machine=is_same, elsewhere=variant.elsewhere)
        print("".join(f"{variant}: {one}\n" for one in said), end="", flush=True)
        # What differs within the limit alone is left as it is, so that a commit shows nothing but what changed.
        found[variant.name] = new if said or not is_same else old
    kept = {one.name: found[one.name] for one in mine if one.name in found}
    write(method, {"environment": here, "variants": kept})
    return odd


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
