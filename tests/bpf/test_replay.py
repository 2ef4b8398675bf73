# SPDX-License-Identifier: GPL-2.0-only
"""The same records through the module's code in user space and through the loaded programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ..conftest import ROOT
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


def test_transfers_give_what_they_gave_in_the_simulator(loadable: Path, tmp_path: Path) -> None:
    """Bulk flows, lone and beside others: every callback, in the kernel and in user space."""
    for number, transfer in enumerate(simulated.flows(tmp_path)):
        wanted = [records.left(record) for record in records.split(transfer)]
        assert len(wanted) > 2000 and len({row[0] for row in wanted}) > 10
        for words in ([loadable / "ndm_bpf", "replay"], [build(tmp_path / "replay")]):
            found = [records.left(record) for record in run([*words], transfer)]
            assert found == wanted, f"path {number}, {words[0].name}"


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
