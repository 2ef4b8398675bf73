# SPDX-License-Identifier: GPL-2.0-only
"""Parameters of modules in a run: to whom they go, which are refused, and that a run keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import uml_build

from ..kmod.lab import need_kernel, scenario
from ..test_lab_cli import refused
from .test_externals import seven
from .test_run import LOOPBACK


def test_a_constant_window_is_named_as_on_a_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need_kernel()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lo.toml").write_text(LOOPBACK)
    assert run_command(["lab", "run", "lo.toml", "--cc", "fixed_cwnd:20", "--light"]) == 0
    (out,) = (tmp_path / "out" / "lab").iterdir()
    result = json.loads((out / "result.json").read_text())
    assert out.name == "lo-fixed_cwnd-20-1" and result["parameters"] == {"cwnd": "20"}
    assert result["cc"] == "fixed_cwnd" and result["flows"][0]["cwnd_max"] == 20
    assert run_command(["lab", "run", "lo.toml", "--cc", "cubic:20"]) == 2
    assert "only fixed_cwnd takes a number" in capsys.readouterr().err


def test_parameters_need_a_module(tmp_path: Path) -> None:
    with pytest.raises(NdmError, match="takes no parameters"):
        lab_run.run(scenario(LOOPBACK), "cubic", 1, tmp_path / "run", params={"cwnd": 1})


@pytest.mark.parametrize("text", ["cwnd=\u00e9", "cwnd=1\n2", "cwnd", "\u00e9=1"])
def test_what_no_plan_can_pass_to_a_module_is_refused(text: str) -> None:
    with pytest.raises(NdmError, match=r"^--param .*(expected NAME=VALUE|not plain ASCII)"):
        lab_run.parameter(text)


def test_parameters_with_functions_of_their_own_are_known(tmp_path: Path) -> None:
    """As the network of ndm_tcp, and one without a description."""
    need_kernel()
    ours = uml_build.build_module(uml_build.KMOD)
    assert lab_run._taker("ndm_tcp", {"model": ""}, [ours]) == ours
    more = "static int beta = 7;\nmodule_param_cb(beta, &param_ops_int, &beta, 0444);\n"
    theirs = uml_build.build_module(seven(tmp_path, lambda text: text + more))
    assert lab_run._taker("seven", {"beta": "3"}, [theirs]) == theirs
    with pytest.raises(NdmError, match=r"bta; those of ndm_tcp.ko and tcp_seven.ko are beta, "):
        lab_run._taker("seven", {"bta": "3"}, [ours, theirs])


def test_parameters_go_to_the_module_that_has_them(tmp_path: Path, capsys: Any) -> None:
    """One that no module has is refused, and another value is another run."""
    need_kernel()
    path = tmp_path / "lo.toml"
    path.write_text(LOOPBACK)
    more = "static int beta = 7;\nmodule_param(beta, int, 0444);\n"
    copy = seven(tmp_path, lambda text: text + more)
    out = tmp_path / "out"
    words = ["lab", "run", path, "--cc", "seven", "--cc-module", copy, "--light", "-o", out]
    said = refused([*words, "--param", "bta=3"], capsys)
    assert said.strip() == "ndm: --param: seven does not have bta; those of tcp_seven.ko are beta"
    assert not out.exists()
    assert run_command([str(word) for word in [*words, "--param", "beta=3"]]) == 0
    assert json.loads((out / "result.json").read_bytes())["parameters"] == {"beta": "3"}
    assert "holds another run" in refused([*words, "--param", "beta=4"], capsys)
    fixed = ["lab", "run", path, "--cc", "fixed_cwnd", "--param", "cwdn=20", "-o", tmp_path / "f"]
    said = refused(fixed, capsys)
    assert "fixed_cwnd does not have cwdn; those of fixed_cwnd.ko are cwnd" in said


def test_what_a_build_leaves_is_no_source(tmp_path: Path) -> None:
    """Another build may run in the folder: strip's own file was there, and then not."""
    for name in ("Kbuild", "a.c", "stream.h", "static.c", "stgjXnW2", ".a.o.cmd", "a.o", "a.ko"):
        (tmp_path / name).touch()
    found = [path.name for path in uml_build.module_files(tmp_path)]
    assert found == ["Kbuild", "a.c", "static.c", "stream.h"]
