"""News encoders: texts, behaviours, absent ones, and texts encoded once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from colonnade.errors import ConfigError, TableError
from colonnade.nn import (
    LSTUR,
    NAML,
    NRMS,
    ConvolvedText,
    UserEncoder,
    WordEmbeddings,
    find_dropouts,
    index_texts,
    reseed_dropout,
)

VOCABULARY, OUTPUTS = 9, 6


def naml(**options: object) -> UserEncoder:
    return NAML(VOCABULARY, OUTPUTS, **{"seed": 3, "embedding_width": 4, "hidden": 5, **options})


def lstur(**options: object) -> UserEncoder:
    made = LSTUR(VOCABULARY, OUTPUTS, **{"seed": 3, "users": 4, "embedding_width": 4, "hidden": 5, **options})
    with torch.no_grad():  # as if it had been trained
        made.users[1:] = torch.randn(4, OUTPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return made


def nrms(**options: object) -> UserEncoder:
    return NRMS(
        VOCABULARY,
        OUTPUTS,
        **{"seed": 3, "embedding_width": 4, "hidden": 5, "heads": 2, **options},
    )


ENCODERS = [naml, lstur, nrms]
each_encoder = pytest.mark.parametrize("make", ENCODERS)
Make = Callable[..., UserEncoder]

# Five users with up to four behaviours; texts repeat, and the last user has none at all.
WORDS = torch.tensor(
    [
        [[1, 2, 3, 0], [4, 5, 0, 0], [1, 2, 3, 0], [6, 7, 8, 1]],
        [[0, 0, 0, 0], [4, 5, 0, 0], [0, 0, 0, 0], [2, 2, 2, 2]],
        [[8, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
        [[1, 2, 3, 0], [8, 0, 0, 0], [4, 5, 0, 0], [4, 5, 0, 0]],
        [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]],
    ]
)
USERS = torch.tensor([1, 2, 0, 4, 3])


@each_encoder
def test_a_seed_gives_the_same_encoder_in_either_precision_and_spares_the_global_generator(make: Make) -> None:
    before = torch.get_rng_state()
    single, again, double, other = make(), make(), make(dtype=torch.float64), make(seed=4)
    single(WORDS, USERS)
    assert torch.equal(before, torch.get_rng_state())
    state = single.state_dict()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in state.items())
    assert all(torch.equal(value, double.state_dict()[name].float()) for name, value in state.items())
    assert not torch.equal(single(WORDS), other(WORDS))
    assert single(WORDS).dtype == torch.float32
    assert single(WORDS).shape == (5, OUTPUTS)


@each_encoder
def test_texts_encoded_once_give_the_same_users_and_gradients(make: Make) -> None:
    direct, indexed = make(dtype=torch.float64), make(dtype=torch.float64)
    texts, places = index_texts(WORDS)
    assert len(texts) == 6, "five, and padding"
    one, other = direct(WORDS, USERS), indexed.forward_indexed(texts, places, USERS)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-13)
    one.square().sum().backward()
    other.square().sum().backward()
    for (name, mine), yours in zip(direct.named_parameters(), indexed.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, yours.grad, rtol=0, atol=1e-12, msg=name)


@each_encoder
def test_a_whole_catalogue_may_be_given_and_only_used_texts_are_encoded_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(dtype=torch.float64)
    texts, places = index_texts(WORDS)
    unused = torch.tensor([[7, 7, 0, 0]])
    catalogue = torch.cat([texts[:1], unused, texts[1:], texts[:1]])
    shifted = torch.where(places > 0, places + 1, places)
    shifted[4, 1] = len(catalogue) - 1  # a text of padding only is no behaviour, wherever it stands
    expected = made(WORDS, USERS)
    counts, encode = [], made.encode_text

    def counted(words: torch.Tensor) -> torch.Tensor:
        counts.append(len(words))
        return encode(words)

    monkeypatch.setattr(made, "encode_text", counted)
    found = made.forward_indexed(catalogue, shifted, USERS)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    assert counts == [5]


@each_encoder
def test_absent_behaviours_and_further_padding_change_nothing(make: Make) -> None:
    made = make(dtype=torch.float64)
    expected = made(WORDS[[0, 3]], USERS[[0, 3]])
    blank = torch.zeros(2, 1, 4, dtype=torch.long)
    first, last = WORDS[[0, 3], :2], WORDS[[0, 3], 2:]
    wider = torch.nn.functional.pad(torch.cat([blank, first, blank, last, blank], dim=1), (0, 3))
    torch.testing.assert_close(made(wider, USERS[[0, 3]]), expected, rtol=0, atol=1e-13)


@each_encoder
def test_a_user_without_behaviours_is_finite_and_a_batch_of_such_users_works(make: Make) -> None:
    made = make(dtype=torch.float64)
    found = made(WORDS[4:], torch.tensor([0]))
    assert torch.equal(found, torch.zeros(1, OUTPUTS, dtype=torch.float64))
    assert torch.equal(made.forward_indexed(WORDS[4, :1], torch.zeros(1, 4, dtype=torch.long)), found)
    made(WORDS, USERS).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in made.parameters())
    assert made(WORDS[:0], USERS[:0]).shape == (0, OUTPUTS)


@each_encoder
def test_texts_may_lie_below_any_axes(make: Make) -> None:
    made = make(dtype=torch.float64)
    found = made.encode_text(WORDS)
    assert found.shape == (5, 4, OUTPUTS)
    torch.testing.assert_close(found[3, 1], made.encode_text(WORDS[3, 1]), rtol=0, atol=1e-13)
    assert torch.equal(found[4], torch.zeros(4, OUTPUTS, dtype=torch.float64))


@each_encoder
def test_dropout_repeats_by_seed_and_is_silent_in_evaluation(make: Make) -> None:
    made = make(dropout=0.3)
    reseed_dropout(find_dropouts([made]), 9)
    first = made(WORDS)
    assert not torch.equal(first, made(WORDS))
    reseed_dropout(find_dropouts([made]), 9)
    assert torch.equal(first, made(WORDS))
    assert torch.equal(made.eval()(WORDS), make()(WORDS))


@each_encoder
def test_a_place_outside_the_texts_is_refused(make: Make) -> None:
    texts, places = index_texts(WORDS)
    for wrong in (places + 1, places - 1):
        with pytest.raises(TableError, match="outside the 6 that were given"):
            make().forward_indexed(texts, wrong)


@each_encoder
def test_texts_that_do_not_begin_with_padding_are_refused(make: Make) -> None:
    texts, places = index_texts(WORDS)
    for wrong in (texts[1:], texts[:0]):
        with pytest.raises(TableError, match="first of the texts must be padding"):
            make().forward_indexed(wrong, torch.zeros_like(places))


def test_texts_are_indexed_from_padding_even_if_no_behaviour_is_absent() -> None:
    texts, places = index_texts(torch.tensor([[[4, 1], [2, 0]], [[2, 0], [2, 0]]]))
    assert texts.tolist() == [[0, 0], [2, 0], [4, 1]]
    assert places.tolist() == [[2, 1], [1, 1]]


@pytest.mark.parametrize("make", [naml, nrms])
def test_the_order_of_behaviours_matters_to_lstur_alone(make: Make) -> None:
    order = torch.tensor([2, 0, 3, 1])
    made, recurrent = make(dtype=torch.float64), lstur(dtype=torch.float64)
    torch.testing.assert_close(made(WORDS[:, order]), made(WORDS), rtol=0, atol=1e-13)
    assert not torch.allclose(recurrent(WORDS[:, order]), recurrent(WORDS))


def test_padding_has_a_vector_of_zero_that_does_not_learn() -> None:
    layer = WordEmbeddings(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(layer(torch.tensor([0])), torch.zeros(1, 3, dtype=torch.float64))
    (layer(torch.tensor([0, 2, 0])) + 1.0).square().sum().backward()
    assert layer.table.grad is not None
    assert layer.table.grad.any(dim=1).tolist() == [False, False, True, False]


def convolved(window: int = 3) -> ConvolvedText:
    return ConvolvedText(
        VOCABULARY,
        OUTPUTS,
        generator=torch.Generator().manual_seed(0),
        embedding_width=4,
        window=window,
        hidden=5,
        dropout=0.0,
        dtype=torch.float64,
    )


@pytest.mark.parametrize("window", [1, 3, 5])
def test_the_convolution_sees_each_word_with_its_neighbours(window: int) -> None:
    layer = convolved(window)
    vectors = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = layer.convolve(vectors).detach().numpy()
    weight, bias = layer.filters.weight.detach().numpy(), layer.filters.bias.detach().numpy()
    for text in range(2):
        for place in range(6):
            total = bias.copy()
            for offset in range(window):
                word = place + offset - window // 2
                if 0 <= word < 6:
                    total += weight[:, 4 * offset : 4 * offset + 4] @ vectors[text, word].numpy()
            np.testing.assert_allclose(found[text, place], np.maximum(total, 0.0), atol=1e-12)


def test_a_text_is_pooled_over_its_words_only() -> None:
    layer, text = convolved(), torch.tensor([[3, 1, 4, 0, 0]])
    windows = layer.convolve(layer.words(text))
    torch.testing.assert_close(layer(text), layer.attention(windows[:, :3]), rtol=0, atol=1e-14)


def test_lstur_begins_with_the_user_and_an_unknown_one_begins_with_zero() -> None:
    made = lstur(dtype=torch.float64)
    unknown, known = made(WORDS, torch.zeros(5, dtype=torch.long)), made(WORDS, USERS)
    assert torch.equal(made(WORDS), unknown)
    assert torch.equal(known[2], unknown[2])
    assert not torch.allclose(known[0], unknown[0])
    assert torch.equal(known[4], made.users[3]), "without behaviours the user stays as they began"
    fresh = LSTUR(VOCABULARY, OUTPUTS, seed=3, users=4, embedding_width=4)
    assert torch.equal(fresh(WORDS, USERS), fresh(WORDS)), "a user whom training never met is an unknown one"
    known.square().sum().backward()
    learns = [bool(one.any()) for one in made.users.grad]
    assert learns == [False, True, True, True, True], "an unknown user stays at zero"


def test_every_parameter_learns() -> None:
    for make in ENCODERS:
        made = make(dtype=torch.float64)
        made(WORDS, USERS).square().sum().backward()
        for name, parameter in made.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.any(), name


@each_encoder
def test_gradients_are_those_of_finite_differences(make: Make) -> None:
    made = make(dtype=torch.float64)
    names = [name for name, _ in made.named_parameters()]
    # The vector of padding is left out of learning, so it is no input either.
    fixed = {name for name in names if name.endswith(("words.table", "users"))}

    def run(*parameters: torch.Tensor) -> torch.Tensor:
        given = {
            name: torch.cat([torch.zeros_like(value[:1]), value[1:]]) if name in fixed else value
            for name, value in zip(names, parameters, strict=True)
        }
        return torch.func.functional_call(made, given, (WORDS[:2], USERS[:2]))

    assert torch.autograd.gradcheck(run, tuple(made.parameters()), fast_mode=True)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="which 4 heads cannot share equally"):
        nrms(heads=4)
    with pytest.raises(ConfigError, match=r"must be odd\. Got 2"):
        naml(window=2)
    with pytest.raises(ConfigError, match="at least one word"):
        NRMS(1, OUTPUTS, seed=0, heads=2)
