from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.messages.samples import (
    CONTEXT,
    DTYPES,
    Inner,
    OfArray,
    OfBool,
    OfBools,
    OfBytes,
    OfCipher,
    OfEverything,
    OfFloat,
    OfInt,
    OfOptional,
    OfRecords,
    OfTensor,
    OfText,
    OfTexts,
    ToyCipher,
    body_of,
    everything,
    frame_of,
)

from colonnade.errors import DeclarationError, FrameRefused
from colonnade.messages import LIMITS, declaration_of, decode_body, encode_body, open_frame
from colonnade.text import LONGEST_NAME

QUICK = settings(max_examples=60, deadline=None)

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
big_ints = st.one_of(st.integers(), st.integers(-(2**4000), 2**4000))
words = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), max_size=20)
inners = st.builds(Inner, words, st.lists(big_ints, max_size=3).map(tuple))


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    dtype, shape = np.dtype(draw(st.sampled_from(DTYPES))), draw(shapes)
    raw = draw(st.binary(min_size=dtype.itemsize * math.prod(shape), max_size=dtype.itemsize * math.prod(shape)))
    if dtype.kind == "b":
        raw = bytes(byte & 1 for byte in raw)
    array = np.frombuffer(raw, dtype).reshape(shape)
    form = draw(st.sampled_from(["plain", "transposed", "reversed", "strided", "big-endian", "read-only", "fortran"]))
    if form == "transposed":
        return array.T
    if form == "reversed":
        return array[::-1] if array.ndim else array
    if form == "strided":
        return np.repeat(array, 2, axis=0)[::2] if array.ndim else array
    if form == "big-endian":
        return array.astype(array.dtype.newbyteorder(">"))
    if form == "fortran":
        return np.asfortranarray(array)
    return array if form == "read-only" else array.copy()


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    little = left.dtype.newbyteorder("<")
    if right.dtype.newbyteorder("<") != little or left.shape != right.shape:
        return False
    return left.astype(little).tobytes() == right.astype(little).tobytes()


def over_the_wire(content: Any, *, writable: bool = True) -> Any:
    declaration = declaration_of(content)
    frame = frame_of(content)
    header, body = open_frame(bytearray(frame) if writable else frame)
    assert (header.context, header.sequence, header.step) == (CONTEXT, 3, 7)
    assert header.schema == declaration.schema
    back = decode_body(declaration, body)
    assert type(back) is type(content)
    assert body_of(back) == body_of(content), "one value has one encoding"
    return back


@QUICK
@given(st.booleans(), big_ints, st.floats(), st.binary(max_size=5000), words)
def test_simple_values_come_back_as_they_were(flag: bool, count: int, ratio: float, blob: bytes, text: str) -> None:
    assert over_the_wire(OfBool(flag)).value is flag
    assert over_the_wire(OfInt(count)).value == count
    assert struct.pack("<d", over_the_wire(OfFloat(ratio)).value) == struct.pack("<d", ratio)
    assert over_the_wire(OfBytes(blob)).value == blob
    assert over_the_wire(OfText(text)).value == text


@settings(max_examples=250, deadline=None)
@given(arrays(), st.booleans())
def test_arrays_come_back_bit_for_bit(array: np.ndarray, writable: bool) -> None:
    back = over_the_wire(OfArray(array), writable=writable).value
    assert type(back) is np.ndarray
    assert same_bits(array, back)
    assert back.dtype.isnative


@settings(max_examples=250, deadline=None)
@given(arrays(), st.booleans())
def test_tensors_come_back_bit_for_bit(array: np.ndarray, writable: bool) -> None:
    native = array.astype(array.dtype.newbyteorder("="))
    tensor = torch.from_numpy(native.copy())
    if tensor.ndim > 1:
        tensor = tensor.transpose(0, -1)
    back = over_the_wire(OfTensor(tensor), writable=writable).value
    assert back.dtype == tensor.dtype
    assert same_bits(tensor.numpy(), back.numpy())
    assert not back.requires_grad


@QUICK
@given(
    st.none() | big_ints,
    st.lists(words, max_size=4).map(tuple),
    st.lists(st.none() | inners, max_size=4).map(tuple),
)
def test_options_tuples_and_records_come_back(maybe: int | None, texts: tuple[str, ...], records: Any) -> None:
    assert over_the_wire(OfOptional(maybe)).value == maybe
    assert over_the_wire(OfTexts(texts)).value == texts
    back = over_the_wire(OfRecords(records)).value
    assert [one and (one.label, one.numbers) for one in back] == [one and (one.label, one.numbers) for one in records]


@QUICK
@given(st.binary(max_size=40), st.lists(st.none() | st.binary(max_size=40).map(ToyCipher), max_size=3).map(tuple))
def test_ciphertexts_come_back(content: bytes, more: Any) -> None:
    back = over_the_wire(OfCipher(ToyCipher(content), more))
    assert back.value.content == content
    assert [one and one.content for one in back.more] == [one and one.content for one in more]


@settings(max_examples=40, deadline=None)
@given(arrays(), arrays(), st.none() | arrays(), words, big_ints)
def test_one_of_each_in_one_message_comes_back(first: Any, second: Any, third: Any, text: str, count: int) -> None:
    native = np.ascontiguousarray(second.astype(second.dtype.newbyteorder("="))).copy()
    changed = {"array": first, "tensor": torch.from_numpy(native), "maybe": third, "text": text, "count": count}
    back = over_the_wire(OfEverything(**{**vars(everything()), **changed}))
    assert same_bits(back.array, first)
    assert same_bits(back.tensor.numpy(), native)
    assert (back.maybe is None) == (third is None)
    assert third is None or same_bits(back.maybe, third)


