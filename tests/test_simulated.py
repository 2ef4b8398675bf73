# SPDX-License-Identifier: GPL-2.0-only
"""Recordings of the simulator: what they hold, how they are read, and what runs to make them."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import zstandard

from ndm_tcp import contract, selection
from ndm_tcp.adapt import steps
from ndm_tcp.adapt.recordings import Plan
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import run_folder, simulated, sources
from ndm_tcp.datasets.rounds.compute import rounds_of
from ndm_tcp.datasets.rounds.flow import CwndSource, FlowRecords, LossCause
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import explore, suite, uml_build
from ndm_tcp.lab.guest.jobs import Job, Outcome
from ndm_tcp.lab.guest.workers import ONE, Workers
from ndm_tcp.lab.paths import truth
from ndm_tcp.lab.paths.scenario import Scenario, load, parse
from ndm_tcp.lab.sim import build as sim_build
from ndm_tcp.lab.sim.simulate import simulate, words
from ndm_tcp.paths import estimate_command, replay_command
from ndm_tcp.paths import predict as predict_module

from .conftest import ROOT
from .kmod.lab import need_kernel, need_simulator
from .paths.made import model
from .worst import held_back, rerouted

LINK = "rate_bps = 12_000_000\nrtt_us = 30_000\n"
SIMULATED = replace(ONE, simulated=True)
DISORDER, LOSS = 1, 4
"""enum tcp_ca_state"""


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


def test_flows_beside_others_send_in_whole_bursts(tmp_path: Path) -> None:
    """ACKs wait for the reader: in the lab one in 27 of CUBIC's is of two packets."""
    shared = load(ROOT / "lab/scenarios/fairness/beside-cubic-2bdp.toml")
    for seed in (1, 2):
        cubic, _ = recorded(shared, "reno", tmp_path, seed)
        calm = cubic.acks[(cubic.acks["ca_state"] == 0) & (cubic.acks["now_us"] > 10_000_000)]
        pairs = np.mean(calm["acked"] == 2)
        print(f"\nACKs of two packets: {pairs:.3f}")
        assert pairs < 0.08


def test_losses_have_the_cause_of_their_drops(tmp_path: Path) -> None:
    """A timeout that nothing caused takes packets for lost that only come late."""
    late = path("queue_packets = 400\nrtt_steps = [[3, 900000]]", "late")
    for one, cc, cause in (
        (path("queue_packets = 15", "full"), "cubic", LossCause.QUEUE),
        (path("queue_packets = 400\nloss = 0.02", "random"), "reno", LossCause.RANDOM),
        (late, "bbr", LossCause.REORDERED),
    ):
        (flow,) = recorded(one, cc, tmp_path)
        assert flow.loss_cause is not None
        lossy = flow.acks["lost"] > 0
        assert lossy.any() and set(flow.loss_cause[lossy]) == {cause}
        assert not flow.loss_cause[~lossy].any()


def test_a_loss_after_a_timeout_for_nothing_is_repaired_in_a_round_trip(tmp_path: Path) -> None:
    """What the timeout took for lost stays in RACK's list; F-RTO undoes the rest."""
    link = "rate_bps = 50_000_000\nrtt_us = 40_000\nqueue_packets = 300\nloss = 0.004\n"
    text = f'seconds = 9\ntopology = "path"\n[link]\n{link}rtt_steps = [[3, 1_000_000]]\n'
    stepped, timeouts = parse(text, "stepped", "stepped.toml"), 0
    for seed in range(1, 25):
        (flow,) = recorded(stepped, "cubic", tmp_path, seed)
        timeouts += (flow.acks["ca_state"] == LOSS).any()
        edges = np.flatnonzero(np.diff(flow.acks["ca_state"])) + 1
        for part in np.split(flow.acks, edges):
            if part["ca_state"][0] == DISORDER:
                assert part["now_us"][-1] - part["now_us"][0] < 1_200_000, seed
    assert timeouts


def test_the_first_flight_is_application_limited(tmp_path: Path) -> None:
    """As Linux marks it: nothing is written yet when it leaves. BBR does not count that round."""
    (flow,) = recorded(path("queue_packets = 60", "begin"), "reno", tmp_path)
    limited = flow.acks["app_limited"]
    assert limited[1:5].all() and not limited[20:].any()


def test_the_gravest_cause_of_a_round_trip_wins(tmp_path: Path) -> None:
    (both,) = recorded(path("queue_packets = 15\nloss = 0.02", "both"), "cubic", tmp_path)
    assert both.loss_cause is not None
    assert {*both.loss_cause.tolist()} == {0, LossCause.RANDOM, LossCause.QUEUE}
    several = both.loss_cause[both.acks["lost"] > 3]
    assert several.size and (several == LossCause.QUEUE).all()


