# SPDX-License-Identifier: GPL-2.0-only
"""A run folder from an `ndm_model.json`, to look at a network whose run is not there.

    python -m ndm_tcp.training.rebuild -o RUN [--model ndm_model.json]

The real weights are those behind the integers, so the run exports to the same integers. Curves
and metrics of the training are missing: `ndm eval RUN --data DIR` measures the network again.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import replace
from pathlib import Path

import orjson

from ndm_tcp import files, model_json
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training import start
from ndm_tcp.training.config import RESULTS, TARGET_STEP, TrainConfig
from ndm_tcp.training.model import Policy


def _digest(note: str) -> str:
    """The SHA-256 in a note of a model; empty without one."""
    found = re.search(r"\b[0-9a-f]{64}\b", note)
    return found[0] if found else ""


def rebuild(model: Path, run: Path) -> None:
    """Write the run.

    Args:
        model: an `ndm_model.json`.
        run: the folder to make; one with a network is not changed.

    Raises:
        NdmError: no such model, clamped units, or `run` holds a network.
    """
    if (run / ckpt.MODEL).exists():
        raise NdmError(f"{run}: holds a network; name another -o")
    network = start.load(str(model))
    notes = model_json.from_json(model).notes
    policy = Policy(network.hidden)
    network.copy_to(policy)
    note = notes.get("objective", "")
    config = TrainConfig(
        hidden=network.hidden,
        init=network.name,
        # ndm export writes this of runs that were split so; the others were split by flow.
        split_by="path" if "split by path" in note else "flow",
    )
    found = re.match(r"(\w+), seed (\d+)", note)
    if found:
        name = TARGET_STEP if found[1] == "ideal" else found[1]
        config = replace(config, objective=name, seed=int(found[2]))
    run.mkdir(parents=True, exist_ok=True)
    dataset = _digest(notes.get("dataset", ""))
    ckpt.save(run / ckpt.MODEL, ckpt.Checkpoint(policy.state_dict(), config, dataset, 0))
    origin = {"rebuilt": network.name, "checkpoint": _digest(notes.get("checkpoint", ""))}
    files.write_text(run / RESULTS, orjson.dumps(origin).decode() + "\n")


def main(arguments: list[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="a run folder from an ndm_model.json")
    parser.add_argument("--model", type=Path, default=model_json.SHIPPED)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    try:
        rebuild(args.model, args.out)
    except NdmError as error:
        print(f"rebuild: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
