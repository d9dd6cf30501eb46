"""Wrong usage and bad values: one clear line, the right exit code, nothing stored."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from .programs import Adsum, environment, free_port

BAD_VALUES = [
    (["register", "orders", "--port", "0"], "port 0: must be a whole number from 1 to 65535"),
    (["register", "orders", "--port", "65536"], "port 65536"),
    (["register", "Orders", "--port", "1"], "service 'Orders': must be 1 to 63 of a-z, 0-9 and '-'"),
    (["register", "orders", "--port", "1", "--id", "a.b"], "'a-b' would do"),
    (["register", "orders", "--port", "1", "--host", "0.0.0.0"], "wildcard"),
    (["register", "orders", "--port", "1", "--host", "::"], "wildcard"),
    (["register", "orders", "--port", "1", "--ttl", "5 parsecs"], "ttl '5 parsecs': must be a positive duration"),
    (["register", "orders", "--port", "1", "--ttl", "1s", "--heartbeat", "1s"], "ttl '1s': must be at least two heart"),
    (["register", "orders", "--port", "1", "--heartbeat", "1ms"], "heartbeat '1ms': must be at least"),
    (["register", "orders", "--port", "1", "--weight", "nan"], "weight nan"),
    (["register", "orders", "--port", "1", "--weight", "-1"], "weight -1"),
    (["register", "orders", "--port", "1", "--capability", "a b"], "capability 'a b'"),
    (["register", "orders", "--port", "1", "--meta", "novalue"], "meta 'novalue': must be KEY=VALUE"),
    (["register", "orders", "--port", "1", "--meta", f"k={'x' * 5000}"], "at most 4096"),
    (["register", "orders", "--port", "1", "--protocol", "HTTP/2"], "protocol 'HTTP/2'"),
    (["services", "--namespace", "a_b"], "namespace 'a_b'"),
    (["services", "--nats", "http://localhost"], "broker URL 'http://localhost': must begin with nats://"),
    (["services", "--timeout", "soon"], "timeout 'soon'"),
    (["services", "--config", "/nowhere/adsum.toml"], "configuration file '/nowhere/adsum.toml'"),
    (["instances", "a/b"], "service 'a/b'"),
    (["instances", "--capability", ""], "capability ''"),
    (["watch", "A"], "service 'A'"),
    (["log", "A"], "service 'A'"),
    (["drain", "orders", "A"], "'a' would do"),
    (["at", "tomorrow"], "time 'tomorrow': must be a date or a time such as \"2026-01-31T14:32\""),
    (["at", "2h"], "'-2h' would do"),
    (["at", "9999-12-31T23:59Z"], "time '9999-12-31T23:59Z': is in the future: it is 20"),
    (["at", "-2parsecs"], "time '-2parsecs': must be"),
    (["at", "now", "Orders"], "service 'Orders'"),
    (["diff", "now", "-2h"], "must not be before TIME1"),
    (["diff", "@2", "@1"], "TIME2 '@1': must not be before TIME1"),
    (["why", "orders", "A"], "'a' would do"),
    (["uptime", "--since", "now", "--until", "-1h"], "must not be before --since"),
    (["uptime", "A"], "service 'A'"),
    (["log", "--type", "expire"], "type 'expire': is none of registered, updated"),
    (["log", "--instance", "A"], "instance id 'A'"),
    (["log", "--instance", "0198c5…9a1000"], "is shortened; adsum log | less -S shows it in full"),
    (["log", "--since", "yesterdy"], "since 'yesterdy': must be"),
    (["log", "--since", "@2", "--until", "@1"], "until '@1': must not be before --since"),
]
WRONG_USAGE = [
    (["regster"], "Did you mean"),
    (["register", "orders", "--prot", "1"], "--port"),
    (["register", "orders"], "Missing option '--port'"),
    (["register", "orders", "--port", "http"], "'http' is not a valid integer"),
    (["register", "orders", "stray", "--port", "1"], "unexpected extra argument (stray). A COMMAND comes after '--'"),
    (
        ["register", "web", "--port", "8200", "python3", "-m", "http.server", "8200"],
        "No such option '-m'. A COMMAND comes after '--' (… -- python3 …). Try",
    ),
    (["services", "stray"], "unexpected extra argument (stray). Try"),
    (["register", "orders", "--port", "1", "--"], "there is no COMMAND after '--'"),
    (["services", "--jsn"], "--json"),
    (["deregister", "orders"], "Missing argument 'ID'"),
    (["at"], "Missing argument 'TIME'"),
    (["diff", "-2h"], "Missing argument 'TIME2'"),
    (["at", "now", "--rutable"], "--routable"),
    (["trim", "--finish", "--before", "-2h"], "--finish stands alone"),
    (["log", "--follow", "--until", "now"], "--follow goes on for ever and --until ends"),
]


@pytest.fixture
def nowhere() -> Adsum:
    """The command, and no broker: what is wrong must be said without one."""
    return Adsum(f"nats://127.0.0.1:{free_port()}")


@pytest.mark.parametrize(("arguments", "told"), BAD_VALUES, ids=lambda value: " ".join(value)[:60])
async def test_a_bad_value_is_named_with_its_rule(nowhere: Adsum, arguments: list[str], told: str) -> None:
    result = await nowhere(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("adsum: ")
    assert result.err.count("\n") == 1
    assert told in result.err


@pytest.mark.parametrize(("arguments", "told"), WRONG_USAGE, ids=lambda value: " ".join(value)[:60])
async def test_wrong_usage_is_one_line_with_the_way_out(nowhere: Adsum, arguments: list[str], told: str) -> None:
    result = await nowhere(*arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert told in result.err
    assert "--help" in result.err


async def test_a_mistyped_option_is_not_taken_for_a_command(nowhere: Adsum) -> None:
    result = await nowhere("register", "orders", "--prot", "1")
    assert "COMMAND" not in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        *(["services"], ["instances"], ["log"], ["status"], ["drain", "a", "b"], ["deregister", "a", "b"]),
        *(["at", "now"], ["diff", "-1h", "now"], ["why", "a", "b"], ["uptime"]),
        *(["verify"], ["rebuild", "--into", "sqlite:///never.db"]),
    ],
)
async def test_a_broker_that_is_not_there_is_one_line_and_3(nowhere: Adsum, arguments: list[str]) -> None:
    result = await nowhere(*arguments, "--timeout", "200ms")
    assert (result.code, result.out) == (3, "")
    assert result.err.count("\n") == 1
    assert nowhere.url in result.err


async def test_something_else_at_the_brokers_port_is_one_line_too(nowhere: Adsum) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"nats://127.0.0.1:{mute.getsockname()[1]}"
        result = await nowhere("services", "--timeout", "300ms", "--nats", url)
    assert result.code == 3
    assert result.err.count("\n") == 1


async def test_a_password_in_the_url_is_never_shown(nowhere: Adsum) -> None:
    url = nowhere.url.replace("//", "//ann:secret@")
    result = await nowhere("services", "--timeout", "200ms", "--nats", url)
    assert result.code == 3
    assert "secret" not in result.err


async def test_options_stand_before_or_after_the_command(adsum: Adsum) -> None:
    away = environment(f"nats://127.0.0.1:{free_port()}")
    for arguments in (["--nats", adsum.url, "services"], ["services", "--nats", adsum.url]):
        result = await adsum(*arguments, env=away)
        assert result.code == 0, result.err


async def test_the_configuration_names_the_broker_unless_the_environment_or_a_flag_does(
    adsum: Adsum, tmp_path: Path
) -> None:
    away = f"nats://127.0.0.1:{free_port()}"
    plain = {key: value for key, value in adsum.env.items() if key != "ADSUM_NATS"}
    file = tmp_path / "adsum.toml"

    async def code(configured: str, env: dict[str, str], *arguments: str) -> int:
        file.write_text(f'[nats]\nurl = "{configured}"\n[discovery]\nttl = "30s"\n')
        return (await adsum("services", "--config", str(file), "--timeout", "500ms", *arguments, env=env)).code

    assert await code(adsum.url, plain) == 0
    assert await code(away, plain) == 3
    assert await code(away, adsum.env) == 0
    assert await code(away, adsum.env, "--nats", away) == 3
    file.write_text('[nats]\nurll = "nats://localhost"\n')
    result = await adsum("services", "--config", str(file))
    assert result.code == 2
    assert "'url' would do" in result.err


async def test_every_command_explains_itself(nowhere: Adsum) -> None:
    for command in (
        *("services", "instances", "watch", "log", "status", "register", "drain", "deregister"),
        *("at", "diff", "why", "uptime"),
        *("export", "import", "trim", "rebuild", "verify"),
    ):
        result = await nowhere(command, "--help")
        assert result.code == 0
        assert "Example" in result.out
    assert "Exit codes" in (await nowhere("--help")).out


@pytest.mark.parametrize(
    ("module", "without", "code", "told"),
    [
        ("adsum.clients.cli", "click", 2, "adsum: needs adsum[cli]: pip install 'adsum[cli]'"),
        ("adsum.clients.cli", "rich", 2, "adsum: needs adsum[cli]: pip install 'adsum[cli]'"),
        (
            "adsum.projector.main",
            "asyncpg",
            1,
            "ImportError: adsumd needs aiosqlite and asyncpg: pip install 'adsum[projector]'",
        ),
    ],
)
def test_a_program_without_its_extra_says_what_to_install(module: str, without: str, code: int, told: str) -> None:
    """As where adsum was installed as a library alone."""
    program = f"import sys; sys.modules[{without!r}] = None; from {module} import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.splitlines()[-1]) == (code, "", told)