def test_a_recording_shows_what_a_capture_does(tmp_path: Path) -> None:
    """Mean inputs, and the window over what is in flight, of the same flow in the lab. BBR's window
    is a cap, so it is estimated, with the end of slow start and what follows a loss."""
    need_kernel()
    paths = [
        path("queue_packets = 60", "lone"),
        path("queue_packets = 15\nloss = 0.01", "lossy"),
    ]
    for one, cc in itertools.product(paths, ("reno", "cubic", "bbr")):
        job = Job(one, cc, 1, tmp_path / "lab" / f"{one.name}--{cc}--1")
        (outcome,) = suite.execute([job], ONE, light=False, quiet=True)
        assert outcome.result is not None, outcome.error
        (captured,), _ = run_folder.read(job.folder)
        (ours,) = recorded(one, cc, tmp_path / "simulator")
        assert ours.cwnd_source == captured.cwnd_source
        assert ours.cwnd_source == (CwndSource.INFLIGHT if cc == "bbr" else CwndSource.KERNEL)
        x = [rounds_of(flow).rows["x"] / float(1 << contract.Q_INPUT) for flow in (ours, captured)]
        apart = np.abs(x[0].mean(axis=0) - x[1].mean(axis=0))
        names = [i.name for i in contract.INPUTS]
        apart[[names.index("entropy"), names.index("queue_floor")]] = 0  # single RTTs decide them
        assert (apart < 0.1).all(), (one.name, cc, dict(zip(names, apart.round(3), strict=True)))
        # The receiver acknowledges each packet as long as its window grows.
        for flow in (ours, captured):
            begin = flow.acks[flow.acks["now_us"] < flow.acks["now_us"][0] + 250_000]
            assert (begin["acked"] == 1).mean() > 0.6, (one.name, cc)
        out = [flow.acks["inflight"] + flow.acks["acked"] for flow in (ours, captured)]
        windows = [
            float(np.median(flow.acks["cwnd"] / np.maximum(packets, 1)))
            for flow, packets in zip((ours, captured), out, strict=True)
        ]
        assert windows[0] == pytest.approx(windows[1], rel=0.05), (one.name, cc)


def test_flows_of_a_run_are_told_apart_and_begin_when_they_did(tmp_path: Path) -> None:
    flows = "".join(
        f'[[flows]]\ncc = "{cc}"\nstart_s = {at}\nseconds = 6\n'
        for cc, at in (("cubic", 0), ("$cc", 2))
    )
    one = path("queue_packets = 20", "both", flows)
    cubic, own = recorded(one, "ndm_tcp", tmp_path)
    assert (cubic.cc_name, own.cc_name) == ("cubic", "ndm_tcp")
    assert cubic.flow_id != own.flow_id
    for number, (flow, at_s) in enumerate(((cubic, 0.0), (own, 2.0))):
        assert flow.truth is not None and flow.truth.number == number
        # Three messages and their answers, then the data's handshake.
        assert 4 * 30e3 <= flow.truth.start_us - at_s * 1e6 < 6 * 50e3
        assert truth.windows(flow.truth.scenario, flow.truth.under_test)[number]
        assert flow.acks["now_us"][0] < simulated.UNIT_US and not flow.acks["acked"][0]


# --- how it is read ----------------------------------------------------------------------


def test_a_dataset_is_built_of_recordings_and_teaches(tmp_path: Path) -> None:
    runs, data = tmp_path / "runs", tmp_path / "data"
    words_ = ["lab", "record", "validation-shallow", "--cc", "ndm_tcp", "--simulate"]
    assert run_command([*words_, "-o", str(runs)]) == 0
    written = {f: f.stat().st_mtime_ns for f in runs.rglob(simulated.RECORDING)}
    assert len(written) == 22
    assert run_command([*words_, "-o", str(runs)]) == 0  # nothing runs again
    assert {f: f.stat().st_mtime_ns for f in runs.rglob(simulated.RECORDING)} == written
    assert run_command(["dataset", "build", str(runs), "-o", str(data)]) == 0
    rounds = store.load(data).rounds
    assert set(rounds["format"].to_pylist()) == {"simulator"}
    assert rounds["scenario"].null_count == 0 and len(set(rounds["source"].to_pylist())) == 22


def test_a_light_run_is_no_recording(tmp_path: Path) -> None:
    one = path("queue_packets = 30")
    job = Job(one, "reno", 1, tmp_path / "run")
    [*suite.execute([job], SIMULATED, light=True, quiet=True)]
    assert not run_folder.is_run(job.folder)
    [*suite.execute([job], SIMULATED, light=False, quiet=True)]
    assert run_folder.is_run(job.folder)
    names = {simulated.RECORDING, "scenario.toml", "result.json"}
    assert {path.name for path in job.folder.iterdir()} == names
    before = (job.folder / simulated.RECORDING).stat().st_mtime_ns
    for light in (False, True):
        [*suite.execute([job], SIMULATED, light=light, quiet=True)]
    assert (job.folder / simulated.RECORDING).stat().st_mtime_ns == before


