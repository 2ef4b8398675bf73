# SPDX-License-Identifier: GPL-2.0-only
"""What the window never does, for any network: the control law, gone through case by case."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import generated
from ndm_tcp.export.proof import certificate, law, properties

from .conftest import ROOT

CONTROL = "kmod/ndm_control.h"
BREAKS = {
    "gain_never_falls": ("gain < 0 ? (value + 1) >> 1", "gain < 0 ? value"),
    "at_most_double": ("ndm_exp2(gain)) >> 16) + 1", "ndm_exp2(gain)) >> 16) + 2"),
    "at_least_half": ("ndm_apply_gain(window, ndm", "ndm_apply_gain(window / 2, ndm"),
    "flood_falls_to_what_arrived": (
        "x[NDM_IN_LOSS_RATE] >= NDM_FLOOD",
        "x[NDM_IN_LOSS_RATE] > NDM_FLOOD",
    ),
    "only_scatter_excuses_a_flood": ("2 * NDM_ONE + 1);", "2 * NDM_ONE);"),
    "one_packet_after_a_mark": ("ndm_min(target, window + 1)", "ndm_min(target, window + 2)"),
    "unused_window_does_not_grow": ("if (flags & NDM_LAW_UNUSED)", "if (false)"),
    "ceiling_holds": ("ndm_min(target, ceiling)", "ndm_min(target, ceiling + 1)"),
    "loss_takes_at_most_half": (
        "ndm_sigmoid(congestion)) >> 17",
        "ndm_sigmoid(congestion)) >> 16",
    ),
}
"""claim to a change of the law that breaks it"""


def build(folder: Path, root: Path) -> Path:
    """Compile tests/law.c with the headers below a root."""
    program = folder / "law"
    subprocess.run(
        ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{root}", f"-I{ROOT}",
         str(ROOT / "tests" / "law.c"), "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def run(program: Path, *claims: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *claims], capture_output=True, text=True, check=False)


def test_the_certificate_names_what_is_gone_through(tmp_path: Path) -> None:
    """Every claim of the certificate is one that the program proves, with as many cases."""
    done = run(build(tmp_path, ROOT))
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    lines = [line.removesuffix(" cases").split(": ") for line in done.stdout.splitlines()]
    gone_through = {name: int(count) for name, count in lines}
    data = json.loads((generated.GENERATED / certificate.NAME).read_text())["law"]
    assert gone_through == {claim["name"]: claim["cases"] for claim in data["claims"]}
    assert list(gone_through) == [claim.name for claim in law.CLAIMS]
    assert sum(gone_through.values()) > 3_000_000_000
    assert data["headers"] == law.digests() and data["program"] == "tests/law.c"


def test_every_claim_can_be_broken() -> None:
    assert list(BREAKS) == [claim.name for claim in law.CLAIMS]


@pytest.mark.parametrize("claim", BREAKS)
def test_a_broken_law_is_found(claim: str, tmp_path: Path) -> None:
    old, new = BREAKS[claim]
    (tmp_path / "kmod").mkdir()
    for file in (ROOT / "kmod").glob("*.h"):
        (tmp_path / "kmod" / file.name).write_text(file.read_text())
    (tmp_path / "kmod" / "generated").symlink_to(ROOT / "kmod" / "generated")
    header = tmp_path / CONTROL
    text = header.read_text()
    assert text.count(old) == 1
    header.write_text(text.replace(old, new))
    done = run(build(tmp_path, tmp_path), claim)
    assert done.returncode == 1 and done.stdout.startswith(f"{claim}: broken at"), done.stdout


def test_an_unknown_claim_is_no_proof(tmp_path: Path) -> None:
    done = run(build(tmp_path, ROOT), "nosuch")
    assert done.returncode == 2 and "no such claim" in done.stdout


def test_what_the_network_breaks_the_law_contains() -> None:
    """No claim about the bare network stands alone: who reads "refuted" reads what bounds it."""
    names = {claim.name for claim in law.CLAIMS}
    for prop in properties.PROPERTIES:
        assert set(prop.contained_by) <= names
        assert (prop.limit is None) == (not prop.contained_by), prop.name


def test_a_module_with_another_law_is_refused(tmp_path: Path) -> None:
    for name in law.HEADERS:
        shutil.copy(ROOT / "kmod" / name, tmp_path / name)
    law.require(tmp_path)
    (tmp_path / "ndm_control.h").write_text("/* another */\n")
    with pytest.raises(NdmError, match=r"ndm_control\.h: not the control law .*; run: cp ") as no:
        law.require(tmp_path)
    subprocess.run(str(no.value).split("; run: ")[1].split(), check=True)
    law.require(tmp_path)
    (tmp_path / "ndm_infer.h").unlink()
    with pytest.raises(NdmError, match=r"ndm_infer\.h: not the control law"):
        law.require(tmp_path)
