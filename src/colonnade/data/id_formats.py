"""What ids look like, told without any of them, and the rule by which more of them would be equal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import IdRule, canonical_ids, is_whole_number, separators_in, written_by

__all__ = ["DIGITS", "LETTERS", "IdFormat", "explain_few_shared", "explain_nothing_shared"]

LETTERS = ("none", "upper", "lower", "mixed")
"""The cases of letters that ids may be written in."""
DIGITS = ("none", "some", "all")
"""How many ids are whole numbers, apart from spaces around, separators inside and a `.0` at the end."""

# The loosest rule in three steps.
_TEXT, _SEPARATED, _FOLDED = IdRule(type="text"), IdRule(separators="drop"), IdRule(case="fold", type="number")
# As a spreadsheet writes long numbers, of which it has then lost the last digits.
_EXPONENT = re.compile(r"\d[.,]\d+[eE]\+?\d+|\d[eE]\+\d+")


@dataclass(frozen=True)
class IdFormat:
    """Summarise what a party's ids look like, without any of them and without counting.

    `is_text` tells text from whole numbers. `separators` and whatever begins with `has` is true of one id at least.
    Lengths are those of ids as they are and, `bare`, of ids without spaces around, separators inside and a `.0` at the
    end. `stays_distinct` says that no two ids are equal under the loosest rule there is. `parts` counts the columns
    that make an id together: then `is_text` says that all of them are text, lengths are added up, and the other claims
    are about any column.
    """

    is_text: bool
    digits: str
    shortest: int
    longest: int
    shortest_bare: int
    longest_bare: int
    has_leading_zeros: bool
    has_spaces: bool
    has_point_zero: bool
    has_exponents: bool
    separators: tuple[str, ...]
    letters: str
    stays_distinct: bool
    parts: int = 1

    @classmethod
    def of(cls, ids: npt.NDArray[np.object_]) -> IdFormat:
        """Summarise an array of ids as a PartyTable holds them; what is None is no id."""
        given = [one for one in ids if one is not None]
        columns = list(zip(*given, strict=True)) if given and isinstance(given[0], tuple) else [tuple(given)]
        texts = [[str(part) for part in column] for column in columns]
        plain = [written_by(column, _TEXT) for column in texts]
        bare = [written_by(column, _SEPARATED) for column in plain]
        every, every_plain, every_bare = ([one for column in form for one in column] for form in (texts, plain, bare))
        trimmed = [one.strip() for one in every]
        lengths, bare_lengths = ([sum(map(len, row)) for row in zip(*form, strict=True)] for form in (texts, bare))
        whole = [one for one in every_bare if is_whole_number(one)]
        has_upper, has_lower = any(one != one.lower() for one in every), any(one != one.upper() for one in every)
        return cls(
            is_text=bool(given) and all(isinstance(part, str) for column in columns for part in column),
            digits=DIGITS[bool(whole) + (len(whole) == len(every) > 0)],
            shortest=min(lengths, default=0),
            longest=max(lengths, default=0),
            shortest_bare=min(bare_lengths, default=0),
            longest_bare=max(bare_lengths, default=0),
            has_leading_zeros=any(len(one) > 1 and one[0] == "0" for one in whole),
            has_spaces=trimmed != every,
            has_point_zero=every_plain != trimmed,
            has_exponents=any(_EXPONENT.fullmatch(one) for one in trimmed),
            separators=separators_in(every_plain),
            letters=LETTERS[has_upper + 2 * has_lower],
            stays_distinct=len(set(canonical_ids(list(zip(*bare, strict=True)), _FOLDED))) == len(given),
            parts=len(columns),
        )

    def __str__(self) -> str:
        has_some_text = self.parts > 1 and self.digits != "all"
        said = ["text" if self.is_text else "text and whole numbers" if has_some_text else "whole numbers"]
        if self.parts > 1:
            said[0] = f"{self.parts} columns of {said[0]}"
        if self.is_text and self.digits == "all":
            said.append("all digits")
        said.append(f"length {_range(self.shortest, self.longest)}")
        if self.letters != "none":
            said.append(f"{self.letters} case")
        said += ["some with leading zeros"] if self.has_leading_zeros else []
        said += ["some with spaces around"] if self.has_spaces else []
        said += ["some ending in .0"] if self.has_point_zero else []
        said += ["some like 1.2E+11"] if self.has_exponents else []
        if self.separators:
            bare = _range(self.shortest_bare, self.longest_bare)
            said.append(f"some with {' and '.join(self.separators)} inside (length {bare} without)")
        return ", ".join(said)


def _range(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}-{most}"


def explain_nothing_shared(formats: Mapping[str, IdFormat], rule: IdRule, *, is_agreed: bool = False) -> str:
    """Explain an empty alignment from the formats of the ids alone; what the rule made equal cannot be the cause."""
    causes, remedy = _explained(formats, rule, is_agreed)
    causes = causes or "the formats agree, so the tables may be about different people or use different id systems"
    return f"The parties share no row. {_described(formats)} Likely: {causes}.{remedy}"


def explain_few_shared(
    shared: int, rows: int, formats: Mapping[str, IdFormat], rule: IdRule, *, is_agreed: bool = False
) -> str:
    """Say by which rule more rows might be shared than so many of the smaller table's; nothing if no format tells."""
    causes, remedy = _explained(formats, rule, is_agreed)
    if not causes:
        return ""
    few = f"Of the {rows} rows of the smaller table, the parties share only {shared}."
    return f"{few} {_described(formats)} Likely: {causes}.{remedy}"


