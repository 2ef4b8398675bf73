# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of the simulator: what they hold, how they are read, and what runs to make them."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import zstandard

from ndm_tcp import contract, selection
from ndm_tcp.adapt import steps
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import run_folder, simulated, sources
from ndm_tcp.datasets.rounds.compute import rounds_of
from ndm_tcp.datasets.rounds.flow import CwndSource, FlowRecords, LossCause
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import explore, suite, uml_build
from ndm_tcp.lab.guest.jobs import Job
from ndm_tcp.lab.guest.workers import ONE
from ndm_tcp.lab.paths import truth
from ndm_tcp.lab.paths.scenario import Scenario, parse
from ndm_tcp.lab.sim import build as sim_build
from ndm_tcp.lab.sim.simulate import RECORDING, simulate, words

from .kmod.lab import need_kernel, need_simulator
from .worst import held_back, rerouted

LINK = "rate_bps = 12_000_000\nrtt_us = 30_000\n"
SIMULATED = replace(ONE, simulated=True)


@pytest.fixture(autouse=True, scope="module")
def program() -> Path:
    return need_simulator()


def path(link: str, name: str = "path", flows: str = "", seconds: int = 8) -> Scenario:
    text = f'seconds = {seconds}\ntopology = "path"\n[link]\n{LINK}{link}\n{flows}'
    return parse(text, name, f"{name}.toml")


def recorded(scenario: Scenario, cc: str, folder: Path, seed: int = 1) -> list[FlowRecords]:
    job = Job(scenario, cc, seed, folder / f"{scenario.name}--{cc}--{seed}")
    (outcome,) = suite.execute([job], SIMULATED, light=False, quiet=True)
    assert outcome.result is not None, outcome.error
    flows, skipped = run_folder.read(job.folder)
    assert not skipped
    return flows


# --- what a recording holds --------------------------------------------------------------


def seen_by_the_network(scenario: Scenario, program: Path, out: Path) -> np.ndarray[Any, Any]:
    """[rounds, dense] in the module."""
    given = words(scenario, "ndm_tcp", 1)
    environment = {**os.environ, "NDM_ROUNDS": str(out)}
    subprocess.run([program], input=given, text=True, check=True, env=environment,
                   capture_output=True)  # fmt: skip
    return np.fromfile(out, np.int16).reshape(-1, contract.N_DENSE)


def test_the_rounds_of_a_recording_are_the_modules_bit_for_bit(tmp_path: Path) -> None:
    """With losses, timeouts, pauses of hosts, RTTs that step, and a min RTT that a drain raises."""
    watching = tmp_path / "watching"
    sim_build.link(Path(__file__).with_name("sim_rounds.c"), uml_build.KMOD, watching)
    paths = [
        *held_back(5, 3),
        *rerouted(5, 3),
        path("queue_packets = 12", "short"),
        path("queue_packets = 60\nloss = 0.02\njitter_us = 6000\nreorder = false", "noisy"),
        path("queue_packets = 60\nloss = 0.3", "heavy"),
        path("queue_packets = 400\nrtt_steps = [[2, 90000]]", "longer", seconds=20),
        path("queue_packets = 60\nslot_us = [500, 3000]", "slots"),
    ]
    for one in paths:
        (flow,) = recorded(one, "ndm_tcp", tmp_path)
        rounds = rounds_of(flow).rows
        module = seen_by_the_network(one, watching, tmp_path / "rounds")
        x = rounds["x"][rounds["valid"].astype(bool)]
        assert len(x) > 20 and np.array_equal(x, module[:, : contract.N_INPUTS]), one.name


def test_losses_have_the_cause_of_their_drops(tmp_path: Path) -> None:
    (full,) = recorded(path("queue_packets = 15", "full"), "cubic", tmp_path)
    (random,) = recorded(path("queue_packets = 400\nloss = 0.02", "random"), "reno", tmp_path)
    for flow, cause in ((full, LossCause.QUEUE), (random, LossCause.RANDOM)):
        assert flow.loss_cause is not None
        lossy = flow.acks["lost"] > 0
        assert lossy.sum() > 5 and set(flow.loss_cause[lossy]) == {cause}
        assert not flow.loss_cause[~lossy].any()


