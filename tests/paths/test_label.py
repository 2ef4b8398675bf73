# SPDX-License-Identifier: GPL-2.0-only
"""Captures teach: the target window of an estimated path is nearly that of the true one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.rounds.flow import LABEL_ERROR, NO_LABEL, FlowRecords
from ndm_tcp.datasets.store import describe, store
from ndm_tcp.lab.paths import truth
from ndm_tcp.lab.paths.scenario import parse
from ndm_tcp.paths import label, model, scenario
from ndm_tcp.paths.estimate import estimate
from ndm_tcp.training import derived, objective
from ndm_tcp.training.config import TrainConfig

from ..conftest import TRACES
from .made import jittered

LONE = [f"train-{number}" for number in ("00-clean", "01-clean", "03-loss", "04-loss")]
HOST = TRACES / "cubic-01-clean"


def captured(run: Path) -> tuple[FlowRecords, FlowRecords]:
    """A flow of the lab, with its truth and without."""
    flow = sources.read(run).flows[0]
    assert flow.truth is not None
    return flow, replace(flow, truth=None)


def windows(flow: FlowRecords) -> np.ndarray:
    """Target windows of a flow at its ACKs, packets."""
    known = flow.truth
    assert known is not None
    found = truth.windows(known.scenario, known.under_test)[known.number]
    t_us = flow.acks["now_us"].astype(np.int64) + known.start_us
    return found.packets(t_us, flow.acks["srtt_us"])


@pytest.mark.parametrize("cc", ["cubic", "bbr"])
@pytest.mark.parametrize("name", LONE)
def test_labels_of_lone_flows_are_near_the_truth(name: str, cc: str) -> None:
    flow, bare = captured(TRACES / "lab" / f"{name}--{cc}--1")
    labelled = label.label(bare)
    assert LABEL_ERROR in labelled.facts, labelled.facts
    error = np.abs(np.log2(windows(labelled) / windows(flow)))
    assert np.median(error) < 0.1, np.median(error)


def test_a_known_path_is_left_alone_and_polls_say_why_not() -> None:
    flow, _ = captured(TRACES / "lab" / "train-00-clean--cubic--1")
    assert label.label(flow) is flow
    (poll,) = TRACES.glob("third_party/mlab_tcpinfo*")
    (of_poll,) = sources.read(poll).flows
    labelled = label.label(of_poll)
    assert labelled.truth is None and "ndm adapt" in str(labelled.facts[NO_LABEL])


def test_a_known_model_labels_its_flow_and_no_other() -> None:
    """`ndm adapt` labels by the models that it accepted, with the windows measured on them."""
    _, bare = captured(TRACES / "lab" / "train-00-clean--cubic--1")
    known = replace(estimate(bare, "x"), window_bdp=2.0)
    by = label.labeller([known])
    link = parse(by.label(bare).truth.scenario, "x", "x").link
    assert np.median(windows(by.label(bare))) == pytest.approx(
        2 * link.rate_bps * link.rtt_us / 8e6 / 1500, rel=0.01
    )
    other = by.label(replace(bare, flow_id="0123456789abcdef"))
    assert (
        other.truth is None
        and "no model of its path was accepted or given" in other.facts[NO_LABEL]
    )
    assert by.digest not in (label.labeller([]).digest, label.labeller().digest)


def test_models_of_a_folder_label_in_place_of_estimates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as one that its user has mended; or those that labelled the shipped captures."""
    models, out = tmp_path / "models", tmp_path / "out"
    assert run_command(["path", "estimate", str(HOST), "-o", str(models)]) == 0
    (file,) = models.glob("*.path.json")
    mended = replace(model.read(file), rtt_us=model.Value.exact(123_456))
    model.write(mended, file)
    words = ["dataset", "build", str(HOST), "--paths", str(models), "-o", str(out)]
    assert run_command(words) == 0
    assert "1 flow of captures has a target window, by its" in capsys.readouterr().out
    texts = store.load(out, ["scenario"]).rounds["scenario"]
    assert all("rtt_us = 123456" in text for text in set(map(str, texts)))
    assert run_command([*words[:4], str(tmp_path), "-o", str(tmp_path / "none")]) == 2
    assert "no path model in it" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_the_shipped_captures_have_models_that_are_not_out_of_date() -> None:
    """Better estimates may differ, but for nine in ten by less than a label may be off."""
    known = {one.flow_id: one for one in model.load_all(TRACES.parent / "path-models")}
    off = []
    for capture in sorted(TRACES.glob("*/sender.pcap*")) + sorted(
        TRACES.glob("third_party/*.pcap*")
    ):
        for flow in sources.read(capture).flows:
            now, then = label.label(flow), label.labeller([known[flow.flow_id]]).label(flow)
            assert (now.truth is None) == (then.truth is None)
            if now.truth:
                off.append(np.median(np.abs(np.log2(windows(now) / windows(then)))))
    assert len(off) >= 26
    assert np.percentile(off, 90) < label.WORST


