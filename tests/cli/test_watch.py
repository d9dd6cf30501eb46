"""watch, with a real adsumd: every change, at once, through an outage."""

from __future__ import annotations

import signal

from tests.waiting import until

from .programs import SCRIPTS, Adsum, Running, start

SHORT = ("--heartbeat", "0.5s", "--ttl", "1.5s", "--drain-wait", "0")


async def keeper(adsum: Adsum, service: str, id: str, *more: str) -> Running:
    """Something registered until it is stopped."""
    running = await adsum.start("register", service, "--id", id, "--host", "10.0.0.1", "--port", "80", *SHORT, *more)
    await running.says("registered")
    return running


async def kinds(watcher: Running, count: int) -> list[tuple[str, str]]:
    """The first `count` changes: kind and id."""
    await until(lambda: len(watcher.out), lambda seen: seen >= count)
    return [(change["kind"], change["id"]) for change in watcher.events[:count]]


async def test_joined_changed_left(served: Adsum) -> None:
    first = await keeper(served, "orders", "a", "--capability", "payments")
    watcher = await served.start("watch", "--json")
    assert await kinds(watcher, 1) == [("joined", "a")]
    assert (await served("drain", "orders", "a", "--reason", "update")).code == 0
    assert await kinds(watcher, 2) == [("joined", "a"), ("changed", "a")]
    first.send(signal.SIGTERM)
    await first.code()
    joined, drained, left = [watcher.events[at] for at in range(len(await kinds(watcher, 3)))]
    assert joined["before"] is None
    assert joined["after"]["routable"] is True
    assert (drained["before"]["mode"], drained["after"]["mode"]) == ("serving", "draining")
    assert (left["kind"], left["after"], left["reason"]) == ("left", None, "deregistered")
    assert joined["revision"] < drained["revision"] < left["revision"]


async def test_one_that_is_killed_becomes_stale_and_leaves(served: Adsum) -> None:
    served.env["TZ"] = "Asia/Kolkata"
    watcher = await served.start("watch", "orders")
    victim = await keeper(served, "orders", "a")
    await keeper(served, "billing", "b")
    victim.send(signal.SIGKILL)
    await watcher.prints("up -> stale")
    await watcher.prints("expired")
    assert not any("billing" in line for line in watcher.out)
    assert all("+05:30  " in line for line in watcher.out[1:])  # times are this machine's


async def test_only_a_capability(served: Adsum) -> None:
    watcher = await served.start("watch", "--json", "--capability", "payments")
    await keeper(served, "orders", "a")
    await keeper(served, "orders", "b", "--capability", "payments")
    assert await kinds(watcher, 1) == [("joined", "b")]


async def test_a_reader_that_had_enough_ends_it_silently(served: Adsum) -> None:
    await keeper(served, "orders", "a")
    await keeper(served, "orders", "b")
    shell = await start(["bash", "-c", f"{SCRIPTS}/adsum watch --json | head -1; echo ${{PIPESTATUS[0]}}"], served.env)
    try:
        assert await shell.code(10) == 0  # without any change that it would have to write
        assert (shell.out[1:], shell.err) == (["141"], [])
    finally:
        await shell.stop()


async def test_of_one_that_left_it_tells_why(served: Adsum) -> None:
    watchers = [await served.start("watch", *json) for json in ([], ["--json"])]
    for id in ("a", "b"):
        await keeper(served, "orders", id)
    assert (await served("deregister", "orders", "a", "--reason", "wrong build")).code == 0
    await watchers[0].prints("wrong build")
    served.started[-2].send(signal.SIGTERM)
    line = await watchers[0].prints("deregistered: stopped")
    assert line.split()[3] == "b"
    assert any("deregistered by operator:" in line and line.endswith(": wrong build") for line in watchers[0].out)
    await until(
        lambda: [one["detail"] for one in watchers[1].events if one["kind"] == "left"], lambda left: len(left) == 2
    )
    assert {(one["id"], one["reason"], one["detail"]) for one in watchers[1].events if one["kind"] == "left"} == {
        ("a", "deregistered", "wrong build"),
        ("b", "deregistered", "stopped"),
    }


async def test_nobody_there_is_said_and_waited_for(served: Adsum) -> None:
    watcher = await served.start("watch", "nosuch")
    await watcher.says("nobody is there yet of default/nosuch")
    assert watcher.out == []
    await keeper(served, "nosuch", "a")
    await watcher.prints("joined")
    assert watcher.out[0].split()[:2] == ["TIME", "CHANGE"]


async def test_it_says_when_nothing_proves_it_complete_any_more(served: Adsum) -> None:
    watcher = await served.start("watch")
    await watcher.says("nobody is there yet")
    assert served.daemon is not None
    served.daemon.send(signal.SIGTERM)
    await watcher.says("the connection was lost")
    await watcher.says("nothing proves any more that this is complete")
    assert watcher.process.returncode is None
