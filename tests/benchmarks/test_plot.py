"""Curves: the points that a comparison's JSON gives, the files that are drawn, and what is said of the rest."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.__main__ import main
from benchmarks.compare import Row, load, names
from benchmarks.curves import panels
from benchmarks.plot import style_of
from benchmarks.scenario import PERCENTILES, Curve, percentiles

MACHINE = {"cores": 2, "processor": "made up", "commit": "none", "at": "2026-01-01"}
FANOUT = [
    Row(scenario="fanout", size={"caches": caches, "changes": 3}, contender=who, rounds=rounds)
    for caches, who, rounds in (
        (1000, "adsum", [{"first": 4.0, "median": 40.0, "last": 50.0}, {"first": 6.0, "median": 42.0, "last": 54.0}]),
        (100, "adsum", [{"first": 3.0, "median": 5.0, "last": 7.0}]),
        (100, "etcd-channels", [{"first": 2.0, "median": 4.0, "last": 8.0}]),
        (1000, "etcd-channels", [{"first": 2.5, "median": 45.0, "last": 70.0}]),
    )
]


def burst(instances: int, caches: int, cpu: float, who: str = "adsum") -> Row:
    """One round."""
    rounds = [{"server_cpu": cpu}]
    return Row(scenario="burst", size={"instances": instances, "caches": caches}, contender=who, rounds=rounds)


def visibility(rate: float, *, times: float = 1.0) -> Row:
    """One round, with a distribution of its own."""
    figures = {name: times * (number + 1) for number, name in enumerate(PERCENTILES)}
    return Row(scenario="visibility", size={"rate": rate, "seconds": 1.0}, contender="etcd", rounds=[figures])


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """As `compare --json` writes it."""
    path.write_text(json.dumps({"machine": MACHINE, "level": "tiny", "versions": {}, "rows": rows}))
    return path


def as_json(row: Row) -> dict[str, Any]:
    """As it stands in the file."""
    told: dict[str, Any] = msgspec.to_builtins(row)
    return told


def test_a_line_goes_through_the_medians_from_the_smallest_size_to_the_largest() -> None:
    """A panel for each of the three figures; beside the median stand the smallest and the largest round."""
    drawn, left_out = panels(FANOUT)
    assert left_out == []
    assert [(panel.curve.plot, panel.size) for panel in drawn] == [("fanout", "changes 3")] * 3
    first, median, last = (panel.lines for panel in drawn)
    assert first["adsum"] == [(100, 3.0, 3.0, 3.0), (1000, 5.0, 4.0, 6.0)]
    assert median["adsum"] == [(100, 5.0, 5.0, 5.0), (1000, 41.0, 40.0, 42.0)]
    assert last["etcd-channels"] == [(100, 8.0, 8.0, 8.0), (1000, 70.0, 70.0, 70.0)]
    assert list(last) == ["adsum", "etcd-channels"]


def test_only_sizes_that_differ_in_nothing_else_share_a_line() -> None:
    """A burst with four caches is no point of the line with one, and alone it is no curve."""
    drawn, left_out = panels([burst(1_000, 1, 0.2), burst(10_000, 1, 0.3), burst(10_000, 4, 0.9)])
    [panel] = drawn
    assert panel.size == "caches 1"
    assert panel.lines == {"adsum": [(1_000, 0.2, 0.2, 0.2), (10_000, 0.3, 0.3, 0.3)]}
    assert left_out == ["burst, caches 4: burst of registrations: a curve needs figures of two sizes or more"]


def test_a_distribution_runs_along_its_percentiles_size_by_size() -> None:
    """As the scenario makes them: of a thousand values each share of them."""
    figures = percentiles([float(value) for value in range(1000, 0, -1)])
    assert figures["p50"] == 500
    assert (figures["p10"], figures["p99.9"], figures["max"]) == (100, 999, 1000)
    slow, fast = visibility(10.0), visibility(100.0, times=2.0)
    drawn, left_out = panels([slow, fast])
    assert left_out == []
    assert [panel.size for panel in drawn] == ["rate 10.0, seconds 1.0", "rate 100.0, seconds 1.0"]
    assert [point.x for point in drawn[1].lines["etcd"]] == list(PERCENTILES.values())
    assert [point.median for point in drawn[1].lines["etcd"]] == [2.0 * (n + 1) for n in range(len(PERCENTILES))]


def test_what_is_left_out_is_told_with_the_reason() -> None:
    """Who has no figures, what has no logarithm, what has no curve, what is not known."""
    failed = Row(scenario="burst", size={"instances": 1, "caches": 1}, contender="etcd", trouble="it broke\n")
    rows = [
        *(burst(1_000, 1, 0.2), burst(10_000, 1, 0.3), failed, burst(1_000, 1, -0.5, "sqlite")),
        Row(scenario="picks", size={"instances": 100, "seconds": 1.0}, contender="adsum", rounds=[{"picks": 1.0}]),
        Row(scenario="gone", size={}, contender="adsum", rounds=[{"picks": 1.0}]),
    ]
    drawn, left_out = panels(rows)
    assert [list(panel.lines) for panel in drawn] == [["adsum"]]
    assert left_out == [
        "burst, instances 1, caches 1, etcd: it broke",
        "burst, instances 1,000, caches 1, sqlite: -0.5 servers' CPU s / 1,000 registrations have no place on a "
        "logarithmic axis",
        "picks: its table says it all",
        "gone: there is no such scenario here",
    ]


def test_every_curve_runs_along_a_field_of_its_sizes_and_every_contender_looks_its_own_way() -> None:
    """Also those that are not in the same plot now."""
    looks: dict[str, tuple[Any, ...]] = {}
    for name in names():
        scenario = load(name)
        for curve in scenario.curves:
            assert not isinstance(curve, Curve) or all(curve.x in size for size in scenario.sizes["full"])
        for contender in scenario.contenders:
            style = style_of(contender)
            looks[contender] = (style["color"], style["linestyle"], style["marker"])
    assert len(set(looks.values())) == len(looks)
    unknown = style_of("somebody-else")
    assert all(colour != unknown["color"] and mark != unknown["marker"] for colour, _, mark in looks.values())


def test_each_plot_is_a_file_that_comes_out_the_same_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a white ground, without a date; a figure that was no number is missing, not a reason to fail."""
    pytest.importorskip("matplotlib")
    rows = [as_json(row) for row in [*FANOUT, burst(10, 1, 0.2), burst(100, 1, 0.1), visibility(10.0)]]
    rows[1]["rounds"].append({"first": None, "median": 5.0, "last": None})
    file = written(tmp_path / "figures.json", rows)
    drawn = []
    for folder in (tmp_path / "one" / "deeper", tmp_path / "other"):
        assert main(["plot", str(file), "--into", str(folder)]) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert err.splitlines() == [f"written: {folder / name}.svg" for name in ("fanout", "growth", "visibility")]
        drawn.append({path.name: path.read_text() for path in folder.iterdir()})
    assert drawn[0] == drawn[1]
    assert sorted(drawn[0]) == ["fanout.svg", "growth.svg", "visibility.svg"]
    for text in drawn[0].values():
        assert text.startswith("<?xml")
        assert re.search(r'id="patch_1">\s*<path [^>]*style="fill: #ffffff"', text), "the ground of all"
        assert "<dc:date>" not in text


