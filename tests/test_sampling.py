# SPDX-License-Identifier: GPL-2.0-only
"""Training on polls: what they cannot have is masked, and messages name the right options."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ndm_tcp import contract
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder.build import build
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.training import checkpoint as ckpt
from ndm_tcp.training.config import TrainConfig
from ndm_tcp.training.loop import Trainer

POLLED = TrainConfig(objective="awbc", sampling="poll", epochs=3, batch=64)
HIDDEN = [i.index - 1 for i in contract.DENSE if {i.name, i.of} & {"entropy", "queue_floor"}]


def iperf3_report(seed: int) -> str:
    """A sender's `iperf3 -J`: a window that halves now and then, an RTT that follows it."""
    rng = np.random.default_rng(seed)
    cwnd, intervals = 20.0, []
    for k in range(120):
        lost = bool(rng.random() < 0.08)
        cwnd = max(cwnd / 2, 4) if lost else cwnd + 1
        rtt_us = int(20_000 + 400 * cwnd + rng.integers(0, 2000))
        stream = {
            **{"socket": 5, "start": k * 0.1, "end": (k + 1) * 0.1, "seconds": 0.1},
            **{"bytes": int(cwnd * 1448 * 1e5 / rtt_us), "retransmits": int(lost)},
            **{"snd_cwnd": int(cwnd) * 1448, "rtt": rtt_us, "rttvar": 900, "sender": True},
        }
        intervals.append({"streams": [stream], "sum": {}})
    start = {
        "version": "iperf 3.12",
        "connected": [{"socket": 5, "local_host": "10.0.0.1", "local_port": 40000 + seed,
                       "remote_host": f"10.0.{seed}.2", "remote_port": 5201}],
        "tcp_mss_default": 1448,
        "timestamp": {"timesecs": 1_700_000_000 + 100 * seed},
        "test_start": {"protocol": "TCP", "reverse": 0},
    }  # fmt: skip
    return json.dumps({"start": start, "intervals": intervals, "end": {"streams": []}})


@pytest.fixture(scope="module")
def polls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of poll rounds, without any label but the windows themselves."""
    folder = tmp_path_factory.mktemp("polls")
    for seed in range(8):
        (folder / f"{seed}.json").write_text(iperf3_report(seed))
    build([folder], folder / "data", quiet=True)
    assert set(store.load(folder / "data").rounds["sampling"].to_pylist()) == {"poll"}
    return folder / "data"


@pytest.mark.parametrize("mask", [(), (7, 8)], ids=str)
def test_inputs_that_polls_cannot_have_have_no_influence(
    mask: tuple[int, ...], polls: Path, tmp_path: Path
) -> None:
    Trainer([polls], tmp_path, replace(POLLED, mask=mask)).run(quiet=True)
    policy, checkpoint = ckpt.load_policy(tmp_path)
    assert checkpoint.config.mask == tuple(sorted({4, 10, *mask}))
    assert len(HIDDEN) == 3 and not policy.linear_layers()[0][0][:, HIDDEN].any()
    x = torch.rand(50, contract.N_DENSE)
    moved = x.clone()
    moved[:, HIDDEN] = torch.rand(50, len(HIDDEN))
    assert torch.equal(policy.act(x), policy.act(moved))


def test_random_starts_and_rounds_per_ack_are_masked_alike(dataset: Path) -> None:
    assert TrainConfig(sampling="poll").mask == (4, 10)
    assert TrainConfig(sampling="per_ack").mask == ()
    assert TrainConfig.from_dict(TrainConfig(sampling="poll").to_dict()).mask == (4, 10)


def followed(message: str, words: list[str]) -> list[str]:
    """The command with the options that a message names."""
    return [*words, *shlex.split(re.findall(r"ndm train takes them with (--.*)$", message)[0])]


def test_a_message_about_the_wrong_sampling_can_be_followed(
    polls: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--data", str(polls), "-o", str(tmp_path / "a"), "--epochs", "2"]
    assert run_command(words) == 2
    said = capsys.readouterr().err.strip()
    assert re.search(r"no per_ack rounds in it, but \d+ poll rounds; ", said)
    words = followed(said, words)
    assert words[-4:] == ["--sampling", "poll", "--objective", "awbc"]
    assert run_command(words) == 0

    words = ["train", "--data", str(dataset), "-o", str(tmp_path / "b"), "--epochs", "2"]
    words += ["--objective", "awbc"]
    assert run_command([*words, "--sampling", "poll"]) == 2
    said = capsys.readouterr().err.strip()
    assert re.search(r"no poll rounds in it, but \d+ per_ack rounds; ", said)
    assert run_command(followed(said, words)) == 0


def test_evaluation_says_so_too(polls: Path, run: Path) -> None:
    from ndm_tcp.training.objective import examples

    _, checkpoint = ckpt.load_policy(run)
    with pytest.raises(NdmError, match="no per_ack rounds in it, but .* --sampling poll$"):
        examples(store.load(polls).rounds, checkpoint.config)
    empty = store.load(polls).rounds.slice(0, 0)
    with pytest.raises(NdmError, match="no rounds in it; build it from other sources"):
        examples(empty, checkpoint.config)
