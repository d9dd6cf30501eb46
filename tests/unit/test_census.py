"""How a directory is proven: rounds of marks, candidates, epochs. The leader is played by `Leader`, time by numbers."""

from __future__ import annotations

import math

import pytest

from adsum.clients.cache import Change
from adsum.clients.census import Census
from adsum.events.digest import Digest
from adsum.events.signals import Departed, Instance, NamespaceMark, ServiceMark, Topology

from .test_cache import present


class Leader:
    """Says a round of marks of what it has."""

    def __init__(self, epoch: str = "e1", round: int = 0) -> None:
        self.epoch, self.round = epoch, round
        self.services: dict[str, dict[str, int]] = {}
        self.revision = 0

    def has(self, *instances: Instance, service: str = "s", revision: int = 0) -> None:
        """`revision`: of a tombstone, where that is the last that was told."""
        self.services[service] = {instance.id: instance.revision for instance in instances}
        self.revision = max([self.revision, revision, *self.services[service].values()])

    def marks(self, census: Census, now: float) -> list[Change]:
        self.round += 1
        changes: list[Change] = []
        for service, members in self.services.items():
            if members:
                digest = Digest()
                for id, revision in members.items():
                    digest.add(id, revision)
                mark = ServiceMark(
                    epoch=self.epoch,
                    round=self.round,
                    revision=self.revision,
                    count=len(members),
                    digest=digest.hex(),
                )
                changes += census.service_mark(service, mark, now)
        mark = NamespaceMark(epoch=self.epoch, round=self.round, revision=self.revision)
        return changes + census.namespace_mark(mark, now)


def new(services: tuple[str, ...] = ("s",), epoch: str = "e1") -> Census:
    """One that the log has told its epoch."""
    census = Census(services)
    census.believe(epoch)
    return census


def loaded(*told: Topology, now: float = 0.0, services: tuple[str, ...] = ("s",), epoch: str = "e1") -> Census:
    census = new(services, epoch)
    census.begin_load()
    for one in told:
        census.load(one, now)
    census.end_load(now)
    return census


def resync(census: Census, *told: Topology, now: float) -> list[Change]:
    census.begin_load()
    for one in told:
        census.load(one, now)
    return census.end_load(now)


def shown(census: Census, service: str = "s") -> dict[str, int]:
    cache = census.shown(service)
    assert cache is not None
    return {instance.id: instance.revision for instance in cache.present.values()}


A, B = present("a", 1), present("b", 2)


def test_nothing_is_shown_and_nothing_proven_before_the_snapshot_is_whole() -> None:
    census = Census(("s",))
    assert census.wanted
    assert census.unsure
    census.believe("e1")
    assert not census.unsure
    census.begin_load()
    census.load(A, 0.0)
    assert census.take(B, 0.0) == []
    assert census.shown("s") is None
    assert census.proven_at == -math.inf
    changes = census.end_load(1.0)
    assert {change.instance.id for change in changes} == {"a", "b"}
    assert shown(census) == {"a": 1, "b": 2}
    assert census.proven_at == 1.0


def test_a_mark_that_matches_proves_and_one_that_does_not_wants_a_resync_after_the_second() -> None:
    census, leader = loaded(A), Leader()
    leader.has(A)
    leader.marks(census, 2.0)
    assert census.proven_at == 2.0
    leader.has(A, B)
    leader.marks(census, 4.0)
    assert not census.wanted
    leader.marks(census, 6.0)
    assert census.wanted
    assert census.proven_at == 2.0
    assert shown(census) == {"a": 1}


def test_a_lost_tombstone_of_the_last_instance_is_noticed() -> None:
    census, leader = loaded(), Leader()
    census.take(A, 1.0)
    leader.has(revision=2)
    for now in range(2, 10, 2):
        leader.marks(census, float(now))
        assert census.proven_at <= 1.0
    assert census.wanted
    gone = Departed(epoch="e1", revision=2, namespace="default", service="s", id="a", term="t")
    assert [change.kind for change in resync(census, gone, now=12.5)] == ["left"]
    leader.marks(census, 14.0)
    assert census.proven_at == 14.0


def test_a_mark_from_ahead_is_reached_by_the_change_it_overtook() -> None:
    census, leader = loaded(A), Leader()
    leader.has(A, B)
    leader.marks(census, 2.0)
    assert census.proven_at == 0.0
    census.take(B, 2.1)
    assert census.proven_at == 2.1
    leader.marks(census, 4.0)
    assert not census.wanted


