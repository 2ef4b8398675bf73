# SPDX-License-Identifier: GPL-2.0-only
"""`ndm select`: a score fixed beforehand, the same runs for all, and a card that shows them all."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp import selection
from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError
from ndm_tcp.export.chain import export
from ndm_tcp.export.integers import generated
from ndm_tcp.export.integers.network import IntegerNetwork
from ndm_tcp.export.report import chosen
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.guest.workers import ONE
from ndm_tcp.lab.paths import scenario
from ndm_tcp.training import checkpoint as ckpt

ALONE = {
    "goodput_mbps": 10.0,
    "rtt_mean_ms": 40.0,
    "retransmitted_share": 0.01,
    "share": 1.0,
    "jain": 1.0,
    "fair": 1.0,
}
BESIDE = {**ALONE, "share": 0.5, "jain": 0.9, "fair": 0.5}


@pytest.mark.parametrize(
    ("beside", "fair"), [("", 1.0), ('[[flows]]\n[[flows]]\ncc = "cubic"', 0.5)]
)
def test_the_share_counts_beside_rivals(beside: str, fair: float, tmp_path: Path) -> None:
    link = "[link]\nrate_bps = 10_000_000\nrtt_us = 40_000\nqueue_packets = 60\n"
    text = f'title = "x"\nseconds = 10\ntopology = "path"\n{link}{beside}\n'
    made = scenario.parse(text, "made-up", "made-up.toml")
    flow = {"cc": "ndm_tcp", "tested": True, "goodput_mbps": 3.0, "retransmissions": 20}
    flow |= {"segments": 1000, "rtt_mean_ms": 50.0, "rtt_p95_ms": 60.0, "zero_intervals": 0}
    both = [flow | {"share": 0.3 if beside else 1.0}]
    both += [flow | {"cc": "cubic", "tested": False, "share": 0.7}] * bool(beside)
    job = suite.Job(made, "ndm_tcp", 1, tmp_path)
    run = selection._figures(suite.Outcome(job, {"flows": both, "jain": 1.0}))
    m = run.metrics
    assert (run.fair, run.flows) == (fair, len(both)) and m.share == both[0]["share"]
    lost, jain = m.retransmitted_share, m.jain
    points = selection.points(m.goodput_mbps, m.rtt_mean_ms, lost, m.share, jain, fair)
    assert run.points == points
    if beside:
        assert points == pytest.approx(math.log(1 - 0.2 / 0.5) - lost)


def test_what_is_worth_more() -> None:
    base = selection.points(**ALONE)
    for better in ({"goodput_mbps": 11.0}, {"rtt_mean_ms": 39.0}, {"retransmitted_share": 0.0}):
        assert selection.points(**{**ALONE, **better}) > base, better
    assert selection.points(**{**ALONE, "jain": 0.9}) < base
    # Twice the goodput for four times the RTT: the power is the same.
    even = selection.points(**{**ALONE, "goodput_mbps": 20.0, "rtt_mean_ms": 160.0})
    assert even == pytest.approx(base)


def test_beside_others_the_fair_share_is_worth_most() -> None:
    base = selection.points(**BESIDE)
    for share in (0.3, 0.49, 0.51, 0.8, 1.0):
        assert selection.points(**{**BESIDE, "share": share}) < base, share
    both = [selection.points(**{**BESIDE, "share": 0.5 + d}) for d in (-0.2, 0.2)]
    assert both[0] == pytest.approx(both[1])


def test_nothing_delivered_is_bad_and_not_infinite() -> None:
    for worst in ({**ALONE, "goodput_mbps": 0.0, "rtt_mean_ms": math.nan}, {**BESIDE, "share": 0}):
        value = selection.points(**worst)  # type: ignore[arg-type]
        assert math.isfinite(value) and value < selection.points(**ALONE) - 2


def test_the_best_in_the_mean_is_chosen_and_the_first_of_equal_ones() -> None:
    one, two, three = {"s1": 1.0, "s2": 2.0}, {"s1": 3.0, "s2": 1.0}, {"s1": 1.0, "s2": 3.0}
    name, placed = selection.choose({"seed-1": one, "seed-2": two, "seed-3": three})
    assert name == "seed-2"
    assert placed["seed-2"]["score"] == pytest.approx(placed["seed-3"]["score"])
    assert sum(row["score"] for row in placed.values()) == pytest.approx(0)
    assert placed["seed-1"]["standard_error"] < placed["seed-2"]["standard_error"]
    assert selection.choose({"seed-9": one})[1]["seed-9"] == {"score": 0, "standard_error": 0}


@pytest.fixture
def population(run: Path, tmp_path: Path) -> Path:
    """Three times the same network, one of them with the metrics of a bad one."""
    for name in ("seed-1", "seed-2", "seed-3"):
        shutil.copytree(run, tmp_path / "many" / name)
    path = tmp_path / "many" / "seed-3" / "metrics.json"
    metrics = json.loads(path.read_text())
    for split in ("val", "test"):
        metrics[split]["gain_mae"] = 2 * metrics[split]["hold_mae"]
    path.write_text(json.dumps(metrics))
    for name in ("seed-1", "seed-2"):
        path = tmp_path / "many" / name / "metrics.json"
        metrics = json.loads(path.read_text())
        for split in ("val", "test"):
            metrics[split]["gain_mae"] = 0.5 * metrics[split]["hold_mae"]
        path.write_text(json.dumps(metrics))
    return tmp_path / "many"


@pytest.mark.usefixtures("few_boxes")
def test_a_population_is_measured_and_the_card_shows_all_of_it(
    population: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def measure(name: str, kmod: Path, *rest: object) -> dict[str, float]:
        asked.append((name, *rest[:2]))
        assert (kmod / "Kbuild").is_file() and (kmod / "generated" / "ndm_model.h").is_file()
        return {"v/a": {"seed-1": 0.0, "seed-2": 0.25, "shipped": 0.5}[name], "v/b": 1.0}

    monkeypatch.setattr(selection, "measure", measure)
    words = ["select", str(population), "--suites", "lan", "--lab-seeds", "4", "--beside-shipped"]
    assert run_command(words) == 0
    out = capsys.readouterr().out
    assert asked == [(name, ["lan"], 4) for name in ("seed-1", "seed-2", "shipped")]
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        "shipped", "seed-2", "seed-1", "seed-3",
    ]  # fmt: skip
    assert "chosen" in out.splitlines()[2] and "seed-3    refused: " in out
    found = json.loads((population / chosen.SELECTION).read_text())
    assert found["chosen"] == "seed-2" and found["lab_seeds"] == 4 and found["suites"] == ["lan"]
    card = (population / "seed-2" / "MODEL_CARD.md").read_text()
    assert "Number 1 of 2 networks" in card and "| seed-3 | refused |" in card
    for name, row in found["networks"].items():
        assert (
            f"{name}** | {row['score']:+.4f}" in card or f"| {name} | {row['score']:+.4f}" in card
        )
    # Also when it is exported once more, as the shipped one is; and not in a run's beside it.
    export(population / "seed-1", population / "out")
    assert "Number 2 of 2 networks" in (population / "seed-1" / "MODEL_CARD.md").read_text()
    shutil.copytree(population / "seed-1", population / "other")
    export(population / "other", population / "out")
    assert "networks that differ" not in (population / "other" / "MODEL_CARD.md").read_text()
    # A seed that was trained anew is not the network that was scored.
    checkpoint = ckpt.load(population / "seed-1" / ckpt.MODEL)
    checkpoint.tensors["layers.2.bias"] += 0.1
    ckpt.save(population / "seed-1" / ckpt.MODEL, checkpoint)
    capsys.readouterr()
    export(population / "seed-1", population / "out")
    assert "networks that differ" not in (population / "seed-1" / "MODEL_CARD.md").read_text()
    assert "scored another network in seed-1" in capsys.readouterr().err


def test_a_run_of_another_scenario_or_module_is_no_result_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[str] = []

    def executed(jobs: list[suite.Job], *_: object, **__: object) -> Iterator[suite.Outcome]:
        folders.extend(str(job.folder) for job in jobs)
        return iter(())

    monkeypatch.setattr(suite, "execute", executed)
    text = 'topology = "path"\nseconds = 3\n[link]\nrate_bps = 1000000\n'
    text += "rtt_us = 40000\nqueue_packets = 20\n"
    for rate in ("1000000", "2000000"):
        (tmp_path / "mine.toml").write_text(text.replace("1000000", rate))
        one = str(tmp_path / "mine.toml")
        assert not [*selection.runs_of("a", uml_build.KMOD, [one], 1, ONE, tmp_path)]
    assert len({*folders}) == 2
    other = selection.sources(None, tmp_path / "kmod")
    with (other / "ndm_policy.h").open("a") as header:
        header.write("/* another module */\n")
    assert not [*selection.runs_of("a", other, [one], 1, ONE, tmp_path)]
    assert len({*folders}) == 3


@pytest.mark.usefixtures("few_boxes")
def test_copies_of_one_network_show_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    biases = []

    def measure(name: str, kmod: Path, *_: object) -> dict[str, float]:
        biases.append(int(IntegerNetwork.read(kmod / "generated").layers[-1].bias[selection.GAIN]))
        return {"v/a": 0.1 * len(biases), "v/b": 0.3}

    monkeypatch.setattr(selection, "measure", measure)
    spread = selection.noise(3, ["lan"], 3, ONE, tmp_path)
    assert spread == pytest.approx(np.std([0.05 * n for n in range(1, 4)], ddof=1))
    assert [bias - biases[0] for bias in biases] == [0, -1, 1]

    networks = {"seed-1": {"score": 0.1, "standard_error": 0.05, "val_loss": 0.06}}
    found = {"networks": networks, "refused": {}, "suites": ["lan"], "lab_seeds": 3}
    (tmp_path / chosen.SELECTION).write_text(json.dumps(found))
    assert "one bias a unit off" not in chosen.text(tmp_path / "seed-1", "1234")
    found["noise"] = {"copies": 3, "standard_deviation": 0.0079}
    (tmp_path / chosen.SELECTION).write_text(json.dumps(found))
    assert "deviation of 0.0079:" in chosen.text(tmp_path / "seed-1", "1234")


ONE_PATH = str(generated.ROOT / "lab" / "scenarios" / "share-with-cubic.toml")


def test_bad_input_is_one_line(
    population: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, why in (
        ([str(tmp_path / "none")], "no population here"),
        ([str(population), "--suites", ONE_PATH], "one scenario, and so no standard error"),
        ([str(population), "--lab-seeds", "2"], "--lab-seeds must be at least 3"),
        ([str(population), "--jobs", "0"], "--jobs must be at least 1"),
        ([str(population), "--suites", ","], "--suites: none named"),
        ([str(population), "--suites", "nosuch"], "nosuch: no scenario file"),
    ):
        assert run_command(["select", *words]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and why in said, said
        assert not (population / chosen.SELECTION).exists()
    (population / chosen.SELECTION).write_text("{}")
    with pytest.raises(NdmError, match="not written by ndm select"):
        chosen.text(population / "seed-1", "1234")


def test_a_population_without_a_fit_network_is_refused(
    population: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("seed-1", "seed-2"):
        shutil.rmtree(population / name)
    monkeypatch.setattr(selection, "measure", lambda *_: pytest.fail("nothing to measure"))
    with pytest.raises(NdmError, match="no network of it can be exported"):
        selection.select(population, ["lan"], 3, ONE, False)


def test_runs_of_another_module_are_not_taken_for_its_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "generated").mkdir(parents=True)
        shutil.copy(generated.GENERATED / "ndm_model.h", tmp_path / name / "generated")
        shutil.copy(generated.GENERATED.parent / "ndm_tcp.c", tmp_path / name)
    assert uml_build.sources_digest(tmp_path / "a") == uml_build.sources_digest(tmp_path / "b")
    for path in (Path("generated/ndm_model.h"), Path("ndm_tcp.c")):
        before = uml_build.sources_digest(tmp_path / "b")
        with (tmp_path / "b" / path).open("a") as stream:
            stream.write("/* */\n")
        assert uml_build.sources_digest(tmp_path / "b") != before


def test_the_score_of_the_docs_is_the_one_in_use() -> None:
    text = (generated.ROOT / "docs" / "training.md").read_text()
    for words in ("ln(goodput) - ln(RTT) / 2", "retransmitted share", "ln(Jain's index)"):
        assert words in text
