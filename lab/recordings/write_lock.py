# SPDX-License-Identifier: GPL-2.0-only
"""Writes datasets/rounds.lock: `ndm data lock DIR`.

DIR holds the recordings that were made; of others the lock keeps the entry. Run it after recording,
or after another core set was chosen. The recipes are here; sizes and hashes come from the files. A
recording made again with another module has other bytes, and gets that module.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from ndm_tcp import checkout, files
from ndm_tcp.datasets.rounds.columns import DETAIL, begins
from ndm_tcp.datasets.store import rounds_lock, store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import uml_build
from ndm_tcp.lab.guest.root import guest_root
from ndm_tcp.lab.paths import training_paths

POOL, OWN = "reno,cubic,bbr", "ndm_tcp"
LAN, ACCESS = "training-lan", "training-access"
FOLDERS = ("access", "core", "harsh", "jitter", "lan", "lan-short", "overtaking")
COMMITTED = tuple(f"lab-rounds/{name}" for name in FOLDERS)
FULL = "6e317e5"
"""the last commit with every recording until then in datasets/lab-rounds"""
THREE = "ccc0ac4"
"""the commit with the rounds of three later ones, whose network is in no commit"""
NOISY = "the 95 paths with random loss or jitter but lo-rate, lo-scatter and lo-shaped"
MORE_LOOPBACK = "lo-rate and lo-shaped with seeds 2 to 4"
LATER = ("af32a2c", "151b55b422b391ab")
"""tree, and the network of seed 1 of the traces, `core` and `lan`"""
QUIET = "clean, step, fast, lone, cubic, late-cubic, equals, long-equals"


@dataclass(frozen=True)
class Recipe:
    """How a recording is made."""

    name: str
    cc: str
    paths: str
    commit: str = ""
    """whose tree recorded it; empty: this one's"""
    network: str = ""
    """hash of ndm_tcp's network; empty: none, or this tree's"""
    seeds: int = 1
    suite: str = "training"
    rounds_in: str = FULL
    """the commit with its rounds, unless this tree records it"""

    @property
    def here(self) -> bool:
        """Can this tree's module record it?"""
        return not self.commit


def _own(name: str, paths: str, commit: str, network: str, seeds: int = 1) -> tuple[Recipe, Recipe]:
    """A recording of ndm_tcp, steered and exploring."""
    explored = Recipe(f"{name}-explored", OWN, paths, commit, network)
    return Recipe(name, OWN, paths, commit, network, seeds), explored


RECIPES = (
    Recipe("pool", POOL, "0 to 162", "c56028a"),
    Recipe("pool-long", POOL, "163 to 212", "c56028a"),
    *_own("1", "0 to 212", "c56028a", "a48bf4d5d09c6c2b"),
    *_own("2", "0 to 212", "c56028a", "fc77ebbca5af7078"),
    *_own("3", "0 to 212", "c56028a", "34d06ed7774f2f9a"),
    Recipe("aqm-pool", POOL, "213 to 234", "33b70b1"),
    *_own("aqm-1", "213 to 234", "33b70b1", "5b6eaea0a02215ac"),
    *_own("aqm-2", "213 to 234", "33b70b1", "24fe5ab07ed81f99"),
    *_own("4", "0 to 234", "caac383", "8910f9833a1fb42a"),
    Recipe("jitter-pool", POOL, "235 to 254", "3081166"),
    *_own("5", f"235 to 254; {MORE_LOOPBACK}", "3081166", "f80c98dd9668d403"),
    *_own("6", NOISY, "3081166", "f6a7bc3b82ab8ff6", 2),
    *_own("7", QUIET, "3081166", "04dbc3ffda41a47a"),
    Recipe("shallow-pool", POOL, "255 to 294", "fe53d1f"),
    Recipe("fast-pool", POOL, "295 to 310", "fe53d1f"),
    *_own("8", "255 to 294", "fe53d1f", "b2ac34b607c824ff"),
    *_own("9", "295 to 310", "fe53d1f", "b2ac34b607c824ff"),
    Recipe("lan-pool", POOL, "0 to 23", suite=LAN),
    Recipe("lan", OWN, "0 to 23", suite=LAN),
    Recipe("lan-explored", OWN, "0 to 23", suite=LAN),
    Recipe("lone-jitter-pool", POOL, "311 to 334"),
    Recipe("10", OWN, "311 to 334"),
    Recipe("10-explored", OWN, "311 to 334"),
    Recipe("lan-short-explored", OWN, "24 to 35", suite=LAN),
    Recipe("11-explored", OWN, "311 to 334", *LATER, rounds_in=THREE),
    Recipe("lan-2-explored", OWN, "0 to 23", *LATER, suite=LAN, rounds_in=THREE),
    Recipe("lan-short-2-explored", OWN, "24 to 35", *LATER, suite=LAN, rounds_in=THREE),
    Recipe("access-pool", POOL, "0 to 155", suite=ACCESS),
    Recipe("12", OWN, "0 to 155", suite=ACCESS),
    Recipe("12-explored", OWN, "0 to 155", suite=ACCESS),
    Recipe("overtaking-pool", POOL, "156 to 179", suite=ACCESS),
    Recipe("13", OWN, "156 to 179", suite=ACCESS),
    Recipe("13-explored", OWN, "156 to 179", suite=ACCESS),
    Recipe("harsh-pool", POOL, "180 to 207", suite=ACCESS),
    Recipe("14", OWN, "180 to 207", suite=ACCESS),
    Recipe("14-explored", OWN, "180 to 207", suite=ACCESS),
)