def test_a_resync_replaces_the_set_only_when_a_mark_confirms_it() -> None:
    census, leader = loaded(A, B), Leader()
    census.reconnected()
    assert resync(census, A, now=5.0) == []
    assert shown(census) == {"a": 1, "b": 2}
    leader.has(A)
    changes = leader.marks(census, 6.0)
    assert [(change.kind, change.instance.id) for change in changes] == [("left", "b")]
    assert shown(census) == {"a": 1}
    assert census.proven_at == 6.0


def test_a_partial_or_empty_snapshot_never_empties_the_set() -> None:
    census, leader = loaded(A, B), Leader()
    leader.has(A, B)
    for _ in range(3):
        census.reconnected()
        assert resync(census, now=5.0) == []
        assert shown(census) == {"a": 1, "b": 2}
    leader.marks(census, 6.0)
    assert shown(census) == {"a": 1, "b": 2}
    assert census.proven_at == 6.0


def test_what_is_newer_in_an_unconfirmed_snapshot_is_shown_at_once() -> None:
    census = loaded(A, B)
    census.reconnected()
    gone = Departed(epoch="e1", revision=9, namespace="default", service="s", id="b", term="t")
    changes = resync(census, present("a", 7), gone, present("c", 8), now=5.0)
    assert {(change.kind, change.instance.id) for change in changes} == {
        ("changed", "a"),
        ("left", "b"),
        ("joined", "c"),
    }


def test_changes_during_a_resync_are_in_the_candidate() -> None:
    census, leader = loaded(A), Leader()
    census.reconnected()
    census.begin_load()
    census.take(present("a", 5), 1.0)
    census.load(A, 1.0)
    census.load(B, 1.0)
    census.end_load(1.0)
    leader.has(present("a", 5), B)
    leader.marks(census, 2.0)
    assert shown(census) == {"a": 5, "b": 2}
    assert census.proven_at == 2.0


def test_a_namespace_mark_without_a_mark_of_the_service_means_empty_once_the_next_one_came() -> None:
    census, leader = loaded(), Leader()
    for now in (2.0, 4.0):
        leader.marks(census, now)
        assert census.proven_at == 0.0
    leader.marks(census, 6.0)
    assert census.proven_at == 6.0


def test_a_set_that_should_be_empty_is_read_anew_and_emptied_when_confirmed() -> None:
    census, leader = loaded(A), Leader()
    for now in (2.0, 4.0, 6.0, 8.0):
        leader.marks(census, now)
    assert census.wanted
    assert shown(census) == {"a": 1}
    assert [change.kind for change in resync(census, now=8.5)] == ["left"]
    assert shown(census) == {}
    assert census.proven_at == 8.5


def test_a_round_that_was_heard_in_part_proves_nothing_empty() -> None:
    census, leader = loaded(A), Leader()
    leader.has(A)
    leader.marks(census, 2.0)
    census.reconnected()
    resync(census, now=3.0)  # the broker came back without the topology
    half = NamespaceMark(epoch="e1", round=leader.round + 1, revision=0)
    census.namespace_mark(half, 4.0)  # its service marks were said before the reconnect
    leader.round += 1
    leader.marks(census, 6.0)
    leader.marks(census, 8.0)
    assert shown(census) == {"a": 1}


def test_another_epoch_wants_a_resync_and_the_set_follows_to_lower_revisions() -> None:
    old = [present("a", 500), present("b", 501)]
    census, leader = loaded(*old), Leader("e2")
    new = present("a", 3, epoch="e2")
    leader.has(new)
    leader.marks(census, 2.0)
    assert census.unsure
    assert not census.wanted
    census.believe("e2")
    assert census.wanted
    census.take(new, 2.5)
    assert shown(census) == {"a": 3, "b": 501}
    resync(census, new, now=3.0)
    leader.marks(census, 4.0)
    assert shown(census) == {"a": 3}
    assert (census.wanted, census.unsure) == (False, False)


def test_what_bears_an_epoch_that_is_not_the_logs_changes_nothing() -> None:
    """Whoever may publish may name any epoch: it is a hint to ask, and the log's own word is believed."""
    census, leader, other = loaded(A, B), Leader(), Leader("e9", round=70)
    leader.has(A, B)
    other.has(present("x", 1, "e9"))
    for now in (2.0, 4.0, 6.0):
        assert census.take(present("a", 900, "e9"), now) == []
        assert census.take(present("x", 1, "e9"), now) == []
        assert other.marks(census, now) == []
        assert census.unsure
        census.believe("e1")
        assert (census.wanted, census.unsure) == (False, False)
        leader.marks(census, now)
        assert census.proven_at == now
    assert shown(census) == {"a": 1, "b": 2}
    assert census.marked_at == 6.0


