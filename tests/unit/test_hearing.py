"""What counts as heard, and what is kept to be written down."""

from __future__ import annotations

from adsum.projector.catalog import Heard
from adsum.projector.hearing import UNKNOWN_KEPT, Hearing


def test_only_a_higher_counter_is_news() -> None:
    hearing = Hearing([Heard("t", 5, 10.0)])
    assert not hearing.hear("t", 5, 20.0)
    assert not hearing.hear("t", 4, 20.0)
    assert hearing.of("t") == (5, 10.0)
    assert hearing.hear("t", 6, 20.0)
    assert hearing.of("t") == (6, 20.0)


def test_a_life_that_was_never_heard_has_its_grace_from_the_fold_on_and_only_once() -> None:
    hearing = Hearing()
    hearing.begin("t", 10.0)
    hearing.begin("t", 90.0)
    assert hearing.of("t") == (0, 10.0)


def test_a_beat_read_before_its_life_was_folded_counts() -> None:
    hearing = Hearing()
    hearing.hear("t", 3, 10.0)
    hearing.begin("t", 12.0)
    assert hearing.of("t") == (3, 10.0)


def test_terms_are_told_apart() -> None:
    """An old and a new process of one id side by side: neither hides nor keeps up the other (fault 26)."""
    hearing = Hearing()
    hearing.begin("old", 0.0)
    hearing.begin("new", 0.0)
    hearing.hear("old", 99, 50.0)
    assert hearing.of("new") == (0, 0.0)


def test_unknown_terms_are_forgotten_after_a_while_live_ones_never() -> None:
    hearing = Hearing()
    hearing.hear("stray", 1, 0.0)
    hearing.hear("live", 1, 0.0)
    hearing.begin("live", 1.0)
    hearing.forget_unknown(UNKNOWN_KEPT)
    assert hearing.of("stray") == (1, 0.0)
    hearing.forget_unknown(UNKNOWN_KEPT + 1)
    assert hearing.of("stray") is None
    assert hearing.of("live") == (1, 0.0)


def test_only_live_terms_are_written_down() -> None:
    """Anybody may beat for anything: what no record bears does not get into the catalog."""
    hearing = Hearing([Heard("known", 3, 1.0), Heard("left", 3, 1.0)])
    hearing.begin("known", 2.0)
    hearing.hear("stray", 1, 2.0)
    assert hearing.take_unwritten() == ([], ["left"])
    hearing.hear("known", 4, 3.0)
    hearing.begin("stray", 3.0)
    heard, ended = hearing.take_unwritten()
    assert (sorted(heard), ended) == ([Heard("known", 4, 3.0), Heard("stray", 1, 2.0)], [])


def test_what_could_not_be_written_is_written_the_next_time() -> None:
    hearing = Hearing()
    hearing.begin("t", 0.0)
    hearing.hear("t", 1, 1.0)
    hearing.end("gone")
    heard, ended = hearing.take_unwritten()
    assert (heard, ended) == ([Heard("t", 1, 1.0)], ["gone"])
    assert hearing.take_unwritten() == ([], [])
    hearing.hear("t", 2, 2.0)
    hearing.keep(heard, ended)
    assert hearing.take_unwritten() == ([Heard("t", 2, 2.0)], ["gone"])


def test_a_beat_never_sets_back_when_a_life_was_heard() -> None:
    """After a takeover the clock goes on from a little before; whoever reckoned with the later value stays right."""
    hearing = Hearing([Heard("t", 7, 101.5)])
    assert hearing.hear("t", 8, 100.3)
    assert hearing.of("t") == (8, 101.5)
    assert hearing.hear("t", 9, 102.0)
    assert hearing.of("t") == (9, 102.0)
