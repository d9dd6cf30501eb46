"""What docs/audit.md promises: its SQL answers in both dialects, its questions on the bus too, its Python runs."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from datetime import datetime
from pathlib import Path

import msgspec

from adsum.clients import connect
from adsum.events import errors
from adsum.events.questions import ENDPOINTS, Status
from adsum.events.refusals import headers_of
from adsum.projector.catalog import Catalog
from tests.catalog.conftest import Database, catalog, database
from tests.catalog.story import Story
from tests.daemons import adsumd
from tests.databases import postgres, postgres_server
from tests.house.test_operations import known_adsum
from tests.house.tree import ROOT
from tests.making import key

__all__ = ["catalog", "database", "postgres", "postgres_server"]

NOON = datetime.fromisoformat("2026-01-31T12:00:00Z").timestamp()


def page() -> str:
    """The text of the page."""
    return (ROOT / "docs" / "audit.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL)


def rows(section: str) -> list[list[str]]:
    """The cells of the tables of a section."""
    text = page().split(f"## {section}\n")[1].split("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)]


def test_the_commands_are_known() -> None:
    lines = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    assert {line[1] for line in lines} == {"at", "diff", "why", "uptime", "log", "rebuild", "verify"}
    for program, *arguments in lines:
        assert program == "adsum"
        known_adsum(arguments)


async def test_the_sql_answers(catalog: Catalog, database: Database) -> None:
    """Around noon of that day: o-1 was there before and fell ill after, o-2 left before, o-3 came after."""
    story = Story()
    story.sequence = 4707
    first, second, third = key("o-1"), key("o-2"), key("o-3")
    told = [story.register(first), story.register(second), story.leave(second), story.lapse(first)]
    told += [story.health(first), story.register(third), story.leave(third)]
    times = (-60.0, -50.0, -40.0, 0.0, 0.000001, 60.0, 70.0)
    await story.tell(catalog, *(one._replace(time=NOON + after) for one, after in zip(told, times, strict=True)))
    now, life, at_time, at_revision, removed, classic = [await database.run(sql) for sql in blocks("sql")]
    assert now == []
    assert life == [
        (4708, "registered", "lapsed", "up", "passing", "serving", ""),
        (4711, "lapsed", "health-changed", "stale", "passing", "serving", ""),
        (4712, "health-changed", None, "stale", "critical", "serving", ""),
    ]
    assert at_time == at_revision == [("default", "orders", "o-1", "stale", "passing", "serving")]
    assert removed == [(4714, "orders", "o-3", "deregistered", "owner", "orders-7f")]
    assert classic == [("o-1", "10.0.0.7:8080", "payments")]
    await story.tell(catalog, story.register(first))
    assert await database.run(blocks("sql")[0]) == [("orders", "o-1", "10.0.0.7", 8080)]


async def test_the_tables_and_columns_that_are_told_exist(catalog: Catalog, database: Database) -> None:
    for names, holds in rows("In SQL")[2:]:
        table = names.strip("`")
        columns = [name for name in re.findall(r"`(\w+)`", holds) if name not in ("ended_",)]
        await database.run(f"SELECT {', '.join(columns) or '*'} FROM {table}")


async def test_the_questions_are_answered_on_the_bus(tmp_path: Path) -> None:
    told = rows("On the bus")
    first_cells = [cells[0].strip("`") for cells in told]
    assert [name for name in first_cells if name in ENDPOINTS] == list(ENDPOINTS)
    assert [cells[0].strip("`").split(".")[-1] for cells in told if "adsum.v1" in cells[0]] == list(ENDPOINTS)
    fields = next(cells[2] for cells in told if cells[0] == "`status`")
    assert set(re.findall(r"`(\w+)`", fields)) == set(Status.__struct_fields__)
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as daemon, connect(daemon.url) as registry:
        await registry.broker.ready(10)
        async with registry.register("orders", id="o-1", port=1):
            for subject, question in [(cells[0], cells[1]) for cells in told if "adsum.v1" in cells[0]]:
                asked = question.strip("`").replace("1769860800.0", "4e9").replace("4711", "1")
                answer = await registry.broker.request(subject.strip("`"), asked.encode())
                refused = (answer.headers or {}).get("Nats-Service-Error-Code")
                assert refused == ("425" if "time" in asked else None), answer
                msgspec.json.decode(answer.data or b"{}")


def test_the_errors_are_those_of_the_code() -> None:
    told = {cells[0]: cells[1].strip("`") for cells in rows("On the bus") if re.fullmatch(r"\d{3}", cells[0])}
    kinds = [getattr(errors, name) for name in told.values()]
    assert {headers_of(kind("x"))["Nats-Service-Error-Code"]: kind.__name__ for kind in kinds} == told
    assert {errors.QuestionRefused, *errors.QuestionRefused.__subclasses__()} <= set(kinds)


async def test_the_python_example_runs(tmp_path: Path) -> None:
    [example] = blocks("python")
    async with adsumd(tmp_path / "data", "--listen", "127.0.0.1:0") as daemon, connect(daemon.url) as registry:
        await registry.broker.ready(10)
        async with registry.register("orders", id="o-1", port=1) as me:
            assert me.state == "registered"
            code = example.replace("nats://127.0.0.1:4222", daemon.url).replace("- 60", "")
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-W", "error", "-c", code,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, err.decode()) == (0, "")
    assert out.decode() == "at revision 1: ['o-1']\n"


def test_the_page_is_linked_and_its_links_lead_somewhere() -> None:
    assert "](docs/audit.md)" in (ROOT / "README.md").read_text()
    for path in re.findall(r"\]\((?!http)([^)#]+)", page()):
        assert (ROOT / "docs" / path).exists()