def test_an_uncertain_estimate_does_not_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    _, bare = captured(TRACES / "lab" / "train-00-clean--cubic--1")
    monkeypatch.setattr(label, "WORST", -1.0)
    labelled = label.label(bare)
    assert labelled.truth is None and "too uncertain" in str(labelled.facts[NO_LABEL])


def test_a_capture_alone_trains_by_the_labs_objective(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled, bare = tmp_path / "labelled", tmp_path / "bare"
    assert run_command(["dataset", "build", str(HOST), "-o", str(labelled)]) == 0
    assert "1 flow of captures has a target window, by its" in capsys.readouterr().out
    assert run_command(["dataset", "build", str(HOST), "-o", str(bare), "--no-label"]) == 0
    assert "target window" not in capsys.readouterr().out
    rounds = store.load(labelled).rounds
    target = derived.targets(rounds)
    # 3.4 Mbit/s and 85 ms: the queue needs 18 packets, the path 24.
    assert np.all((target > 20) & (target < 40))
    found = objective.examples(store.load_all([labelled]).rounds, TrainConfig())
    assert found.policy.sum() > 50 and found.masked["no truth"] == 0
    assert derived.targets(store.load(bare).rounds).max() == 0
    same = [store.load(folder).rounds.drop(["scenario", "under_test", "flow_number", "start_us"])
            for folder in (labelled, bare)]  # fmt: skip
    assert same[0].equals(same[1])  # labels change no measurement
    card = (labelled / "DATASET_CARD.md").read_text()
    assert "1 flow of captures has a target window, by its estimated path, with an" in card
    assert describe.labels(store.manifest_of(bare)) == (0, {})
    assert run_command(["dataset", "info", str(labelled)]) == 0
    assert "labels       1 flow of captures has" in capsys.readouterr().out


def test_a_capture_file_is_labelled_like_its_run(tmp_path: Path) -> None:
    """The reader of plain captures, which keeps no ACKs without a label, gives the same rounds."""
    pcap = TRACES / "lab" / "train-03-loss--cubic--1" / "sender.pcap.zst"
    for name, more in (("with", []), ("without", ["--no-label"])):
        command = ["dataset", "build", str(pcap), "-o", str(tmp_path / name), *more]
        assert run_command(command) == 0
    one, other = (store.load(tmp_path / name).rounds for name in ("with", "without"))
    assert one["scenario"].null_count == 0 and other["scenario"].null_count == len(other)
    for name in ("t_us", "cwnd", "delivered", "lost", "srtt_us"):
        assert one[name].equals(other[name]), name


@pytest.mark.parametrize("mss", [536, 1348, 1448, 8948])
def test_windows_are_packets_of_the_flow(mss: int) -> None:
    """Of one trace, only the size of a packet differs: jumbo frames had seven times the BDP."""
    flow = replace(jittered(((0.0, 2000.0),), 0.0, 220, seconds=12.0, saw=4000), mss=mss)
    made = estimate(flow, "x")
    assert made.rate_bps == pytest.approx(2000 * 8 * (mss + 52), rel=0.01)
    target = np.median(windows(label.label(flow)))
    assert target == pytest.approx(np.median(windows(label.label(replace(flow, mss=1448)))), 0.01)
    assert 1.0 < target / made.bdp_packets < 1.3
    link = parse(scenario.text(made), "x", "x").link
    held_s = link.queue_packets * 1500 * 8 / link.rate_bps
    own_s = scenario.queue_packets(made) / made.packets_per_s
    assert held_s == pytest.approx(own_s, rel=0.05), "the queue lasts as long"


@pytest.mark.parametrize("seconds", [5.0, 20.0, 60.0])
def test_the_whole_capture_has_the_windows_of_its_time(seconds: float) -> None:
    """`ndm adapt` runs a model for less: rounds after that had the window from before a step."""
    flow = jittered(((0.0, 3000.0), (30.0, 750.0)), 0.0, 300, seconds=40.0, saw=6000)
    by = label.labeller([replace(estimate(flow, "x"), seconds=seconds)])
    target, t_s = windows(by.label(flow)), flow.acks["now_us"] / 1e6
    early, late = (float(np.median(target[(t_s > a) & (t_s < a + 5)])) for a in (22, 33))
    assert early / late == pytest.approx(4, rel=0.05)