def test_a_damaged_recording_is_refused_in_one_line(tmp_path: Path) -> None:
    recorded(path("queue_packets = 30"), "reno", tmp_path / "good")
    (good,) = (tmp_path / "good").iterdir()
    whole = zstandard.ZstdDecompressor().decompress((good / simulated.RECORDING).read_bytes())

    def acks(folder: Path, data: bytes) -> None:
        compressed = zstandard.ZstdCompressor().compress(data)
        (folder / simulated.RECORDING).write_bytes(compressed)

    def result(folder: Path, **changes: object) -> None:
        values = orjson.loads((folder / "result.json").read_bytes())
        (folder / "result.json").write_bytes(orjson.dumps({**values, **changes}))

    def nameless(folder: Path) -> None:
        values = orjson.loads((folder / "result.json").read_bytes())
        del values["scenario"]
        (folder / "result.json").write_bytes(orjson.dumps(values))

    damages: list[Callable[[Path], object]] = [
        lambda folder: acks(folder, whole[:-5]),
        lambda folder: acks(folder, b""),
        lambda folder: acks(folder, simulated.KIND),
        lambda folder: acks(folder, bytes(16) + whole[16:]),
        lambda folder: (folder / simulated.RECORDING).write_bytes(whole[:16] + whole[16:19]),
        lambda folder: result(folder, flows=[]),
        lambda folder: (folder / "result.json").write_text("[1]"),
        lambda folder: (folder / "scenario.toml").write_bytes(b"\xff"),
        lambda folder: (folder / "scenario.toml").unlink(),
        nameless,
    ]
    for number, damage in enumerate(damages):
        folder = shutil.copytree(good, tmp_path / str(number))
        damage(folder)
        with pytest.raises(NdmError, match="; record the run again$") as caught:
            sources.read(folder)
        assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
    with pytest.raises(NdmError, match="name its folder"):
        sources.read(good / simulated.RECORDING)
    with tarfile.open(tmp_path / "runs.tar", "w") as tar:
        tar.add(good, "run")
    with pytest.raises(NdmError, match="unpack it first"):
        sources.read_rounds(tmp_path / "runs.tar", "0")


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
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the guard of an adaptation wants it: the simulator has no local network with GSO."""
    ran: dict[str, list[str]] = {"simulator": [], "lab": []}
    result = simulate(program, path("queue_packets = 30"), "ndm_tcp", 1)

    def runs(place: str) -> Callable[..., Outcome]:
        def run(job: Job, *_: object) -> Outcome:
            ran[place].append(job.scenario.name)
            return Outcome(job, result)

        return run

    monkeypatch.setattr(suite.simulate, "attempt", runs("simulator"))
    monkeypatch.setattr(suite, "attempt", runs("lab"))
    monkeypatch.setattr(selection, "_figures", lambda _: None)
    names = ["validation-access", "lan"]
    args = ("name", uml_build.KMOD, names, 1, SIMULATED, tmp_path)
    assert len([*selection.runs_of(*args, everything=True)]) == 56 + 18
    assert len(ran["simulator"]) == 43 and len(ran["lab"]) == 13 + 18
    [*selection.runs_of(*args[:2], names[:1], *args[3:])]
    assert len(ran["simulator"]) == 86 and len(ran["lab"]) == 31


def test_an_adaptation_replays_and_compares_in_the_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[tuple[str, bool]] = []
    monkeypatch.setattr(estimate_command, "estimate_all", lambda *_: ({"a": model("a")}, {}))

    def replayed(_folder: object, _cc: object, where: Workers, _models: object) -> None:
        places.append(("replay", where.simulated))
        raise NdmError("enough")

    def predict(*given: Any, **_: object) -> dict[str, object]:
        places.append(("compare", given[4].simulated))
        return {}

    monkeypatch.setattr(replay_command, "replayed", replayed)
    monkeypatch.setattr(predict_module, "predict", predict)
    assert run_command(["adapt", str(tmp_path), "-o", str(tmp_path / "out"), "--simulate"]) == 2
    setting = steps.Steps(tmp_path, (), 1, 1, SIMULATED)
    steps.judge(setting, Plan.of([model("a")], {"a": "train"}, 1), uml_build.KMOD, 0.0)
    assert places == [("replay", False), ("compare", False)]
    assert setting.runs.parent == tmp_path and setting.runs.name.startswith("simulated-")
    assert steps.Steps(tmp_path, (), 1, 1, ONE).runs == tmp_path


def test_a_module_without_sources_is_refused_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ndm_tcp.ko").write_bytes(b"")
    words_ = ["lab", "record", "validation-shallow", "--cc", "ndm_tcp", "--simulate"]
    given = ["--kmod", str(tmp_path / "ndm_tcp.ko"), "-o", str(tmp_path / "out")]
    assert run_command([*words_, *given]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "compiles sources; name their folder" in said
