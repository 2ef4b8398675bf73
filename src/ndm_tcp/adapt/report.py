# SPDX-License-Identifier: GPL-2.0-only
"""What an adaptation found: adapt.json, a page, and a few lines for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ndm_tcp import files, pages
from ndm_tcp.adapt import verdict
from ndm_tcp.paths import difference
from ndm_tcp.paths import report as paths
from ndm_tcp.paths.model import PathModel
from ndm_tcp.paths.predict import Prediction

RESULT, PAGE = "adapt.json", "report.html"


@dataclass(frozen=True)
class Adapted:
    """The content of adapt.json."""

    sentence: str
    advised: bool
    folder: str
    """of the module's sources in the run"""
    guard: verdict.Guard | None
    held_out: list[str]
    """paths that training did not see; none: draws of the same paths were held out"""
    rejected: dict[str, str]
    """name of a model or source to why it does not teach"""
    judged: dict[str, dict[str, Prediction]]
    differences: dict[str, difference.Difference]
    """name of each other algorithm to the adapted network less it"""
    shipped: bool = False
    """is it the shipped network, since nothing was better?"""
    refused: verdict.Guard | None = None
    """the guard that refused the first network: the adapted one is `steps.mean`"""
    simulated: bool = False
    """did recordings, search and guard run in the simulator, where it has the paths?"""
    seconds: dict[str, float] = field(default_factory=dict)
    """name of a path to the duration of its runs"""
    paths: dict[str, int] = field(default_factory=dict)
    """`difference.Paths`: flows between the same two hosts have one path"""


def judged_on(found: Adapted) -> str:
    """Which runs the comparison is of."""
    flows = len(found.judged)
    paths = difference.count(found.judged, found.paths)
    count = f"{paths} path{'s' * (paths > 1)}"
    if paths < flows:
        count += f" with {flows} flows"
    if found.held_out:
        return f"{count} that training did not see"
    return f"draws of {count} that training saw with other values"


def runs_text(found: Adapted, name: str) -> str:
    """What a path's table is of: other runs than those of `ndm path predict`."""
    draws = len(found.judged[name][verdict.SHIPPED].draws)
    return (
        f"runs of {found.seconds[name]:g} s, {draws} draws; brackets: lowest and highest of "
        f"{draws} draws; {verdict.SHIPPED}: the network that ships"
    )


def guard_text(found: Adapted) -> str:
    """The guard in a sentence."""
    g = found.guard
    if found.shipped:
        return "Nothing was better than the shipped network, so there was nothing to guard."
    if g is None:
        return "No guard suite was run, so nothing is known of the network on other paths."
    said = "not significantly worse" if g.passed else "significantly worse"
    text = (
        f"On the {g.scenarios} paths of {g.suites} it is {said} than the shipped network: score "
        f"{g.score:+.4f} [{g.low:+.4f}, {g.high:+.4f}]."
    )
    if r := found.refused:
        text += (
            " Its weights are the mean of the shipped network's and of those that were learned, "
            f"which lost more on {r.suites}: {r.score:+.4f} [{r.low:+.4f}, {r.high:+.4f}]."
        )
    return text


def where_text(found: Adapted) -> str:
    """What ran in the simulator, in a sentence; empty: nothing."""
    if not found.simulated:
        return ""
    what = "Recordings, search and guard" if found.guard else "Recordings and search"
    return (
        f"{what} ran in the simulator, but for paths that only the lab has. The lab replayed the "
        "captures and compared the algorithms."
    )


def screen(found: Adapted) -> str:
    """For a terminal."""
    lines = []
    for name, of_path in found.judged.items():
        lines += [
            f"{name}: {runs_text(found, name)}:",
            paths.table(paths.PREDICTION_HEAD, paths.prediction_rows(of_path)),
            "",
        ]
    lines += [f"adapted less the others, on {judged_on(found)}; brackets: 95 % intervals:"]
    lines += [paths.table(difference.HEAD, difference.table_rows(found.differences)), ""]
    lines += [where_text(found), ""] * found.simulated
    lines += [guard_text(found), "", found.sentence]
    return "\n".join(lines)


def write(found: Adapted, folder: Path, models: Sequence[PathModel]) -> Path:
    """Write adapt.json and the page."""
    text = msgspec.json.format(msgspec.json.encode(found), indent=1).decode()
    files.write_text(folder / RESULT, text + "\n")
    of_name = {model.name: model for model in models}
    page = pages.render(
        "adapt.html.j2",
        title=f"Adapted network: {folder.name}",
        sentence=found.sentence,
        judged_on=judged_on(found),
        guard=guard_text(found),
        head=difference.HEAD,
        differences=difference.table_rows(found.differences),
        prediction_head=paths.PREDICTION_HEAD,
        sections=[
            {
                "name": name,
                "runs": runs_text(found, name),
                "facts": paths.facts(of_name[name]),
                "rows": paths.prediction_rows(of_path),
            }
            for name, of_path in found.judged.items()
        ],
        rejected=sorted(found.rejected.items()),
        folder=found.folder,
        shipped=found.shipped,
        simulated=where_text(found),
    )
    files.write_text(folder / PAGE, page)
    return folder / PAGE
