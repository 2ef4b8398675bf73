# SPDX-License-Identifier: GPL-2.0-only
"""`ndm lab` on the command line: what is refused before anything is built, booted or replaced."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import matplotlib
import orjson
import pytest

from ndm_tcp import checkout, cli, contract
from ndm_tcp.cli import run_command
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.guest import run as lab_run
from ndm_tcp.lab.guest import suite, uml_build
from ndm_tcp.lab.paths import scenario

from .conftest import ROOT
from .test_house import ALLOWED

SCENARIO = """
title = "A made-up path"
seconds = 3
topology = "path"
[link]
rate_bps = 10_000_000
rtt_us = 40_000
queue_packets = 60
"""
RIVAL = SCENARIO + '[[flows]]\ncc = "nosuch"\n[[flows]]\nsender = 1\n'


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was built or run; nothing really is."""
    done: list[str] = []

    def run(given: scenario.Scenario, cc: str, seed: int, out: Path, *_: Any) -> dict[str, Any]:
        done.append("run")
        out.mkdir(parents=True, exist_ok=True)
        result = {"scenario": given.name, "cc": cc, "seed": seed, "flows": [], "wall_s": 1.0}
        result |= {"drops": {"random": 0, "queue": 0}, "simulated_s": 1.0}
        (out / "result.json").write_bytes(orjson.dumps(result))
        (out / "scenario.toml").write_text(given.text)
        return result

    monkeypatch.setattr(uml_build, "build", lambda *a, **k: done.append("kernel"))
    monkeypatch.setattr(uml_build, "build_module", lambda *a, **k: done.append("module"))
    monkeypatch.setattr(lab_run, "run", run)
    return done


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "made-up.toml").write_text(SCENARIO)
    (tmp_path / "rival.toml").write_text(RIVAL)
    return tmp_path / "made-up.toml"


