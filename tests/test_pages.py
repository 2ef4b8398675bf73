# SPDX-License-Identifier: GPL-2.0-only
"""The HTML pages in a real browser: no error, nothing wider than a phone, columns that sort."""

from __future__ import annotations

import html as entities
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ndm_tcp import pages
from ndm_tcp.ab import compare
from ndm_tcp.ab import report as ab_report
from ndm_tcp.adapt import report as adapt_report
from ndm_tcp.adapt import verdict
from ndm_tcp.export.chain import export
from ndm_tcp.lab.score import html, tables
from ndm_tcp.paths import difference
from ndm_tcp.paths import report as path_report

from .conftest import ROOT
from .paths.made import model, prediction
from .test_ab import drawn
from .test_board import cell

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
PHONE, DESK = 390, 1280
PROBE = """<script>
window.failures = [];
const note = (event) => window.failures.push(event.message || "an image");
window.addEventListener("error", note, true);
window.addEventListener("load", () => {
  const head = document.querySelectorAll("th[data-sortable]")[1];
  const rows = () => [...head.closest("table").tBodies[0].rows];
  const column = () => rows().map((row) => row.cells[1].textContent.trim());
  const orders = [column()];
  for (let clicks = 0; clicks < 2; clicks++) { head.click(); orders.push(column()); }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const found = { failures: window.failures, wide: document.documentElement.scrollWidth,
                  inner: window.innerWidth, orders: orders, dark: dark,
                  back: getComputedStyle(document.body).backgroundColor,
                  broken: [...document.images].filter((one) => !one.naturalWidth).length };
  window.parent.postMessage(JSON.stringify(found), "*");
});
</script>"""
# A window is never narrower than 500 pixels, a frame is.
FRAME = """<!doctype html><body><script>
window.addEventListener("message", (event) => document.body.setAttribute("data-found", event.data));
</script><iframe src="page.html" width="{}" height="900" style="border: 0"></iframe></body>"""


def look(page: str, folder: Path, width: int, *options: str) -> dict[str, Any]:
    """What the browser says of a page."""
    if BROWSER is None:
        pytest.skip("no browser here; apt-get install chromium")
    file = folder / "page.html"
    assert "<head>" in page
    file.write_text(page.replace("<head>", "<head>" + PROBE, 1))
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    words += ["--window-size=1400,1000", "--virtual-time-budget=3000", *options, "--dump-dom"]
    frame = folder / "frame.html"
    frame.write_text(FRAME.format(width))
    done = subprocess.run(
        [BROWSER, *words, frame.as_uri()], capture_output=True, text=True, check=True, timeout=120
    )
    found = re.search(r'data-found="([^"]*)"', done.stdout)
    assert found, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(entities.unescape(found[1]))
    return answer


def board_page() -> str:
    names = ("c-dumbbell-loss-1", "c-dumbbell-loss-5")
    cells = [
        cell(cc, name, goodput_mbps=mbps, rtt_mean_ms=20.0)
        for name in names
        for cc, mbps in (("ndm_tcp", 9.3), ("bbr", 11.0), ("cubic", 1.5))
    ]
    board = tables.Board("The board", "ndm lab board " + "x" * 200, cells, {}, {}, {}, [])
    return html.page(board, [])


def paths_page(folder: Path) -> str:
    names = ("a-very-long-name-of-a-capture-port-40001", "two")
    models = [model(name, seen=None, notes=("<b>",)) for name in names]
    of_path = {"bbr": prediction(9, 9.1, 9.2), "cubic": prediction(4, 5, 6)}
    found = path_report.Replays(1, (), {"three": "its replay misses"})
    predictions = dict.fromkeys(names, of_path)
    return path_report.write_page(folder, found, models, predictions).read_text()


def adapt_page(folder: Path) -> str:
    of_path = {"shipped": prediction(9, 9.1, 9.2), "adapted": prediction(9.2, 9.3, 9.4)}
    paths = {"one": of_path}
    guard = verdict.Guard("validation", 57, 0.01, -0.01, 0.03)
    apart = difference.differences(paths, "adapted")
    said = verdict.sentence(apart, guard)
    found = adapt_report.Adapted(
        *(said[1], said[0], "kmod", guard, [], {"x.pcap": "y"}),
        *(paths, apart),
        seconds={"one": 5.0},
    )
    return adapt_report.write(found, folder, [model("one")]).read_text()


def ab_page(folder: Path) -> str:
    rng = np.random.default_rng(1)
    flows = [*drawn("a-cgroup.slice/with-a-long-name.service", 9, 10, rng), *drawn("b", 12, 9, rng)]
    found = compare.compare(flows, missed=3)
    return ab_report.write(found, flows, "<b>", folder).read_text()


@pytest.fixture(scope="module", params=["board", "report", "paths", "adapt", "ab"])
def page(
    request: pytest.FixtureRequest, run: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    if request.param == "board":
        return board_page()
    if request.param == "paths":
        return paths_page(tmp_path_factory.mktemp("paths"))
    if request.param == "adapt":
        return adapt_page(tmp_path_factory.mktemp("adapt"))
    if request.param == "ab":
        return ab_page(tmp_path_factory.mktemp("ab"))
    export(run, tmp_path_factory.mktemp("export") / "generated")
    return (run / "report.html").read_text()


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_page_fits_and_has_no_error(page: str, width: int, tmp_path: Path) -> None:
    found = look(page, tmp_path, width)
    assert found["failures"] == [] and found["broken"] == 0
    assert found["inner"] == width and found["wide"] <= width


def test_a_column_sorts_by_number_both_ways(tmp_path: Path) -> None:
    _, down, up = look(board_page(), tmp_path, DESK)["orders"]
    assert [float(x) for x in down] == [11.0, 9.3, 1.5]
    assert up == down[::-1]


def test_dark_mode_is_dark(page: str, tmp_path: Path) -> None:
    def light(color: str) -> float:
        return sum(map(int, re.findall(r"\d+", color)[:3])) / 3

    bright = look(page, tmp_path, DESK)
    dark = look(page, tmp_path, DESK, "--blink-settings=preferredColorScheme=0")
    assert not bright["dark"] and light(bright["back"]) > 200
    assert dark["dark"] and light(dark["back"]) < 60


def test_the_browser_would_notice(tmp_path: Path) -> None:
    """An error of the script, a missing picture, a page too wide."""
    wide = '<div style="width: 2000px">x</div><script>x.y()</script>'
    wide += '<img src="data:image/png;base64,AA"/>'
    found = look(board_page().replace("<h1>", wide + "<h1>", 1), tmp_path, PHONE)
    assert found["failures"] and found["broken"] == 1 and found["wide"] > PHONE


def test_a_value_is_text_and_no_markup() -> None:
    board = tables.Board("<b>", "<i>", [cell("<script>", "<u>")], {"<u>": "<s>"}, {}, {}, ["<q>"])
    text = html.page(board, [])
    assert not re.search("<(b|i|u|s|q)>|<td[^>]*><script>", text)


def test_every_template_is_in_the_package() -> None:
    assert {p.suffix for p in pages.HERE.iterdir()} >= {".j2", ".css", ".js"}
    text = (ROOT / "pyproject.toml").read_text()
    assert all(f'"pages/*{end}"' in text for end in (".j2", ".css", ".js"))
