# SPDX-License-Identifier: GPL-2.0-only
"""Paths that steered no decision: drawn from the shipped network's own number.

The number is a hash of the network's integers, so the paths are not known before the network is,
and a new network has new ones. Their board is run once, after the network is chosen; it is the
result to quote. A rule of the module that is changed for them, or a network moved by a unit to
draw other paths, would break that. They have the kinds and ranges of the training paths.
"""

from __future__ import annotations

from ndm_tcp import model_json
from ndm_tcp.lab.paths import training_paths
from ndm_tcp.lab.paths.training_paths import drawn, write

FOLDER = training_paths.FOLDER / "sealed"
HEAD = "# SPDX-License-Identifier: CC0-1.0\n# Written by: ndm lab scenarios sealed\n"
KINDS = {
    "clean": 4,
    "loss": 4,
    "burst": 2,
    "jitter": 4,
    "jitter-loss": 2,
    "slow-jitter-loss": 3,
    "heavy-jitter-loss": 2,
    "reorder": 2,
    "step": 3,
    "fast-loss": 3,
    "far-loss": 3,
    "shallow": 4,
    "fq-codel": 2,
    "cake": 2,
    "lo-jitter": 2,
    "cubic": 8,
    "late-cubic": 4,
    "equals": 6,
}


def network() -> str:
    """The number of the shipped network."""
    return model_json.number()


def scenarios(model: str | None = None) -> dict[str, str]:
    """File name to TOML; of the shipped network or another."""
    made = drawn("sealed", "sealed", model or network(), KINDS)
    return {name: text.replace(training_paths.HEAD, HEAD) for name, text in made.items()}


def main() -> None:
    """Write the files anew."""
    write(FOLDER, scenarios())
