# SPDX-License-Identifier: GPL-2.0-only
"""`ndm data record`: a recording of rounds.lock, made again in the lab, byte for byte.

The lab is deterministic: its clock is virtual, and a run is a function of path, algorithm, seed,
kernel, module and programs. So is a dataset of its runs, given the readers. A recording of another
module or network is made again with its sources as --kmod.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

from ndm_tcp import files
from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.rounds import columns
from ndm_tcp.datasets.store import rounds_lock, store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import uml_build, workers
from ndm_tcp.lab.guest.root import guest_root
from ndm_tcp.lab.guest.suite import SUITES
from ndm_tcp.lab.guest.workers import Workers
from ndm_tcp.lab.recordings import command

EXAMPLE = """example:
  ndm data record lan                       # out/rounds/lan, its runs in out/rounds/runs/lan
  ndm data record lan-pool -o ~/rounds"""
OWN = "ndm_tcp"
LEAN = (
    "mkdir -p out && git archive {commit} datasets/lab-rounds/{name} | tar -x -C out && "
    "ndm dataset convert out/datasets/lab-rounds/{name} -o out/rounds --lean"
)
MODULE = (
    "mkdir -p out && git archive {commit} kmod | tar -x -C out && "
    "ndm data record {name} --kmod out/kmod"
)


def require_here(recording: rounds_lock.Recording, kmod: Path) -> None:
    """Refuse what this tree cannot record.

    Args:
        recording: of the lock.
        kmod: the module's sources.

    Raises:
        NdmError: it was another module; the message has the command.
    """
    if recording.rounds_in:
        how = LEAN.format(commit=recording.rounds_in, name=recording.name)
        raise NdmError(
            f"{recording.name}: recorded with the tree of commit {recording.commit}, whose module "
            f"and readers are not today's; its rounds are in git, convert them: {how}"
        )
    if recording.module and recording.module != uml_build.sources_digest(kmod):
        raise NdmError(
            f"{recording.name}: recorded with the module of commit {recording.commit}, and {kmod} "
            "has another; run: " + MODULE.format(commit=recording.commit, name=recording.name)
        )


def paths_of(recording: rounds_lock.Recording) -> str:
    """What to record: the suite, or its scenario files if the entry has a range of numbers.

    Args:
        recording: its entry in the lock.

    Returns:
        a name or files, separated by commas.
    """
    numbers, folder = re.fullmatch(r"(\d+) to (\d+)", recording.paths), SUITES / recording.suite
    if not numbers or not folder.is_dir():
        return recording.suite
    wanted = range(int(numbers[1]), int(numbers[2]) + 1)
    found = {int(path.stem.split("-")[1]): str(path) for path in folder.glob("*.toml")}
    return ",".join(found[number] for number in wanted)


def make(recording: rounds_lock.Recording, out: Path, where: Workers, kmod: Path) -> str:
    """Record, and build the dataset.

    Args:
        recording: its entry in the lock.
        out: folder of the dataset's folder; the runs are kept beside it, in `runs`.
        where: guests run.
        kmod: the module's sources.

    Returns:
        SHA-256 of the rounds.

    Raises:
        NdmError: a run failed, or one cannot be read.
    """
    runs = out / "runs" / recording.name
    failed = command.main(
        argparse.Namespace(
            suite=paths_of(recording),
            cc=recording.cc,
            seeds=recording.seeds,
            explore=recording.explore,
            out=runs,
            jobs=where.at_once,
            engine=where.engine,
            kmod=kmod if OWN in recording.cc.split(",") else None,
            light=False,
            json=False,
        )
    )
    if failed:
        raise NdmError(f"{runs}: runs failed, see above; the same command tries them again")
    return shrink(runs, out / recording.name, where.at_once)


def shrink(runs: Path, out: Path, jobs: int) -> str:
    """The lean dataset of some runs, and its rounds' SHA-256."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        whole = Path(name) / out.name
        build.build([runs], whole, jobs=jobs)
        found = store.load(whole)
        store.write(out, [columns.lean(found.rounds)], found.manifest)
    return files.sha256(out / store.ROUNDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `ndm data record`."""
    parser.add_argument("name", metavar="NAME", help="a recording of rounds.lock")
    parser.add_argument(
        "-o",
        "--out",
        type=files.folder,
        default=rounds_lock.HERE,
        help="folder; an interrupted recording goes on there (default: %(default)s)",
    )
    workers.add_arguments(parser)
    lab_run.add_kmod(parser)
    parser.add_argument(
        "--lock", type=Path, default=rounds_lock.LOCK, help="lock file (default: the checkout's)"
    )


def main(args: argparse.Namespace) -> int:
    """Run `ndm data record`; exit code 1 if other bytes came out than the lock says."""
    recording = rounds_lock.read(args.lock).recording(args.name)
    kmod = args.kmod or uml_build.KMOD
    require_here(recording, kmod)
    found = make(recording, args.out, workers.workers_of(args), kmod)
    said = "the bytes of rounds.lock"
    if not (same := found == recording.sha256):
        said = f"SHA-256 {found}, not that of rounds.lock"
        if recording.programs != guest_root().name:
            said += ": other programs ran in the guest"
        else:
            said += f": made with the lab and the readers of commit {recording.commit}"
    print(f"{args.out / recording.name}: {said}")
    return 0 if same else 1