def refused(words: list[object], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run_command([str(word) for word in words]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("ndm: ") and "\n" not in error
    return error


@pytest.mark.parametrize("verb", ["run", "record", "board"])
@pytest.mark.parametrize(("file", "cc"), [("made-up", "nosuch"), ("rival", "reno")])
def test_an_unknown_algorithm_is_refused_before_anything_is_built(
    verb: str, file: str, cc: str, path: Path, built: list[str], capsys: Any
) -> None:
    out = path.parent / "out"
    words = ["lab", verb, path.with_stem(file), "--cc", cc, "-o", out]
    error = refused(words, capsys)
    assert "no algorithm nosuch, there are: reno cubic bbr" in error and "ndm_tcp" in error
    assert not built and not out.exists()


def test_one_unknown_among_many_is_refused_too(path: Path, built: list[str], capsys: Any) -> None:
    words = ["lab", "board", path, "--cc", "all,ceiling,fixed_cwnd:9,nosuch", "-o", path.parent]
    assert "no algorithm nosuch" in refused(words, capsys) and not built


def test_a_picture_of_another_format_is_refused_first(
    path: Path, built: list[str], capsys: Any
) -> None:
    words = ["lab", "board", path, "--cc", "reno", "-o", path.parent / "out", "--picture", "a.gif"]
    assert refused(words, capsys) == "ndm: a.gif: name it *.svg or *.png" and not built
    assert not (path.parent / "out").exists()


def test_a_module_brings_its_algorithm(path: Path, built: list[str], capsys: Any) -> None:
    mine = path.parent / "mine"
    words = ["lab", "run", path, "--cc", "mine", "-o", path.parent / "out", "--kmod", mine]
    assert "neither a .ko nor a folder with a Kbuild; name one of" in refused(words, capsys)
    left = path.parent / "refused"  # what ndm adapt leaves in place of RUN/kmod
    left.mkdir()
    (left / "Kbuild").touch()
    assert f"a Kbuild; ndm adapt advised against the network and left it in {left}; name that" in (
        refused(words, capsys)
    )
    mine.mkdir()
    (mine / "Kbuild").write_text("# nothing\n")
    assert "that names the module" in refused(words, capsys)
    assert not built
    (mine / "Kbuild").write_text("obj-m := mine.o\n")
    assert run_command([str(word) for word in words]) == 0 and "run" in built
    assert lab_run.module_names(ROOT / "kmod") == ["ndm_kunit", "ndm_tcp"]
    (mine / "other.ko").touch()
    assert lab_run.module_names(mine / "other.ko") == ["other"]


@pytest.mark.parametrize("verb", ["run", "record", "board"])
def test_one_option_names_a_module(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["lab", verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--kmod" in text and "--module" not in text


def test_exploring_needs_sources(path: Path, built: list[str], capsys: Any) -> None:
    words = ["lab", "record", path, "--cc", "ndm_tcp", "-o", path.parent / "out", "--explore"]
    assert "--explore needs the sources" in refused([*words, "--kmod", path.parent], capsys)


def test_another_run_is_not_replaced_unasked(path: Path, built: list[str], capsys: Any) -> None:
    def words(cc: str, seed: int, *more: object, file: Path = path) -> list[object]:
        return ["lab", "run", file, "--cc", cc, "--seed", seed, "-o", path.parent / "out", *more]

    def run(*arguments: object) -> int:
        return run_command([str(word) for word in arguments])

    assert run(*words("reno", 1)) == 0
    assert run(*words("reno", 1)) == 0, "the same run again"
    there = (path.parent / "out" / "result.json").read_bytes()
    built.clear()
    other = path.with_stem("rival")
    other.write_text(SCENARIO.replace("40_000", "50_000"))
    same_name = path.parent / "elsewhere" / path.name
    same_name.parent.mkdir()
    same_name.write_text(SCENARIO.replace("40_000", "60_000"))
    for case in (
        words("cubic", 1),
        words("reno", 2),
        words("reno", 1, file=other),
        words("reno", 1, file=same_name),
    ):
        assert "holds another run (made-up, reno, seed 1); name another -o" in refused(case, capsys)
        assert (path.parent / "out" / "result.json").read_bytes() == there and not built
    assert run(*words("cubic", 1, "--force")) == 0
    (path.parent / "out" / "result.json").write_text("{")
    assert "holds another run" in refused(words("cubic", 1), capsys)


def test_the_two_hashes_of_the_contract_have_two_names() -> None:
    with pytest.raises(NdmError) as whole:
        contract.require("f" * 16, "a header", "make")
    with pytest.raises(NdmError) as interface:
        contract.require("f" * 16, "a dataset", "make", contract.INTERFACE_HASH)
    assert "interface" in str(interface.value) and "interface" not in str(whole.value)


def test_scenarios_are_found_as_the_readme_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "b-jitter-loss-rate"
    for words in (f"lab/scenarios/published/{name}.toml", f"published/{name}.toml"):
        assert scenario.load(scenario.find(Path(words))).name == name
        assert [one.name for one in suite.load_suite(words)] == [name]
    assert len(suite.load_suite("lab/scenarios/published")) == len(suite.load_suite("published"))
    assert scenario.find(Path("nosuch.toml")) == Path("nosuch.toml")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of a wheel that a source distribution makes, away from the checkout."""
    out = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    subprocess.run(words, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(out / "site")
    return out / "site"


def ndm(installed: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return python(installed, "-m", "ndm_tcp.cli", *words)


def python(installed: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=installed.parent,
        env={
            "PYTHONPATH": str(installed),
            "PATH": "/usr/bin:/bin",
            "HOME": str(installed.parent),
            "MPLCONFIGDIR": matplotlib.get_cachedir(),  # else it lists the fonts again
        },
        capture_output=True,
        text=True,
        check=False,
    )


# In one process, which imports torch, and with few sub-boxes in its proof.
EXPORT_AND_START = """
import sys
from ndm_tcp.cli import run_command
from ndm_tcp.export.proof import properties
from ndm_tcp.training import start
properties.BOXES = 64
code = run_command(sys.argv[1:])
print(start.load('shipped').name)
sys.exit(code)
"""

# As where the packages of the extra `train` are not installed.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("torch", "onnx", "onnxruntime", "safetensors")))
from ndm_tcp.cli import run_command
sys.exit(run_command(sys.argv[1:]))
"""


def test_the_wheel_holds_every_package(installed: Path) -> None:
    names = {str(path.relative_to(installed)) for path in installed.rglob("*")}
    for room in ALLOWED:
        for path in (ROOT / room).rglob("*.py"):
            assert f"ndm_tcp/{path.relative_to(ROOT)}" in names
    assert "ndm_tcp/py.typed" in names
    assert any(name.startswith("ndm_tcp/_core") and name.endswith(".so") for name in names)
    (about,) = installed.glob("ndm_tcp-*.dist-info/WHEEL")
    (tag,) = re.findall(r"^Tag: (.+)$", about.read_text(), re.M)
    assert tag.startswith("cp311-abi3-linux_"), "for every later Python, too"


def test_a_wheel_has_what_its_verbs_read(installed: Path, run: Path, tmp_path: Path) -> None:
    # The committed network, without any of the checkout's files.
    said = ndm(installed, "check")
    assert said.returncode == 0 and "8 generated files are up to date" in said.stdout, said.stderr
    words = ["export", run, "-o", tmp_path / "out", "--even-if-worse"]
    done = python(installed, "-c", EXPORT_AND_START, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("the shipped network, model "), done.stderr
    for suite_ in ("published/c-dumbbell-loss-1.toml", "validation", "lab/scenarios/fairness"):
        said = ndm(installed, "lab", "board", suite_, "--cc", "nosuch", "-o", tmp_path / "b")
        assert said.returncode == 2 and "no algorithm nosuch" in said.stderr
    for folder in ("kmod", "lab/uml", "lab/uml/watch", "lab/fixed_cwnd"):
        here = {p.name for p in (ROOT / folder).iterdir() if p.suffix in (".c", ".h", ".config")}
        there = {p.name for p in (installed / "ndm_tcp" / folder).iterdir()}
        assert {n for n in here if not n.endswith(".mod.c")} <= there, folder
    git = ["git", "-C", ROOT, "ls-files", "lab/scenarios", "kmod/dkms.conf"]
    listed = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split()
    assert len(listed) > 300
    assert not [name for name in listed if not (installed / "ndm_tcp" / name).is_file()]


def test_the_source_distribution_builds_module_and_bpf_form(installed: Path) -> None:
    """Distributions take their packages from it."""
    (archive,) = installed.parent.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        held = {name.partition("/")[2] for name in tar.getnames()}
    git = ["git", "-C", ROOT, "ls-files", "kmod", "bpf"]
    listed = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split()
    assert len(listed) > 50 and set(listed) <= held


def test_a_missing_package_can_be_installed_as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.remedy("torch.nn") == "make setup"
    monkeypatch.setattr(checkout, "ROOT", Path("/usr/lib/python3"))
    assert cli.remedy("torch.nn") == "pip install 'ndm-tcp[train]'"
    assert cli.remedy("onnxruntime") == "pip install 'ndm-tcp[train]'"
    assert cli.remedy("numpy") == "pip install numpy"


def test_a_wheel_is_no_checkout(installed: Path, run: Path) -> None:
    before = (installed / "ndm_tcp/kmod/generated/ndm_model.h").read_bytes()
    said = ndm(installed, "export", run, "--shipped", "--even-if-worse")
    assert said.returncode == 2 and "this is no checkout" in said.stderr
    assert (installed / "ndm_tcp/kmod/generated/ndm_model.h").read_bytes() == before
    said = ndm(installed, "data", "lock", run)
    assert said.returncode == 2 and "this is no checkout" in said.stderr
    for words in (["verify"], ["record", "pool", "-o", run.parent / "pool"]):
        said = ndm(installed, "data", *words)
        assert said.returncode == 2 and "a checkout has one; name it: --lock" in said.stderr
    said = ndm(installed, "lab", "scenarios", "access")
    assert said.returncode == 2 and "this is no checkout" in said.stderr
    said = ndm(installed, "kmod", "status")
    assert f"make -C {installed}/ndm_tcp/kmod load" in said.stdout


def test_words_and_options_of_all_verbs_need_no_torch(installed: Path) -> None:
    """Nor what only drawings and boards need: a wheel without extras completes and helps."""
    done = python(installed, "-c", WITHOUT, "completion", "bash")
    assert done.returncode == 0 and "--qat" in done.stdout, done.stderr
    done = python(installed, "-c", WITHOUT, "train", "--data", ".", "-o", installed / "no")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("run: pip install 'ndm-tcp[train]'")
