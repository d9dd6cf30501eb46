from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adsum.events.errors import AdsumError, InvalidValue
from adsum.events.names import Key, check_capability, check_label, check_text, suggest_label

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize("name", ["a", "0", "a1", "a-b", "a--b", "9-9", "a" * 63, "a" + "-" * 61 + "a"])
def test_labels(name: str) -> None:
    assert check_label("service", name) == name


@pytest.mark.parametrize(
    ("name", "would_do"),
    [
        ("", None),
        ("-", None),
        ("-a", "a"),
        ("a-", "a"),
        ("Orders", "orders"),
        ("order_service", "order-service"),
        ("my orders", "my-orders"),
        ("a.b", "a-b"),
        ("a\n", "a"),
        ("a*", "a"),
        (">", None),
        ("münchen", "m-nchen"),
        ("a" * 64, "a" * 63),
        ("a" * 62 + "--b", "a" * 62),
        ("a\0b", "a-b"),
        ("..", None),
    ],
)
def test_what_is_no_label_and_what_would_do(name: str, would_do: str | None) -> None:
    with pytest.raises(InvalidValue) as caught:
        check_label("service", name)
    assert (caught.value.field, caught.value.value, caught.value.suggestion) == ("service", name, would_do)
    assert "a-z, 0-9 and '-'" in str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, AdsumError)


@pytest.mark.parametrize("name", [None, 7, b"orders", ["orders"]])
def test_a_label_is_text(name: object) -> None:
    with pytest.raises(InvalidValue):
        check_label("service", name)  # type: ignore[arg-type]


@given(st.text())
def test_a_suggestion_is_a_label_and_a_label_its_own_suggestion(text: str) -> None:
    suggestion = suggest_label(text)
    if suggestion is not None:
        assert check_label("service", suggestion) == suggestion
        assert suggest_label(suggestion) == suggestion


@given(LABELS)
def test_every_label_passes_as_it_is(name: str) -> None:
    assert check_label("service", name) == name
    assert suggest_label(name) == name


@pytest.mark.parametrize("name", ["a", "A", "0", "Payments", "payments.v2", "a_b-c.D", "a" * 63, "a."])
def test_capabilities(name: str) -> None:
    assert check_capability(name) == name


@pytest.mark.parametrize(
    ("name", "would_do"),
    [
        ("", None),
        (".hidden", "hidden"),
        ("-a", "a"),
        ("_a", "a"),
        ("pay ments", "pay-ments"),
        ("a/b", "a-b"),
        ("a" * 64, "a" * 63),
        ("zürich", "z-rich"),
        ("a\n", "a"),
    ],
)
def test_what_is_no_capability_and_what_would_do(name: str, would_do: str | None) -> None:
    with pytest.raises(InvalidValue) as caught:
        check_capability(name)
    assert caught.value.suggestion == would_do


@given(st.text())
def test_a_suggested_capability_is_one(text: str) -> None:
    suggestion: str | None = text
    try:
        check_capability(text)
    except InvalidValue as error:
        suggestion = error.suggestion
    assert suggestion is None or check_capability(suggestion) == suggestion


def test_text_up_to_its_limit() -> None:
    assert check_text("zone", "ü" * 128, 128) == "ü" * 128
    assert check_text("zone", "", 0) == ""
    with pytest.raises(InvalidValue, match="at most 128 characters, is 129"):
        check_text("zone", "ü" * 129, 128)


@pytest.mark.parametrize("text", ["\0", "a\0", "\0a", "a\0b\0"])
def test_nul_is_refused_anywhere(text: str) -> None:
    with pytest.raises(InvalidValue, match="must not contain NUL") as caught:
        check_text("zone", text, 10)
    assert caught.value.suggestion == (text.replace("\0", "") or None)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_lone_surrogates_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="UTF-8"):
        check_text("zone", text, 10)


def test_a_long_value_is_told_short() -> None:
    with pytest.raises(InvalidValue) as caught:
        check_text("zone", "x" * 100_000, 128)
    assert len(str(caught.value)) < 200


def test_a_key_is_told_as_a_path() -> None:
    assert str(Key("default", "orders", "a")) == "default/orders/a"
