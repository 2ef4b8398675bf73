# SPDX-License-Identifier: GPL-2.0-only
"""Builds: killed and run again, cut and repeated sources, shared captures, the card."""

from __future__ import annotations

import fcntl
import hashlib
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import orjson
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.builder import build, parts, workers
from ndm_tcp.datasets.readers import sources
from ndm_tcp.datasets.store import card, store
from ndm_tcp.errors import NdmError
from ndm_tcp.export.integers import model_c
from ndm_tcp.paths import label
from ndm_tcp.paths.model import load_all

from .captures import RECEIVER, Captured
from .conftest import TRACES

NAMES = ("cubic-00-clean", "reno-03-lossy", "bbr-01-clean", "bbr-03-lossy", "cubic-08-reorder")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def many_flows(path: Path, n: int = 7) -> Path:
    """A capture of several connections that overlap in time."""
    records = []
    for number in range(n):
        made = Captured(path, sender=(b"\x0a\0\0\1", 3000 + number))
        made.handshake(1_000_000, 1_020_000, 1_020_100)
        made.transfer(1_021_000 + 137 * number, 100 + 10 * number)
        records += [(r[:8], r) for r in made.records]
    records.sort(key=lambda r: (int.from_bytes(r[0][:4], "little"), int.from_bytes(r[0][4:])))
    made.records = [r for _, r in records]
    return made.write()


@pytest.mark.pictures
@pytest.mark.parametrize("kills", [5, pytest.param(11, marks=pytest.mark.long)])
def test_killed_at_random_points_and_run_again_gives_the_same_bytes(
    kills: int, tmp_path: Path
) -> None:
    wanted = tmp_path / "wanted"
    build.build([TRACES / n for n in NAMES], wanted, quiet=True, labeller=label.labeller())
    out, draw, killed = tmp_path / "out", random.Random(5), 0
    for attempt in range(kills + 1):
        words = [sys.executable, "-m", "ndm_tcp.cli", "dataset", "build", "-o", str(out)]
        words += ["--jobs", str(1 + attempt % 3), *(str(TRACES / name) for name in NAMES)]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(0.3 + draw.random() * 0.5 if attempt < kills else 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
    assert killed > 2 and process.returncode == 0
    assert contents(out) == contents(wanted)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "wanted"]


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "parts"
    tasks = [parts.Task(str(TRACES / name), str(folder)) for name in NAMES[:2]]
    made = [parts.make(task) for task in tasks]
    monkeypatch.setattr(sources, "read_rounds", lambda *_: pytest.fail("read again"))
    assert [parts.make(task) for task in tasks] == made


def test_another_code_or_source_is_another_part(monkeypatch: pytest.MonkeyPatch) -> None:
    task = parts.Task("x", "y")
    names = {parts.part_name(task, "x", "0"), parts.part_name(task, "x", "1")}
    names |= {
        parts.part_name(task, "z", "0"),
        parts.part_name(parts.Task("x", "y", 1, 2), "x", "0"),
    }
    monkeypatch.setattr(parts, "code_digest", lambda: "other")
    assert len(names | {parts.part_name(task, "x", "0")}) == 5


@pytest.mark.pictures
def test_a_shared_capture_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = many_flows(tmp_path / "many.pcap")
    build.build([path], tmp_path / "one", quiet=True)
    monkeypatch.setattr(build, "SHARED_BYTES", 1)
    assert len(build._tasks([str(path)], "x", 3, None)) == 3
    build.build([path], tmp_path / "three", jobs=3, quiet=True)
    assert contents(tmp_path / "one") == contents(tmp_path / "three")
    assert store.load(tmp_path / "one").manifest["flows"] == 7


def test_a_capture_named_twice_is_used_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    shutil.copytree(TRACES / NAMES[0], folder / "a")
    shutil.copytree(TRACES / NAMES[0], folder / "b")
    manifest = build.build([folder, TRACES / NAMES[1]], tmp_path / "out", quiet=True)
    assert manifest["repeated"] == [{"name": "b", "same_as": "a"}]
    assert "ndm: b: same bytes as a; used once" in capsys.readouterr().err
    assert (
        manifest["flows"]
        == 2
        == len(set(store.load(tmp_path / "out").rounds["flow_id"].to_pylist()))
    )


def test_a_cut_capture_is_used_named_and_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = many_flows(tmp_path / "cut.pcap")
    path.write_bytes(path.read_bytes()[:-7])
    words = ["dataset", "build", str(path), "-o", str(tmp_path / "out")]
    assert run_command(words) == 1
    error = capsys.readouterr().err
    at = store.load(tmp_path / "out").manifest["sources"][0]["truncated_at"]
    assert error.startswith(f"ndm: cut.pcap: cut short or damaged at byte {at}; its ")
    assert error.count("\n") == 1 and at == path.stat().st_size - 49
    assert run_command([*words, "--keep-going"]) == 0
    assert f"byte {at}" in capsys.readouterr().err


@pytest.mark.parametrize("alive", [True, False])
def test_a_process_whose_parent_is_gone_before_it_begins_ends(alive: bool) -> None:
    """Else it would wait for work for ever, and hold the lock of the build that was killed."""
    context = multiprocessing.get_context("fork")
    parent = os.getpid() if alive else 1
    process = context.Process(target=workers._begin, args=(context.Value("q", 0), parent))
    process.start()
    process.join(60)
    assert process.exitcode == (0 if alive else 1)


def _end(task: parts.Task) -> None:
    """As the kernel does where memory is full."""
    if "third" in task.source:
        os.kill(os.getpid(), signal.SIGKILL)
    parts.make(task)


