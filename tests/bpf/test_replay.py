# SPDX-License-Identifier: GPL-2.0-only
"""The same records through the module's code in user space and through the loaded programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ..conftest import ROOT
from ..kmod.lab import need_simulator
from . import records, simulated

FLOWS, ACKS = 40, 600
FIELDS = Path(__file__).with_name("replay.c")


def build(out: Path, root: Path = ROOT) -> Path:
    """The module's code for user space, with the kmod/ below a root."""
    words = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function"]
    words += ["-Wno-unused-parameter", f"-I{root}", f"-I{ROOT}", f"-I{ROOT}/bpf"]
    words += [f"-I{ROOT}/bpf/include", str(FIELDS), "-o", str(out)]
    subprocess.run(words, check=True)
    return out


def run(program: list[Path | str], flows: bytes) -> list[bytes]:
    done = subprocess.run(program, input=flows, capture_output=True, check=True)
    return records.split(done.stdout)


@pytest.fixture(scope="module")
def flows() -> bytes:
    return b"".join(records.flow(seed, ACKS) for seed in range(FLOWS))


@pytest.fixture(scope="module")
def module(flows: bytes, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return run([build(tmp_path_factory.mktemp("replay") / "replay")], flows)


def test_the_records_reach_every_rule(module: list[bytes]) -> None:
    """Else equal windows would prove little."""
    ops = [int.from_bytes(record[:4], "little") for record in module]
    assert ops.count(records.ACK) == FLOWS * ACKS >= 10_000
    for op in (records.CUT, records.STATE, records.UNDO, records.IDLE):
        assert ops.count(op) >= 50
    out = [records.outputs(record) for record in module]
    assert len({row["cwnd"] for row in out}) > 1000
    assert {row["state"] for row in out} >= {records.OPEN, records.CWR, records.RECOVERY,
                                             records.LOSS}  # fmt: skip
    assert {row["prior_ssthresh"] == 0 for row in out} == {True, False}


def test_bpf_gives_the_same_bits(flows: bytes, module: list[bytes], loadable: Path) -> None:
    """Windows, thresholds, pacing rates, and all 104 bytes of the flow's state, after each."""
    bpf = run([loadable / "ndm_bpf", "replay"], flows)
    assert len(bpf) == len(module)
    differing = [i for i, (ours, theirs) in enumerate(zip(module, bpf, strict=True))
                 if ours != theirs]  # fmt: skip
    assert not differing, [
        (i, records.outputs(module[i]), records.outputs(bpf[i])) for i in differing[:3]
    ]


@pytest.fixture(scope="module")
def transfers(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Flows of the simulator, one after another, with what each callback left there."""
    need_simulator()
    paths = simulated.BULK + simulated.ROUGH
    return b"".join(simulated.flows(tmp_path_factory.mktemp("simulated"), paths))


def test_transfers_call_everything(transfers: bytes) -> None:
    found = [records.inputs(record) for record in records.split(transfers)]
    ops = [row["op"] for row in found]
    assert ops.count(records.INIT) == len(simulated.BULK + simulated.ROUGH)
    assert ops.count(records.ACK) > 20_000
    for op, fewest in ((records.CUT, 100), (records.UNDO, 1), (records.IDLE, 1)):
        assert ops.count(op) >= fewest, op
    states = {row["arg"] for row in found if row["op"] == records.STATE}
    assert states == {records.OPEN, records.DISORDER, records.RECOVERY, records.LOSS}


def differing(transfers: bytes, program: Path, *words: str) -> list[int]:
    """Numbers of the records that end otherwise than in the simulator."""
    wanted = [records.left(record) for record in records.split(transfers)]
    found = [records.left(record) for record in run([program, *words], transfers)]
    return [i for i, (ours, theirs) in enumerate(zip(found, wanted, strict=True)) if ours != theirs]


def test_transfers_end_as_in_the_simulator(transfers: bytes, tmp_path: Path) -> None:
    assert differing(transfers, build(tmp_path / "replay")) == []


def test_transfers_end_so_in_bpf(transfers: bytes, loadable: Path) -> None:
    assert differing(transfers, loadable / "ndm_bpf", "replay") == []


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ndm_recovery.h", "ndm_prior_cwnd(tp) >> 1", "ndm_prior_cwnd(tp) >> 2"),
        ("ndm_slow_start.h", "min(ndm_prior_ssthresh(tp), half)", "ndm_prior_ssthresh(tp)"),
        ("ndm_recovery.h", "s32, delivered - tp->prr_out", "s32, acked - tp->prr_out"),
        ("ndm_drain.h", "#define NDM_DRAIN_ROUNDS	16", "#define NDM_DRAIN_ROUNDS	15"),
        ("ndm_features.h", "ndm_min(held_us >>", "ndm_max(held_us >>"),
    ],
)
def test_another_rule_gives_other_bits(
    name: str, old: str, new: str, flows: bytes, module: list[bytes], tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod")
    header = tmp_path / "kmod" / name
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))
    assert run([build(tmp_path / "replay", tmp_path)], flows) != module
