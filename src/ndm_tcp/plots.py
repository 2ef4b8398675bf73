# SPDX-License-Identifier: GPL-2.0-only
"""Pictures that depend on what they show, not on the style of who draws them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

NO_VERSION = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
"""format to metadata with which the same numbers give the same bytes"""


# Okabe and Ito's colours, which colour-blind readers can distinguish.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    *("#000000", "#e69f00", "#56b4e9", "#009e73"),
    *("#f0e442", "#0072b2", "#d55e00", "#cc79a7"),
)
GREY = "#999999"
CC = {
    **{"ndm_tcp": BLUE, "bbr": RED, "cubic": GREEN, "reno": ORANGE, "vegas": PINK, "htcp": SKY},
    **{"bic": "#332288", "cdg": "#882255", "dctcp": "#661100", "highspeed": "#6699cc"},
    **{"hybla": "#999933", "illinois": "#44aa99", "lp": "#aa4499", "nv": "#117733"},
    **{"scalable": "#888888", "veno": "#ddcc77", "westwood": "#8c510a", "yeah": "#5e3c99"},
}
"""Algorithm to its colour, in every picture of the project."""


STYLE: dict[str, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "font.size": 9,
    "savefig.dpi": 120,
    "svg.hashsalt": "ndm",
    "svg.fonttype": "path",
}
"""How every picture looks: board, report, cards, notebooks, README."""


def color_of(cc: str) -> str:
    """The colour of an algorithm; black for others, such as the best constant window."""
    return CC.get(cc, BLACK)


@contextlib.contextmanager
def plain(settings: dict[str, Any] | None = None) -> Iterator[None]:
    """Draw inside with `STYLE` and `settings`; also decorates a function.

    A notebook, or a matplotlibrc, may have a style of its own; it is as before afterwards.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        values: Any = STYLE | (settings or {})
        matplotlib.rcParams.update(values)
        yield
