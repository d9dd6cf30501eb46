"""The sums of uptime: against a count of every second, and where the broker's clock was put back."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adsum.clients.cli.spans import Uptime, Uptimes, Window
from adsum.events.names import Key
from adsum.events.questions import Version
from adsum.events.reader import Message
from tests.catalog.story import Story, key

from .past import between, versions_of

DEEDS = ("register", "update", "health", "lapse", "resume", "expire", "leave")


def log_of(deeds: list[tuple[int, int, int]], backwards: bool = False) -> list[Message]:
    """A log of these deeds, each: whose, what, and how many seconds after the one before."""
    story, told, time = Story(), [], 0.0
    for whose, what, after in deeds:
        who = key(whose % 3, "orders" if whose < 3 else "billing")
        deed = DEEDS[what] if who in story.terms else "register"
        time += after - (3 if backwards else 0)
        told.append(getattr(story, deed)(who)._replace(time=time))
    return told


def uptimes(told: list[Message], since: int | None, until: int, times: tuple[float | None, float]) -> list[Uptime]:
    """As the command asks: the versions between two revisions, and who registered before."""
    found = Uptimes(Window(*times))
    for version in versions_of([message for message in told if since is not None and message.sequence <= since]):
        if version.began_by == "registered":
            found.knew(version.service, version.id)
    for version in between(told, since or 0, until):
        found.add(version)
    return found.close()


def there(versions: list[Version], which: Key | str, second: float, routable: bool) -> bool:
    """Whether an instance, or any of a service, is there in the second that begins at `second`."""
    return any(
        version.began_at <= second and (version.ended_at is None or version.ended_at > second)
        for version in versions
        if which in (version.key, version.service) and (version.routable or not routable)
    )


def runs(seconds: list[bool]) -> list[tuple[bool, int]]:
    """The same values that follow on each other, and how many."""
    found: list[tuple[bool, int]] = []
    for one in seconds:
        if found and found[-1][0] == one:
            found[-1] = one, found[-1][1] + 1
        else:
            found.append((one, 1))
    return found


deeds = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(1, 9)), min_size=1, max_size=40)


@given(deeds, st.integers(0, 60), st.integers(0, 60), st.booleans())
def test_the_sums_are_those_of_a_count_of_every_second(
    said: list[tuple[int, int, int]], first: int, length: int, whole: bool
) -> None:
    told = log_of(said)
    since_time, until_time = first, first + length

    def revision(time: float) -> int:
        return max((message.sequence for message in told if message.time <= time), default=0)

    since, until = None if whole else revision(since_time), revision(until_time)
    found = uptimes(told, since, until, (None if whole else since_time, until_time))
    versions = versions_of(told)
    assert [(one.service, one.id) for one in found] == sorted((one.service, one.id) for one in found)
    names = {(v.service, v.id) for v in versions if v.began_at <= until_time}
    assert {(one.service, one.id) for one in found} == names | {(service, "") for service, _ in names}
    for one in found:
        which = Key("default", one.service, one.id) if one.id else one.service
        begun = min(v.began_at for v in versions if which in (v.key, v.service))
        begin = int(begun if whole else max(begun, since_time))
        present, routable = (
            [there(versions, which, second, can) for second in range(begin, until_time)] for can in (False, True)
        )
        assert (one.counted_from, one.counted) == (begin, until_time - begin)
        assert (one.present, one.routable) == (sum(present), sum(routable))
        assert one.longest_gap == max((count for value, count in runs(routable) if not value), default=0)
        ended = sum(value for value, _ in runs(present)) - (present[-1] if present else 0)
        gone_at_the_end = bool(present) and present[-1] and not there(versions, which, until_time, False)
        assert one.left == ended + gone_at_the_end


@example([(0, 0, 9), (0, 6, 7), (1, 0, 1)], 0, 9)  # it left at 10, and then it was 8
@given(deeds, st.integers(-20, 60), st.integers(1, 60))
def test_a_clock_that_was_put_back_counts_no_second_twice(
    said: list[tuple[int, int, int]], first: int, length: int
) -> None:
    told = log_of(said, backwards=True)

    def revision(time: float) -> int:
        return max((message.sequence for message in told if message.time <= time), default=0)

    until = first + length
    for one in uptimes(told, revision(first), revision(until), (first, until)):
        assert 0 <= one.routable <= one.present <= one.counted <= length
        assert 0 <= one.longest_gap <= one.counted - one.routable


def test_one_day() -> None:
    """By hand: superseding is no departure, a service is there as long as anybody is."""
    story, first, second = Story(), key(1), key(2)
    told = [
        story.register(first)._replace(time=0.0),
        story.register(second)._replace(time=100.0),
        story.lapse(first)._replace(time=200.0),
        story.expire(first)._replace(time=215.0),
        story.register(second)._replace(time=300.0),  # a new start takes the id over
        story.leave(second)._replace(time=400.0),
        story.register(first)._replace(time=500.0),
    ]
    service, one, two = uptimes(told, None, 7, (None, 1000.0))
    assert (service.id, service.counted, service.present, service.routable) == ("", 1000.0, 900.0, 900.0)
    assert (service.left, service.longest_gap, service.between) == (1, 100.0, 900.0)
    assert (one.present, one.routable, one.left, one.longest_gap) == (715.0, 700.0, 1, 300.0)
    assert (two.counted, two.present, two.left, two.longest_gap) == (900.0, 300.0, 1, 600.0)
    assert two.share_present == pytest.approx(1 / 3)


def test_who_had_left_before_counts_from_the_beginning_and_who_is_new_from_its_registration() -> None:
    story, old, new = Story(), key(1), key(2)
    told = [
        story.register(old)._replace(time=0.0),
        story.leave(old)._replace(time=10.0),
        story.register(new)._replace(time=150.0),
        story.register(old)._replace(time=175.0),
    ]
    service, one, two = uptimes(told, 2, 4, (100.0, 200.0))
    assert (one.counted_from, one.share_routable, one.left, one.between) == (100.0, 0.25, 0, None)
    assert (two.counted_from, two.share_routable) == (150.0, 1.0)
    assert (service.counted_from, service.share_routable, service.longest_gap) == (100.0, 0.5, 50.0)
    service, gone = uptimes(told[:2], 2, 2, (100.0, 200.0))
    assert (service.present, gone.present, gone.longest_gap, gone.left) == (0.0, 0.0, 100.0, 0)
