from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.messages.samples import Inner, OfEverything, ToyCipher, everything, frame_of

from colonnade.errors import DeclarationError
from colonnade.messages import (
    ENCRYPTED,
    MASKED,
    NOISED,
    PLAIN,
    Protection,
    declaration_of,
    encode_body,
    message,
    record,
)


def declare(
    fields: dict[str, Any],
    *,
    name: str = "Thing",
    sender: str = "a",
    receiver: str = "b",
    protection: Any = PLAIN,
    step: str = "test",
    doc: str | None = "A thing. Reveals: it.",
) -> type:
    cls = type(name, (), {"__annotations__": fields, "__doc__": doc, "__module__": __name__})
    return message(sender=sender, receiver=receiver, protection=protection, step=step)(cls)


@pytest.mark.parametrize("doc", [None, "", "A thing.", "Reveals: it.", "A thing. Reveals: ", "A thing, reveals it."])
def test_a_message_that_does_not_say_what_it_reveals_is_refused(doc: str | None) -> None:
    with pytest.raises(DeclarationError, match="does not say what it reveals"):
        declare({"value": int}, doc=doc)


def test_the_docstring_is_split_into_summary_and_reveals() -> None:
    made = declaration_of(declare({"value": int}, doc="A\n    thing. Reveals: all\n    of it."))
    assert (made.summary, made.reveals) == ("A thing.", "all of it.")


@pytest.mark.parametrize(
    "annotation",
    [
        object,
        Any,
        list,
        list[int],
        dict[str, int],
        set[int],
        complex,
        tuple,
        tuple[int, int],
        tuple[object, ...],
        int | str,
        int | str | None,
        None,
        type,
        torch.dtype,
        dataclasses.Field,
        "NoSuchName",
        "5",
        "not python",
    ],
)
def test_an_annotation_outside_the_closed_set_is_refused(annotation: Any) -> None:
    with pytest.raises(DeclarationError):
        declare({"value": annotation})


def test_a_plain_dataclass_is_not_a_record() -> None:
    @dataclasses.dataclass
    class Loose:
        value: int

    with pytest.raises(DeclarationError, match=r"Thing\.value"):
        declare({"value": Loose})


def test_a_subclass_of_a_record_is_not_a_record() -> None:
    class More(Inner):
        extra: int

    with pytest.raises(DeclarationError):
        declare({"value": More})


def test_a_record_that_contains_itself_is_refused() -> None:
    with pytest.raises(DeclarationError, match="contains itself"):
        declare({"value": Chain})


@record
class Chain:
    rest: Chain | None


def test_nesting_deeper_than_the_decoder_allows_is_refused_when_declared() -> None:
    annotation: Any = int
    for _ in range(7):
        annotation = tuple[annotation, ...]  # type: ignore[valid-type]
    declare({"value": annotation})
    with pytest.raises(DeclarationError, match="deeper than 8"):
        declare({"value": tuple[annotation, ...]})  # type: ignore[valid-type]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"value": np.ndarray},
        {"value": torch.Tensor},
        {"value": ToyCipher, "count": int},
        {"value": tuple[int, ...]},
        {"value": Inner},
        {"value": ToyCipher | None, "note": str | None},
    ],
)
def test_encrypted_is_refused_for_anything_that_is_not_ciphertext(fields: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="declared ENCRYPTED but"):
        declare(fields, protection=ENCRYPTED)


def test_encrypted_is_accepted_for_ciphertexts_alone_in_tuples_options_and_records() -> None:
    @record
    class Pair:
        left: ToyCipher
        right: ToyCipher | None

    fields = {"one": ToyCipher, "many": tuple[ToyCipher, ...], "maybe": ToyCipher | None, "pair": Pair}
    assert declaration_of(declare(fields, protection=ENCRYPTED)).protection is ENCRYPTED


@pytest.mark.parametrize("protection", ["ENCRYPTED", "PLAIN", "plain", None, 1])
def test_a_protection_that_is_not_one_is_refused(protection: Any) -> None:
    with pytest.raises(DeclarationError, match="protection"):
        declare({"value": np.ndarray}, protection=protection)


@pytest.mark.parametrize("value", [3, "text", object(), Inner("a", ()), Inner, int, None])
def test_what_is_not_declared_has_no_declaration(value: Any) -> None:
    with pytest.raises(DeclarationError, match="not a declared message"):
        declaration_of(value)


def test_a_subclass_of_a_message_is_not_declared() -> None:
    class More(OfEverything):
        extra: int = 3

    with pytest.raises(DeclarationError, match="not a declared message"):
        declaration_of(More)
    with pytest.raises(DeclarationError, match="was given a More"):
        encode_body(declaration_of(OfEverything), More(**vars(everything())))


def test_messages_are_frozen() -> None:
    sample = everything()
    for field in dataclasses.fields(sample):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(sample, field.name, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.inner.label = "other"


def test_the_schema_changes_with_everything_a_peer_relies_on() -> None:
    variants = [
        {},
        {"name": "Other"},
        {"sender": "c"},
        {"receiver": "c"},
        {"sender": "b", "receiver": "a"},
        {"step": "later"},
        {"protection": NOISED},
        {"protection": MASKED},
        {"fields": {"value": float}},
        {"fields": {"other": int}},
        {"fields": {"value": int, "more": int}},
        {"fields": {"more": int, "value": int}},
        {"fields": {"value": int | None}},
        {"fields": {"value": tuple[int, ...]}},
        {"fields": {"value": np.ndarray}},
        {"fields": {"value": torch.Tensor}},
        {"fields": {"value": ToyCipher}},
        {"fields": {"value": ToyCipher}, "protection": ENCRYPTED},
        {"fields": {"value": Inner}},
        {"fields": {}},
    ]
    schemas = [declaration_of(declare(**{"fields": {"value": int}, **variant})).schema for variant in variants]
    assert all(len(schema) == 8 for schema in schemas)
    assert len(set(schemas)) == len(variants)


def test_the_schema_does_not_change_with_the_wording() -> None:
    first = declaration_of(declare({"value": int}))
    assert declaration_of(declare({"value": int}, doc="Another. Reveals: the same.")).schema == first.schema


def test_the_schema_changes_with_a_field_of_a_record_inside() -> None:
    def schema(kind: type) -> bytes:
        made = record(type("Part", (), {"__annotations__": {"value": kind}, "__module__": __name__}))
        return declaration_of(declare({"part": made})).schema

    assert schema(int) != schema(float)


def test_no_names_of_types_or_fields_go_over_the_wire() -> None:
    frame = frame_of(everything())
    names = [field.name for cls in (OfEverything, Inner) for field in dataclasses.fields(cls)]
    names += ["OfEverything", "Inner", "ToyCipher", "samples", "numpy", "torch", "Tensor", "ndarray", "<i4", "float"]
    for name in names:
        assert name.encode() not in frame, name


def test_shapes_are_named_by_field_and_place() -> None:
    assert declaration_of(OfEverything).shapes(everything()) == {"array": (2, 3), "tensor": (1, 2), "cipher": (6,)}


def test_protections_are_ordered_names_for_policies() -> None:
    assert [str(one) for one in Protection] == ["PLAIN", "NOISED", "MASKED", "ENCRYPTED"]
