from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adsum.events.digest import Digest

PAIRS = st.dictionaries(st.text(max_size=20), st.integers(0, 2**63)).map(lambda chosen: list(chosen.items()))


def digest_of(pairs: list[tuple[str, int]]) -> Digest:
    digest = Digest()
    for id, revision in pairs:
        digest.add(id, revision)
    return digest


def test_the_digest_is_part_of_the_wire() -> None:
    assert Digest().hex() == "0" * 32
    assert digest_of([("a", 1)]).hex() == "6faa250148b797a062e1712fa76c6f3c"
    assert digest_of([("a", 1), ("b", 2)]).hex() == "ed2537b9751c8a086a67df495c541736"


@given(PAIRS, st.randoms())
def test_no_order_matters(pairs: list[tuple[str, int]], random: object) -> None:
    shuffled = sorted(pairs, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert digest_of(shuffled).hex() == digest_of(pairs).hex()


@given(PAIRS, PAIRS)
def test_what_goes_leaves_no_trace(stay: list[tuple[str, int]], go: list[tuple[str, int]]) -> None:
    digest = digest_of(stay)
    for id, revision in go:
        digest.add(id, revision)
    for id, revision in reversed(go):
        digest.remove(id, revision)
    assert (digest.hex(), digest.count) == (digest_of(stay).hex(), len(stay))


@given(PAIRS, PAIRS)
def test_different_sets_differ(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> None:
    assert (digest_of(one).hex() == digest_of(other).hex()) == (set(one) == set(other))
