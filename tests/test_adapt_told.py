# SPDX-License-Identifier: GPL-2.0-only
"""What `ndm adapt` says while it runs, and of its numbers."""

from __future__ import annotations

from pathlib import Path

from ndm_tcp.adapt import report, verdict

from .paths.made import model, prediction


def test_every_table_says_which_runs_and_which_brackets(tmp_path: Path) -> None:
    """`ndm path predict` runs longer, so one path and algorithm have other numbers there."""
    lasts = {"one": 5.0, "two": 4.0, "three": 20.0}
    runs = {"shipped": prediction(9, 9.1, 9.2), "adapted": prediction(9.2, 9.3, 9.4)}
    of: verdict.Of = dict.fromkeys(lasts, runs)
    found = report.Adapted(
        "", True, "kmod", None, [], {}, of, verdict.differences(of), seconds=lasts
    )
    page = report.write(found, tmp_path, [model(name) for name in of]).read_text()
    lines = report.screen(found).splitlines()
    for name, seconds in lasts.items():
        said = f"runs of {seconds:g} s, 3 draws; brackets: lowest and highest of 3 draws; "
        said += "shipped: the network that ships"
        assert f"{name}: {said}:" in lines
        assert f"The means of {said}." in page.partition(f'<h2 id="{name}">')[2]
    (head,) = (line for line in lines if line.startswith("adapted less the others"))
    assert head.endswith("; brackets: 95 % intervals:")
    assert "The brackets of this table are 95 % intervals." in page