def entry(
    recipe: Recipe, folder: Path, commit: str, known: rounds_lock.Recording | None = None
) -> rounds_lock.Recording:
    """The lock's entry for a recording.

    Args:
        recipe: how it is made.
        folder: its dataset.
        commit: the one of this tree.
        known: the previous entry. The same rounds keep the module that recorded them,
            whatever this tree's is now.

    Raises:
        NdmError: no dataset, or one with columns that no training reads.
    """
    table = store.load(folder).rounds
    if set(DETAIL) & set(table.column_names):
        raise NdmError(f"{folder}: not a lean dataset; make it with: ndm data record {recipe.name}")
    ours = recipe.here and recipe.cc == OWN
    model = json.loads((uml_build.KMOD / "generated" / "ndm_model.json").read_bytes())
    path = folder / store.ROUNDS
    found = rounds_lock.Recording(
        name=recipe.name,
        suite=recipe.suite,
        paths=recipe.paths,
        cc=recipe.cc,
        seeds=recipe.seeds,
        explore=recipe.name.endswith("-explored"),
        commit=recipe.commit or commit,
        module=uml_build.sources_digest(uml_build.KMOD) if ours else "",
        network=model["model"] if ours else recipe.network,
        programs=guest_root().name if recipe.here else "",
        rounds_in="" if recipe.here else recipe.rounds_in,
        flows=int(begins(table).sum()),
        rounds=table.num_rows,
        bytes=path.stat().st_size,
        sha256=files.sha256(path),
    )
    if known is None or known.sha256 != found.sha256:
        return found
    kept = ("commit", "module", "network", "programs")
    return replace(found, **{name: getattr(known, name) for name in kept})


def make(recorded: Path, folder: Path) -> rounds_lock.Lock:
    """The lock of recordings, and of the committed files.

    Args:
        recorded: a folder with datasets of recipes, by name. The lock keeps the entries of
            recordings that are not there.
        folder: of the lock.

    Raises:
        NdmError: see `entry`; or this tree's module is not committed.
    """
    git = ["git", "-C", str(uml_build.KMOD)]
    if subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "."], check=False).returncode:
        raise NdmError(f"{uml_build.KMOD}: differs from the commit that the lock names; commit it")
    # The last one that changed the module or a path: a later one would do, an earlier would not.
    said = subprocess.run(
        [*git, "log", "-1", "--format=%h", "--", ".", str(training_paths.FOLDER)],
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [p for name in COMMITTED for p in sorted((folder / name).iterdir()) if p.is_file()]
    committed = tuple(
        rounds_lock.File(str(p.relative_to(folder)), p.stat().st_size, files.sha256(p))
        for p in paths
    )
    before = rounds_lock.read().recordings if rounds_lock.LOCK.is_file() else ()
    known = {recording.name: recording for recording in before}
    here = said.stdout.strip()
    entries = tuple(
        replace(known[r.name], paths=r.paths)
        if r.name in known and not (recorded / r.name).is_dir()
        else entry(r, recorded / r.name, here, known.get(r.name))
        for r in RECIPES
    )
    return rounds_lock.Lock(committed, entries)


EXAMPLE = """example:
  ndm data lock out/rounds          # of out/rounds/pool, out/rounds/1 and so on"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The argument of `ndm data lock`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="of recordings, by their names")


def main(args: argparse.Namespace) -> int:
    """Write the lock.

    Raises:
        NdmError: see `make`; or there is no checkout.
    """
    checkout.require("data lock", "run it in one")
    found = make(args.folder, rounds_lock.LOCK.parent)
    files.write_text(rounds_lock.LOCK, rounds_lock.text(found))
    print(f"{rounds_lock.LOCK}: {len(found.files)} files, {len(found.recordings)} recordings")
    return 0