def test_nothing_to_draw_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One size is no curve."""
    file = written(tmp_path / "figures.json", [as_json(burst(10, 1, 0.2))])
    assert main(["plot", str(file), "--into", str(tmp_path / "plots")]) == 1
    assert "a curve needs figures of two sizes" in capsys.readouterr().err
    assert not (tmp_path / "plots").exists()


@pytest.mark.parametrize(
    "content", [None, b"", b"\xff\x00", b"[1, 2]", b'{"rows": []}', b'{"machine": {}, "rows": [{"scenario": 3}]}']
)
def test_what_is_no_such_file_is_wrong_usage(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, and nothing is written."""
    file = tmp_path / "figures.json"
    if content is not None:
        file.write_bytes(content)
    assert main(["plot", str(file), "--into", str(tmp_path / "plots")]) == 2
    assert f"{file} is not what compare --json writes: " in capsys.readouterr().err
    assert not (tmp_path / "plots").exists()


def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not a traceback."""
    file = written(tmp_path / "figures.json", [as_json(row) for row in FANOUT])
    assert main(["plot", str(file), "--into", str(file)]) == 1
    assert "cannot draw: " in capsys.readouterr().err


def test_only_drawing_needs_matplotlib() -> None:
    """Whoever measures does without it."""
    code = "import sys, benchmarks.__main__; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]).returncode == 0