def test_a_recording_knows_windows_as_a_capture_does(tmp_path: Path) -> None:
    """BBR's own window is a cap, and says nothing of what is in flight."""
    one = path("queue_packets = 200", "window")
    (reno,), (bbr,) = (recorded(one, cc, tmp_path) for cc in ("reno", "bbr"))
    assert reno.cwnd_source == CwndSource.KERNEL and bbr.cwnd_source == CwndSource.INFLIGHT
    for flow in (reno, bbr):
        late = flow.acks[len(flow.acks) // 2 :]
        assert np.median(late["inflight"] / late["cwnd"]) == pytest.approx(1, abs=0.15)
    assert reno.acks["now_us"][0] < simulated.UNIT_US and not reno.acks["acked"][0]  # handshake


def test_flows_of_a_run_are_told_apart_and_begin_when_they_did(tmp_path: Path) -> None:
    flows = "".join(
        f'[[flows]]\ncc = "{cc}"\nstart_s = {at}\nseconds = 6\n'
        for cc, at in (("cubic", 0), ("$cc", 2))
    )
    one = path("queue_packets = 90", "both", flows)
    cubic, own = recorded(one, "ndm_tcp", tmp_path)
    assert (cubic.cc_name, own.cc_name) == ("cubic", "ndm_tcp")
    assert cubic.flow_id != own.flow_id
    for number, (flow, at_s) in enumerate(((cubic, 0), (own, 2))):
        assert flow.truth is not None and flow.truth.number == number
        assert flow.truth.start_us / 1e6 == pytest.approx(at_s, abs=0.5)
        assert truth.windows(flow.truth.scenario, flow.truth.under_test)[number]


# --- how it is read ----------------------------------------------------------------------


def test_a_dataset_is_built_of_recordings_and_teaches(tmp_path: Path) -> None:
    runs, data = tmp_path / "runs", tmp_path / "data"
    words_ = ["lab", "record", "validation-shallow", "--cc", "ndm_tcp", "--simulate"]
    assert run_command([*words_, "-o", str(runs)]) == 0
    written = {f: f.stat().st_mtime_ns for f in runs.rglob(RECORDING)}
    assert len(written) == 22
    assert run_command([*words_, "-o", str(runs)]) == 0  # nothing runs again
    assert {f: f.stat().st_mtime_ns for f in runs.rglob(RECORDING)} == written
    assert run_command(["dataset", "build", str(runs), "-o", str(data)]) == 0
    rounds = store.load(data).rounds
    assert set(rounds["format"].to_pylist()) == {"simulator"}
    assert rounds["scenario"].null_count == 0 and len(set(rounds["source"].to_pylist())) == 22


def test_a_damaged_recording_is_refused_in_one_line(tmp_path: Path) -> None:
    recorded(path("queue_packets = 30"), "reno", tmp_path / "good")
    (good,) = (tmp_path / "good").iterdir()
    whole = zstandard.ZstdDecompressor().decompress((good / RECORDING).read_bytes())

    def cut(folder: Path) -> None:
        data = zstandard.ZstdCompressor().compress(whole[:-5])
        (folder / RECORDING).write_bytes(data)

    def empty(folder: Path) -> None:
        (folder / RECORDING).write_bytes(zstandard.ZstdCompressor().compress(b""))

    def other(folder: Path) -> None:
        result = orjson.loads((folder / "result.json").read_bytes())
        (folder / "result.json").write_bytes(orjson.dumps({**result, "flows": []}))

    def text(folder: Path) -> None:
        (folder / "result.json").write_text("[1]")

    def unknown(folder: Path) -> None:
        (folder / "scenario.toml").unlink()

    for number, damage in enumerate((cut, empty, other, text, unknown)):
        folder = shutil.copytree(good, tmp_path / str(number))
        damage(folder)
        with pytest.raises(NdmError, match="; record the run again|; record") as caught:
            sources.read(folder)
        assert "\n" not in str(caught.value)


# --- what runs -----------------------------------------------------------------------------


def test_a_constant_window_is_the_labs(tmp_path: Path) -> None:
    """On a queue that a burst of 36 packets overflows more than 36 that are paced."""
    need_kernel()
    short = path("queue_packets = 12", "short")
    found: dict[str, list[dict[str, Any]]] = {}
    for name, where in (("lab", ONE), ("simulator", SIMULATED)):
        for cc in ("fixed_cwnd:20", "fixed_cwnd:36", "fixed_cwnd:36:paced"):
            job = Job(short, cc, 1, tmp_path / name / cc)
            (outcome,) = suite.execute([job], where, light=True, quiet=True)
            assert outcome.result is not None and outcome.result["cc"] == "fixed_cwnd"
            found.setdefault(name, []).append(outcome.result)
    for lab, ours in zip(*found.values(), strict=True):
        assert ours["total_mbps"] == pytest.approx(lab["total_mbps"], rel=0.03)
        rtts = [one["flows"][0]["rtt_mean_ms"] for one in (ours, lab)]
        assert rtts[0] == pytest.approx(rtts[1], rel=0.1)
    for runs in found.values():
        _, burst, paced = (one["drops"]["queue"] for one in runs)
        assert paced < burst, runs


def test_a_parameter_that_no_module_has_is_refused(program: Path) -> None:
    given = words(path("queue_packets = 30"), "fixed_cwnd:20", 1).replace("cwnd 20", "cwndd 20")
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=False)
    assert done.returncode and "no such parameter" in done.stderr


def test_a_module_that_explores_does_so_in_the_simulator(tmp_path: Path) -> None:
    one = path("queue_packets = 60")
    plain = sim_build.build()
    exploring = sim_build.build(explore.sources(uml_build.KMOD, tmp_path / "kmod"))
    assert exploring != plain
    runs = [simulate(program, one, "ndm_tcp", 1) for program in (plain, exploring)]
    assert runs[0]["flows"] != runs[1]["flows"]


def test_what_only_the_lab_has_runs_there_if_everything_shall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the guard of an adaptation wants it: the simulator has no local network with GSO."""
    ran: list[tuple[bool, int]] = []

    def execute(jobs: list[Job], where: Any, **_: Any) -> list[Any]:
        ran.append((where.simulated, len(jobs)))
        return []

    monkeypatch.setattr(suite, "execute", execute)
    names = ["validation", "lan"]
    args = ("name", uml_build.KMOD, names, 1, SIMULATED, tmp_path)
    assert not [*selection.runs_of(*args, everything=True)]
    assert [place for place, _ in ran] == [True, False, False]
    assert sum(number for _, number in ran) == 57 + 18
    ran.clear()
    assert not [*selection.runs_of(*args[:2], names[:1], *args[3:])]
    assert [place for place, _ in ran] == [True]


def test_an_adaptation_replays_and_judges_in_the_lab(tmp_path: Path) -> None:
    setting = steps.Steps(tmp_path, (), 1, 1, SIMULATED)
    assert not setting.real.simulated and setting.real.at_once == SIMULATED.at_once
    assert setting.runs.parent == tmp_path and setting.runs.name.startswith("simulated-")
    assert steps.Steps(tmp_path, (), 1, 1, ONE).runs == tmp_path