def _described(formats: Mapping[str, IdFormat]) -> str:
    return f"The ids look like this: {'; '.join(f'{party}: {one}' for party, one in formats.items())}."


def _explained(formats: Mapping[str, IdFormat], rule: IdRule, is_agreed: bool) -> tuple[str, str]:
    """Return likely causes, and what to do about them; a rule that a model was trained with is agreed for good."""
    found = list(_likely(list(formats.values()), rule))
    settings = dict(setting for _, setting in found if setting is not None)
    causes = "; ".join(cause for cause, _ in found)
    if not settings:
        return causes, ""
    if is_agreed:
        return (
            causes,
            " The model was trained with this rule, so write the new rows' ids as those of the training rows.",
        )
    written = " and ".join(f"{key} = {value}" for key, value in settings.items())
    remedy = f" To have more rows match, all parties write in run.toml, under [alignment]: {written}."
    alike = " and ".join(f"'{party}'" for party, one in formats.items() if not one.stays_distinct)
    return causes, remedy + (
        f" Some ids of {alike} may then be equal to one another; of such rows keep one each." if alike else ""
    )


def _likely(seen: Sequence[IdFormat], rule: IdRule) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Give causes for which ids may differ that mean the same, each with the setting by which they would not."""
    if len({one.parts for one in seen}) > 1:
        columns = " and ".join(str(one.parts) for one in seen)
        yield f"ids are made of {columns} columns (name the same columns at all parties as id in [table])", None
        return
    if any(one.has_exponents for one in seen):
        yield "a spreadsheet has cut off the last digits of long ids (export them again as text)", None
        return
    with_numbers = [one for one in seen if one.digits != "none"]
    may_be_numbers = len(with_numbers) == len(seen)
    do_lengths_differ = len({(one.shortest_bare, one.longest_bare) for one in seen}) > 1
    has_zeros = {one.has_leading_zeros for one in with_numbers}
    loses_zeros = may_be_numbers and True in has_zeros and (len(has_zeros) > 1 or do_lengths_differ)
    is_apart = max(one.shortest_bare for one in seen) > min(one.longest_bare for one in seen)
    if is_apart and not loses_zeros:
        cause = "no length occurs at all parties, so a prefix, padding or a hash may differ"
        yield f"{cause} (write ids alike, or name another column as id in [table])", None
        return
    if loses_zeros and rule.type != "number":
        yield "leading zeros may be kept at one party and lost at another", ("type", '"number"')
    elif not may_be_numbers and not all(one.is_text for one in seen):
        yield "ids are numbers at some parties and have letters at others (name another column as id in [table])", None
    elif rule.type == "keep" and len({one.is_text for one in seen}) > 1:
        yield "some parties hold numbers and others text, which never equal one another", ("type", '"text"')
    elif rule.type == "keep" and len({one.has_point_zero for one in seen}) > 1:
        yield "whole numbers are written as floats, ending in .0, at one party only", ("type", '"text"')
    cases = {one.letters for one in seen} - {"none"}
    if rule.case == "keep" and (len(cases) > 1 or "mixed" in cases):
        yield "upper and lower case may differ", ("case", '"fold"')
    if rule.separators == "keep" and len({one.separators for one in seen}) > 1:
        kinds = dict.fromkeys(kind for one in seen for kind in one.separators)
        yield f"{' and '.join(kinds)} inside ids are not the same at all parties", ("separators", '"drop"')
    if not rule.trim and len({one.has_spaces for one in seen}) > 1:
        yield "spaces around ids may be left at one party", ("trim", "true")