def test_a_killed_process_leaves_the_finished_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They took time, and the same command goes on with them."""
    given = [str(TRACES / name) for name in (*NAMES[:2], "third_party")]
    monkeypatch.setattr(workers, "attempt", _end)
    words = ["dataset", "build", *given, "-o", str(tmp_path / "out"), "--keep-going"]
    assert run_command([*words, "--jobs", "2", "--no-label"]) == 2
    error = capsys.readouterr().err
    assert "a reading process was ended, by a full memory perhaps" in error
    assert not (tmp_path / "out").exists() and (tmp_path / ".out.parts").is_dir()
    monkeypatch.undo()
    assert run_command([*words, "--jobs", "2", "--no-label"]) == 0
    assert not (tmp_path / ".out.parts").exists()


def test_a_file_of_the_user_beside_a_dataset_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".dataset.json.bak").write_text("x")
    build.build([TRACES / NAMES[0]], tmp_path / "out", quiet=True, with_card=False)
    assert (tmp_path / "out" / ".dataset.json.bak").read_text() == "x"


def test_a_lock_that_is_let_go_in_time_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / ".out.parts"
    folder.mkdir()
    held = (folder / "lock").open("w")
    fcntl.flock(held, fcntl.LOCK_EX)
    timer = threading.Timer(0.3, held.close)
    timer.start()
    with build._parts_folder(tmp_path / "out", None):
        assert held.closed
    timer.join()


def test_two_builds_of_one_folder_are_kept_apart(tmp_path: Path) -> None:
    with (
        build._parts_folder(tmp_path / "out", None),
        pytest.raises(NdmError, match="another build writes here"),
    ):
        build.build([TRACES / NAMES[0]], tmp_path / "out", quiet=True)


def test_counters_of_a_capture_reach_the_manifest_and_the_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = many_flows(tmp_path / "x.pcap")
    udp = path.read_bytes()[24 + 16 : 24 + 56]
    udp = udp[:9] + b"\x11" + udp[10:]
    record = path.read_bytes()[24 : 24 + 8] + (40).to_bytes(4, "little") * 2
    path.write_bytes(
        path.read_bytes() + (record + udp) * 3 + (record + udp[:6] + b"\x20\0" + udp[8:])
    )
    build.build([path], tmp_path / "out", quiet=True)
    capture = store.load(tmp_path / "out").manifest["sources"][0]["capture"]
    assert (capture["not_tcp"], capture["fragments"], capture["duplicates"]) == (3, 1, 0)
    text = (tmp_path / "out" / card.CARD).read_text()
    assert "not_tcp 3, fragments 1" in text
    assert run_command(["dataset", "info", str(tmp_path / "out")]) == 0
    assert "not_tcp 3, fragments 1" in capsys.readouterr().out


def test_the_card_shows_every_input_and_no_address(dataset: Path) -> None:
    text = (dataset / card.CARD).read_text()
    facts = orjson.loads((dataset / store.MANIFEST).read_bytes())
    assert facts["sha256"] in text and "| 10 | `queue_floor` |" in text
    assert text.count("\n| ") > 20
    for name in ("inputs.png", "paths.png"):
        data = (dataset / name).read_bytes()
        assert f"]({name})" in text and data.startswith(b"\x89PNG") and len(data) > 10_000


@pytest.mark.pictures
def test_no_address_in_any_file_of_a_dataset(tmp_path: Path) -> None:
    """In binary and in text, IPv4 and IPv6, though all file names of the sources stay."""
    path = many_flows(tmp_path / "x.pcap")
    build.build([path], tmp_path / "out", quiet=True)
    for name, data in contents(tmp_path / "out").items():
        for address in (b"\x0a\0\0\1", RECEIVER[0], b"10.0.0.1", b"10.0.0.2"):
            if name.endswith(".png") and len(address) == 4:
                continue  # compressed pixels hold any four bytes
            assert address not in data, (name, address)


def test_the_shipped_network_learned_from_what_ships(root: Path, tmp_path: Path) -> None:
    """What changes a recorded round makes another network: run `make shipped`."""
    model = model_c.from_json(root / "kmod" / "generated" / "ndm_model.json")
    models = load_all(root / "datasets" / "path-models")
    build.build([TRACES], tmp_path, jobs=2, quiet=True, labeller=label.labeller(models))
    rounds = root / "datasets" / "lab-rounds"
    (names,) = re.findall(r"^ROUNDS = .*/,(.+)\)$", (root / "Makefile").read_text(), re.MULTILINE)
    recorded = [rounds / name / "dataset.json" for name in names.split()]
    assert sorted(recorded) == sorted(rounds.glob("*/dataset.json"))
    found = [orjson.loads(p.read_bytes())["sha256"] for p in [tmp_path / "dataset.json", *recorded]]
    digest = hashlib.sha256("".join(found).encode()).hexdigest()
    assert model.notes["dataset"] == f"sha256 {digest}"


def test_a_flow_in_another_format_is_used_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `ndm path estimate` does: pcapng of a pcap, here a header that differs."""
    data = many_flows(tmp_path / "a.pcap").read_bytes()
    (tmp_path / "b.pcap").write_bytes(data[:16] + (9999).to_bytes(4, "little") + data[20:])
    made = build.build([tmp_path], tmp_path / "out", quiet=True, labeller=label.labeller())
    assert made["flows"] == 7 and len(made["sources"]) == 2
    assert "b.pcap: 7 flows are in another source" in capsys.readouterr().err
    assert "fingerprint" not in (tmp_path / "out" / store.MANIFEST).read_text()


def test_a_labelled_capture_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a label would depend on the number of processes."""
    monkeypatch.setattr(build, "SHARED_BYTES", 1)
    many_flows(tmp_path / "a.pcap")
    for jobs in (1, 3):
        build.build(
            [tmp_path / "a.pcap"], tmp_path / str(jobs), jobs, quiet=True, labeller=label.labeller()
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "3")
