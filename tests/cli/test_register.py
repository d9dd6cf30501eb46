"""A program of any language as a child: what is registered, when, and how the two end."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
from pathlib import Path

import pytest

from adsum.clients.port import is_here
from tests.waiting import until

from .programs import SCRIPTS, Adsum, Running, alive, children, environment, free_port, listener, start, types

SHORT = ("--heartbeat", "0.5s", "--ttl", "1.5s", "--drain-wait", "100ms")


async def test_it_is_registered_once_its_port_is_open_and_deregistered_when_it_ends(adsum: Adsum) -> None:
    port = free_port()
    script = (
        f"import time, socket; time.sleep(0.3); s = socket.create_server(('127.0.0.1', {port})); s.accept(); s.accept()"
    )
    wrapper = await adsum.start(
        "register", "orders", "--port", str(port), "--host", "127.0.0.1", "--id", "one", "--capability", "payments",
        "--meta", "team=a=b", "--protocol", "http", "--version", "1.2", "--zone", "eu", "--weight", "2", *SHORT,
        "--", sys.executable, "-c", script,
    )  # fmt: skip
    await wrapper.says(f"registered default/orders/one at 127.0.0.1:{port}")
    (registered,) = await adsum.events()
    assert registered["type"] == "registered"
    assert registered["author"]["kind"] == "owner"
    assert registered["instance"] == {
        "endpoints": [{"name": "main", "host": "127.0.0.1", "port": port, "protocol": "http"}],
        "capabilities": ["payments"],
        "metadata": {"team": "a=b"},
        "version": "1.2",
        "zone": "eu",
        "weight": 2.0,
        "heartbeat": 0.5,
        "ttl": 1.5,
    }
    await _connect(port)  # it accepts a second time and ends by itself
    assert await wrapper.code() == 0
    assert types(await adsum.events()) == ["registered", "deregistered"]


@pytest.mark.parametrize(
    ("last", "reason"), [("exit 0", "exit 0"), ("exit 3", "exit 3"), ("kill -9 $$", "signal 9 (SIGKILL)")]
)
async def test_the_log_says_how_the_program_ended(adsum: Adsum, last: str, reason: str) -> None:
    script = f"read line; {last}"
    wrapper = await adsum.start(
        "register", "x", "--port", str(free_port()), "--no-wait", "--", "sh", "-c", script, feed=True
    )
    await wrapper.says("registered")
    wrapper.feed()
    await wrapper.code()
    assert (await adsum.events())[-1].get("reason") == reason
    assert (await adsum("log")).out.splitlines()[-1].endswith(f"  {reason}")


@pytest.mark.parametrize(("sent", "reason"), [(signal.SIGTERM, "stopped"), (signal.SIGINT, "interrupted")])
async def test_the_log_says_who_ended_it_where_somebody_did(adsum: Adsum, sent: signal.Signals, reason: str) -> None:
    for command in ([], ["--", "sleep", "60"]):
        port = str(free_port())
        wrapper = await adsum.start("register", "x", "--port", port, "--no-wait", "--drain-wait", "0", *command)
        await wrapper.says("registered")
        wrapper.send(sent)
        await wrapper.code()
        assert (await adsum.events())[-1].get("reason") == reason


async def test_streams_are_the_childs_own(adsum: Adsum) -> None:
    result = await adsum(
        "register", "x", "--port", str(free_port()), "--", "sh", "-c", "echo out; echo err >&2; exit 3"
    )
    assert (result.code, result.out) == (3, "out\n")
    assert "err" in result.err.splitlines()


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (["adsum-no-such-program"], 127, "adsum-no-such-program: command not found"),
        (["/nowhere/program"], 127, "/nowhere/program: command not found"),
        (["/etc/passwd"], 126, "/etc/passwd: Permission denied"),
        (["/tmp"], 126, "/tmp: is a directory"),
    ],
)
async def test_a_command_that_cannot_run_is_told_as_by_a_shell(
    adsum: Adsum, command: list[str], code: int, told: str
) -> None:
    result = await adsum("register", "x", "--port", str(free_port()), "--", *command)
    assert (result.code, result.err) == (code, f"adsum: {told}\n")
    assert await adsum.events() == []


async def test_a_script_without_interpreter_line_is_126(adsum: Adsum, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    result = await adsum("register", "x", "--port", str(free_port()), "--", str(script))
    assert result.code == 126
    assert "no #! line" in result.err
    script.write_text("#!/nowhere/sh\n")
    result = await adsum("register", "x", "--port", str(free_port()), "--", str(script))
    assert result.code == 126
    assert "interpreter" in result.err


async def test_a_child_that_a_signal_killed_gives_128_and_n(adsum: Adsum) -> None:
    result = await adsum("register", "x", "--port", str(free_port()), "--", "sh", "-c", "kill -9 $$")
    assert result.code == 128 + signal.SIGKILL


async def test_sigterm_drains_deregisters_and_then_stops_the_child(adsum: Adsum) -> None:
    port = free_port()
    wrapper = await adsum.start("register", "orders", "--port", str(port), "--id", "one", *SHORT, "--", *listener(port))
    await wrapper.says("registered")
    wrapper.send(signal.SIGTERM)
    assert await wrapper.code() == 7
    assert wrapper.out == ["listening", "got TERM"]
    said = await adsum.events()
    assert types(said) == ["registered", "mode-changed", "deregistered"]
    assert said[1]["mode"] == "draining"


async def test_sigint_to_the_wrapper_alone_is_forwarded(adsum: Adsum) -> None:
    port = free_port()
    script = f"import signal, socket; s = socket.create_server(('127.0.0.1', {port}))\nwhile True: s.accept()"
    wrapper = await adsum.start(
        "register", "orders", "--port", str(port), *SHORT, "--", sys.executable, "-c", script, start_new_session=True
    )
    await wrapper.says("registered")
    wrapper.send(signal.SIGINT)
    assert await wrapper.code() == 130
    assert any("KeyboardInterrupt" in line for line in wrapper.err)  # the child's own traceback: it was interrupted
    assert types(await adsum.events())[-1] == "deregistered"


async def test_a_second_signal_cuts_the_wait_short(adsum: Adsum) -> None:
    port = free_port()
    wrapper = await adsum.start("register", "orders", "--port", str(port), "--drain-wait", "1h", "--", *listener(port))
    await wrapper.says("registered")
    wrapper.send(signal.SIGTERM)
    await until(lambda: _types(adsum), lambda seen: "mode-changed" in seen)
    assert wrapper.process.returncode is None
    wrapper.send(signal.SIGTERM)
    assert await wrapper.code() == 7
    assert types(await adsum.events())[-1] == "deregistered"


async def test_other_signals_are_passed_on(adsum: Adsum) -> None:
    port = free_port()
    script = "trap 'echo hup' HUP; trap 'echo usr' USR1; echo ready; while :; do sleep 0.05; done"
    wrapper = await adsum.start("register", "x", "--port", str(port), "--no-wait", *SHORT, "--", "sh", "-c", script)
    await wrapper.prints("ready")
    wrapper.send(signal.SIGHUP)
    await wrapper.prints("hup")
    wrapper.send(signal.SIGUSR1)
    await wrapper.prints("usr")
    wrapper.send(signal.SIGTERM)
    assert await wrapper.code() == 128 + signal.SIGTERM


async def test_the_wrapper_killed_hard_takes_the_child_along(adsum: Adsum) -> None:
    port = free_port()
    wrapper = await adsum.start("register", "orders", "--port", str(port), "--", *listener(port))
    await wrapper.says("registered")
    (child,) = children(wrapper.pid)
    wrapper.send(signal.SIGKILL)
    await wrapper.code()
    await until(lambda: alive(child), lambda lives: not lives)
    assert types(await adsum.events()) == ["registered"]


async def test_the_child_starts_and_ends_without_any_broker(adsum: Adsum) -> None:
    port = free_port()
    away = environment(f"nats://127.0.0.1:{free_port()}")
    wrapper = await adsum.start("register", "orders", "--port", str(port), *SHORT, "--", *listener(port), env=away)
    await wrapper.prints("listening")
    await wrapper.says("not registered within")
    wrapper.send(signal.SIGTERM)
    assert await wrapper.code() == 7


async def test_a_port_that_stays_closed_is_said_once_and_not_registered(adsum: Adsum) -> None:
    port = free_port()
    wrapper = await adsum.start("register", "orders", "--port", str(port), "--", "sleep", "60")
    await wrapper.says(f"nothing accepts connections at port {port}")
    assert await adsum.events() == []
    wrapper.send(signal.SIGTERM)
    assert await wrapper.code() == 128 + signal.SIGTERM
    assert await adsum.events() == []


async def test_no_wait_registers_at_once(adsum: Adsum) -> None:
    wrapper = await adsum.start("register", "x", "--port", str(free_port()), "--no-wait", "--", "sleep", "60")
    await wrapper.says("registered", 4)
    wrapper.send(signal.SIGTERM)
    assert await wrapper.code() == 128 + signal.SIGTERM


async def test_a_port_that_is_taken_is_refused_before_the_program_starts(adsum: Adsum) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ([], ["--host", "127.0.0.1"]):
            result = await adsum("register", "x", "--port", str(port), *host, "--", "echo", "started")
            assert (result.code, result.out) == (1, "")
            assert result.err.startswith(f"adsum: port {port} is taken: ")
            assert result.err.count("\n") == 1
    assert await adsum.events() == []


async def test_a_taken_port_may_be_shared_or_not_looked_at(adsum: Adsum) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for option in ("--port-shared", "--no-wait"):
            wrapper = await adsum.start("register", "x", "--port", str(port), option, "--", "sleep", "60")
            await wrapper.says("registered")
            wrapper.send(signal.SIGTERM)
            assert await wrapper.code() == 128 + signal.SIGTERM
            assert not any("taken" in line for line in wrapper.err)


async def test_a_port_that_is_about_to_be_given_up_is_waited_for(adsum: Adsum) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    wrapper = await adsum.start("register", "x", "--port", str(port), *SHORT, "--", *listener(port))
    server.settimeout(10)
    tried, _ = await asyncio.to_thread(server.accept)  # it has looked
    tried.close()
    server.close()
    await wrapper.says("registered")
    wrapper.send(signal.SIGTERM)
    assert await wrapper.code() == 7


async def test_only_an_address_of_this_machine_is_here() -> None:
    assert await is_here("127.0.0.1")
    assert await is_here("localhost")
    assert not await is_here("192.0.2.1")
    assert not await is_here("no-such-host.invalid")


async def test_the_program_is_told_who_it_is(adsum: Adsum) -> None:
    port = str(free_port())
    wanted = ["ADSUM_SERVICE", "ADSUM_NAMESPACE", "ADSUM_PORT", "ADSUM_NATS", "ADSUM_ID"]
    arguments = ["register", "x", "--namespace", "staging", "--port", port, "--no-wait"]
    script = f"echo {' '.join(f'${name}' for name in wanted)}; exec sleep 60"
    for id in (["--id", "one"], []):
        wrapper = await adsum.start(*arguments, *id, "--", "sh", "-c", script)
        told = (await wrapper.prints("staging")).split()
        assert told[:-1] == ["x", "staging", port, adsum.url]
        assert not id or told[-1] == "one"
        assert f"staging/x/{told[-1]} at" in await wrapper.says("registered")
        wrapper.send(signal.SIGTERM)
        await wrapper.code()


async def test_a_shared_port_that_was_open_before_is_not_taken_for_the_childs(adsum: Adsum) -> None:
    port = free_port()
    first = await adsum.start("register", "x", "--port", str(port), "--id", "first", *SHORT, "--", *listener(port))
    await first.says("registered")
    options = ("--port-shared", "--id", "second", *SHORT)
    second = await adsum("register", "x", "--port", str(port), *options, "--", *listener(port))
    assert second.code == 1  # the child's: the address is in use
    assert any("Error" in line for line in second.err.splitlines())
    assert [event["id"] for event in await adsum.events()] == ["first"]


async def test_removed_by_an_operator_the_child_goes_on(adsum: Adsum) -> None:
    port = free_port()
    wrapper = await adsum.start("register", "orders", "--port", str(port), "--id", "one", *SHORT, "--", *listener(port))
    await wrapper.says("registered")
    assert (await adsum("deregister", "orders", "one", "--reason", "wrong build")).code == 0
    told = await wrapper.says("goes on, unregistered")
    assert "removed by operator" in told
    assert "wrong build" in told
    assert sum("wrong build" in line for line in wrapper.err) == 1
    assert types(await adsum.events()) == ["registered", "deregistered"]
    wrapper.send(signal.SIGTERM)
    assert await wrapper.code() == 7
    assert types(await adsum.events()) == ["registered", "deregistered"]


async def test_superseded_the_older_child_goes_on(adsum: Adsum) -> None:
    ports = free_port(), free_port()
    older, newer = [
        await _started(adsum, "register", "orders", "--port", str(port), "--id", "one", *SHORT, "--", *listener(port))
        for port in ports
    ]
    assert "superseded" in await older.says("goes on, unregistered")
    assert sum("superseded" in line for line in older.err) == 1
    older.send(signal.SIGTERM)
    assert await older.code() == 7
    assert types(await adsum.events()) == ["registered", "registered"]
    newer.send(signal.SIGTERM)
    assert await newer.code() == 7


async def test_without_a_command_it_keeps_something_registered_until_stopped(adsum: Adsum) -> None:
    arguments = ("register", "mail", "--host", "smtp.example.com", "--port", "25", *SHORT)
    for sent, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        keeper = await adsum.start(*arguments)
        await keeper.says("smtp.example.com:25")
        keeper.send(sent)
        assert await keeper.code() == code
        assert types(await adsum.events())[-1] == "deregistered"


async def test_without_a_command_it_ends_when_it_is_removed(adsum: Adsum) -> None:
    keeper = await adsum.start("register", "mail", "--host", "smtp.example.com", "--port", "25", "--id", "one", *SHORT)
    await keeper.says("registered")
    assert (await adsum("deregister", "mail", "one")).code == 0
    assert await keeper.code() == 1
    assert sum("removed by operator" in line for line in keeper.err) == 1


async def test_nobody_reading_its_notes_does_not_end_it(adsum: Adsum) -> None:
    port = free_port()
    command = " ".join(shlex.quote(word) for word in [*listener(port)])
    script = f"{SCRIPTS}/adsum register orders --id one --port {port} --drain-wait 0 -- {command} 2> >(exec true)"
    shell = await start(["bash", "-c", f"{script} & wrapper=$!; echo $wrapper; wait $wrapper; echo $?"], adsum.env)
    try:
        await shell.prints("listening")
        await until(lambda: _types(adsum), lambda seen: seen == ["registered"])
        os.kill(int(shell.out[0]), signal.SIGTERM)
        await shell.code()
        assert shell.out[-1] == "7"
        assert types(await adsum.events())[-1] == "deregistered"
    finally:
        await shell.stop()


async def _started(adsum: Adsum, *arguments: str) -> Running:
    running = await adsum.start(*arguments)
    await running.says("registered default")
    return running


async def _types(adsum: Adsum) -> list[str]:
    return types(await adsum.events())


async def _connect(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
