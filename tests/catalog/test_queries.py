"""The named queries: the same names in both dialects, each of them used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from adsum.projector import postgres, sqlite
from adsum.projector.ledger import TABLES
from adsum.projector.queries import Dialect, Queries, Question, load_queries, parse_queries, sql_text

DIALECTS: tuple[Dialect, ...] = ("sqlite", "postgres")


def test_both_dialects_have_the_same_queries_in_the_same_order() -> None:
    names = [list(parse_queries(sql_text(dialect, "queries.sql"))) for dialect in DIALECTS]
    assert names[0] == names[1]
    assert set(names[0]) == set(Queries._fields)


@pytest.mark.parametrize("module", [sqlite, postgres], ids=DIALECTS)
def test_every_query_is_used(module: object) -> None:
    source = Path(str(module.__file__)).read_text()  # type: ignore[attr-defined]  # a module
    used = set(re.findall(r"_SQL\.(\w+)", source))
    by_auditors = {"stands", *(f"all_{table}" for table in TABLES)}
    assert used | set(get_args(Question)) | by_auditors == set(Queries._fields)


def test_every_question_is_asked() -> None:
    source = "".join(path.read_text() for path in Path(str(sqlite.__file__)).parent.glob("*.py"))
    assert set(re.findall(r'\.rows\(\s*"(\w+)"', source)) == set(get_args(Question))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_dialects_write_the_same_columns(dialect: Dialect) -> None:
    def columns(sql: str) -> list[str]:
        return re.sub(r"\s+", "", sql[sql.index("(") + 1 : sql.index(")")]).split(",")

    ours, other = load_queries(dialect), load_queries("sqlite")
    for name in (
        "insert_events",
        "insert_rejected",
        "begin_versions",
        "upsert_instances",
        "upsert_heard",
        "insert_held",
    ):
        assert columns(getattr(ours, name)) == columns(getattr(other, name))


def test_a_query_named_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="twice"):
        parse_queries("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;\n")


def test_comments_before_the_first_query_are_no_query() -> None:
    assert parse_queries("-- a file\n\n-- name: one\nSELECT\n  1;\n\n-- name: two\nSELECT 2;\n") == {
        "one": "SELECT\n  1",
        "two": "SELECT 2",
    }