def test_a_stored_state_of_an_epoch_that_is_not_the_logs_is_not_loaded() -> None:
    census = loaded(A, present("b", 2, "e9"))
    assert census.unsure
    assert shown(census) == {"a": 1}
    census.believe("e1")
    assert not census.wanted
    census.take(B, 1.0)  # the projector told anew what was overwritten
    assert shown(census) == {"a": 1, "b": 2}


def test_marks_of_an_older_epoch_are_a_hint_and_nothing_more() -> None:
    census = loaded(present("a", 1, epoch="e2"), epoch="e2")
    leader = Leader("e1")
    for now in (2.0, 4.0, 6.0, 8.0):
        leader.marks(census, now)
        assert census.unsure
        census.believe("e2")
    assert not census.wanted
    assert census.proven_at == 0.0


def test_a_log_of_a_lower_epoch_is_followed_too_when_it_says_so_itself() -> None:
    """A whole broker was put back to an older state: what was told in the newer log is over."""
    census, leader = loaded(present("a", 7, "e2"), present("b", 2, "e2"), epoch="e2"), Leader("e1")
    leader.has(A)
    census.reconnected()
    census.believe("e1")
    assert resync(census, A, present("b", 2, "e2"), now=3.0) == []
    leader.marks(census, 4.0)
    leader.marks(census, 6.0)
    assert shown(census) == {"a": 1}
    assert census.proven_at == 6.0


def test_a_mark_of_the_old_log_proves_nothing_in_the_new_one() -> None:
    census, leader = loaded(A), Leader()
    leader.has(A, B)
    leader.marks(census, 2.0)  # waits for b, which was lost
    census.believe("e2")
    for one in (A, B, present("a", 1, "e2"), present("b", 2, "e2")):
        census.take(one, 3.0)
    assert shown(census) == {"a": 1, "b": 2}
    assert census.proven_at == 0.0


def test_a_resync_that_was_cut_short_is_wanted_again_and_shows_nothing() -> None:
    census = loaded(A, B)
    census.reconnected()
    census.begin_load()
    census.load(present("a", 9), 1.0)
    census.abandon_load()
    assert census.wanted
    assert shown(census) == {"a": 1, "b": 2}


def test_a_change_of_the_log_before_is_over() -> None:
    census = loaded(present("a", 1, "e2"), epoch="e2")
    assert census.take(B, 1.0) == []
    assert shown(census) == {"a": 1}


@pytest.mark.parametrize("cut_short", [False, True])
def test_a_first_load_that_was_cut_short_begins_anew(cut_short: bool) -> None:
    census = new(())
    census.begin_load()
    census.load(A, 0.0)
    if cut_short:
        census.abandon_load()
        assert census.wanted
        census.begin_load()
    census.load(B, 0.0)
    census.end_load(0.0)
    assert shown(census) == ({"b": 2} if cut_short else {"a": 1, "b": 2})


def test_a_whole_namespace_follows_services_as_they_come_and_go() -> None:
    census, leader = loaded(A, services=()), Leader()
    other = Instance(
        epoch="e1", revision=4, namespace="default", service="other", id="o", term="t", endpoints=A.endpoints,
        heartbeat=5.0, ttl=15.0,
    )  # fmt: skip
    assert [change.kind for change in census.take(other, 1.0)] == ["joined"]
    leader.has(A)
    leader.has(other, service="other")
    leader.marks(census, 2.0)
    assert census.proven_at == 2.0
    gone = Departed(epoch="e1", revision=5, namespace="default", service="other", id="o", term="t")
    assert [change.kind for change in census.take(gone, 2.5)] == ["left"]
    leader.has(service="other", revision=5)
    for now in (4.0, 6.0, 8.0):
        leader.marks(census, now)
    assert list(census.followed) == ["s"]
    assert census.proven_at == 8.0
    assert shown(census, "other") == {}


def test_to_hear_of_a_service_for_the_first_time_proves_nothing() -> None:
    """Its first instances may have been missed long ago."""
    census, leader = loaded(A, services=()), Leader()
    leader.has(A)
    for now in (2.0, 4.0, 6.0, 8.0):
        leader.marks(census, now)
    leader.has(B, service="other")
    leader.marks(census, 10.0)
    assert census.proven_at == 8.0
    census.reconnected()
    resync(census, A, now=20.0)
    assert census.proven_at == 8.0


def test_a_service_of_a_whole_namespace_that_was_missed_is_read_by_itself() -> None:
    census, leader = loaded(A, services=()), Leader()
    leader.has(A)
    leader.has(B, service="other")
    leader.marks(census, 2.0)
    leader.marks(census, 4.0)
    assert census.wanted
    assert census.begin_load() == ("other",)