def test_large_arrays_come_back_through_the_uncopied_path() -> None:
    array = np.arange(200_000, dtype="<f8").reshape(400, 500)
    for sent in (array, array.T, array[::3, ::7], array.astype(">f8")):
        assert same_bits(over_the_wire(OfArray(sent)).value, sent)
    parts = encode_body(declaration_of(OfArray), OfArray(array))
    assert any(isinstance(part, memoryview) and np.shares_memory(np.frombuffer(part), array) for part in parts)


def test_a_received_array_may_be_changed_by_its_owner() -> None:
    back = over_the_wire(OfArray(np.zeros(3))).value
    back += 1
    assert back.tolist() == [1.0, 1.0, 1.0]


def test_tensors_with_gradients_strides_and_scalars_are_sent_as_values() -> None:
    leaf = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    for tensor in (leaf, leaf * 2, leaf.T, leaf[:, 1], leaf.sum(), leaf.expand(3, 2, 2), torch.nn.Parameter(leaf)):
        assert torch.equal(over_the_wire(OfTensor(tensor)).value, tensor.detach())


@pytest.mark.parametrize("edge", [0, 1, -1, 127, 128, -128, -129, 255, 256, 2**63 - 1, 2**63, -(2**63), 2**64, 10**300])
def test_integers_at_the_edges_come_back(edge: int) -> None:
    assert over_the_wire(OfInt(edge)).value == edge
    assert over_the_wire(OfInt(-edge)).value == -edge


def test_numpy_scalars_are_sent_as_plain_values() -> None:
    assert over_the_wire(OfInt(np.int32(-5))).value == -5
    assert over_the_wire(OfFloat(np.float32(0.5))).value == 0.5
    assert over_the_wire(OfBool(np.True_)).value is True
    assert over_the_wire(OfFloat(3)).value == 3.0


def test_equal_values_of_different_layout_have_one_encoding() -> None:
    array = np.arange(12, dtype="<i8").reshape(3, 4)
    layouts = [array, np.asfortranarray(array), array.astype(">i8"), np.repeat(array, 2, 1)[:, ::2], array[::-1][::-1]]
    assert len({body_of(OfArray(one)) for one in layouts}) == 1
    assert len({body_of(OfTensor(torch.from_numpy(array))), body_of(OfTensor(torch.from_numpy(array.T.copy()).T))}) == 1


WRONG: list[tuple[type, Any]] = [
    (OfBool, 1),
    (OfBool, None),
    (OfInt, True),
    (OfInt, 1.0),
    (OfInt, "1"),
    (OfInt, np.float64(1)),
    (OfInt, np.True_),
    (OfInt, 1 << 8 * LIMITS.integer_bytes),
    (OfFloat, True),
    (OfFloat, "1"),
    (OfFloat, None),
    (OfFloat, 1j),
    (OfFloat, 10**400),
    (OfBytes, "text"),
    (OfBytes, bytearray(b"x")),
    (OfText, b"bytes"),
    (OfText, "\ud800"),
    (OfText, "x\x1b"),
    (OfText, "x" * (LONGEST_NAME + 1)),
    (OfArray, [1, 2]),
    (OfArray, 3.0),
    (OfArray, torch.zeros(2)),
    (OfArray, np.float64(3)),
    (OfArray, np.zeros(2, complex)),
    (OfArray, np.array([None, "x"], object)),
    (OfArray, np.array(["a"])),
    (OfArray, np.array([b"a"])),
    (OfArray, np.zeros(2, "datetime64[s]")),
    (OfArray, np.zeros(2, [("a", "<i4")])),
    (OfArray, np.zeros(2, np.longdouble)),
    (OfArray, np.zeros((1,) * 9)),
    (OfArray, np.ma.masked_array([1.0, 2.0], [False, True])),
    (OfTensor, np.zeros(2)),
    (OfTensor, None),
    (OfTensor, torch.zeros(2, dtype=torch.bfloat16)),
    (OfTensor, torch.zeros(2, dtype=torch.complex64)),
    (OfTensor, torch.zeros(2, dtype=torch.complex64).conj()),
    (OfTensor, torch.zeros(2, 2).to_sparse()),
    (OfTensor, torch.zeros(2, device="meta")),
    (OfOptional, "1"),
    (OfTexts, ["a"]),
    (OfTexts, ("a", 1)),
    (OfTexts, "text"),
    (OfBools, (True,) * (LIMITS.entries + 1)),
    (OfRecords, (Inner("a", (1, "b")),)),
    (OfRecords, (OfInt(1),)),
    (OfRecords, ({"label": "a", "numbers": ()},)),
]


@pytest.mark.parametrize(("cls", "value"), WRONG, ids=lambda one: repr(one)[:40])
def test_a_value_of_another_kind_cannot_be_sent(cls: Any, value: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        body_of(cls(value))
    assert len(str(caught.value)) < 300


def test_a_plain_array_cannot_be_sent_in_place_of_a_ciphertext() -> None:
    for value in (np.zeros(3), b"\x7fabc", None, torch.zeros(2)):
        with pytest.raises(DeclarationError, match="ToyCipher"):
            body_of(OfCipher(value, ()))


def test_a_body_is_refused_as_any_other_message() -> None:
    samples = [
        OfBool(True),
        OfInt(1),
        OfFloat(1.0),
        OfBytes(b"x"),
        OfText("x"),
        OfArray(np.ones(2)),
        OfTensor(torch.ones(2)),
        OfOptional(1),
        OfTexts(("x",)),
        everything(),
    ]
    for sent in samples:
        for read in samples:
            if type(sent) is not type(read):
                with pytest.raises(FrameRefused):
                    decode_body(declaration_of(read), memoryview(body_of(sent)))
