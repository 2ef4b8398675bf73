# SPDX-License-Identifier: GPL-2.0-only
"""Networks swapped under traffic: what runs, what is refused, and what the flows notice."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp import core
from ndm_tcp.bpf import loader
from ndm_tcp.cli import run_command
from ndm_tcp.datasets.module_event import event_lines

from .. import blobs, namespaces
from ..conftest import ROOT
from ..replay import inputs
from .conftest import build

PINS = Path("/sys/fs/bpf/ndm_tcp_bpf")
SECONDS = 6
SHIPPED, OTHER = blobs.shipped(), blobs.other()


@pytest.fixture
def files(loaded: Path, tmp_path: Path) -> Iterator[list[Path]]:
    """Blobs of another network and of the shipped one; the built-in one runs before and after."""
    paths = [tmp_path / "other.blob", tmp_path / "shipped.blob"]
    for path, model in zip(paths, (OTHER, SHIPPED), strict=True):
        path.write_bytes(blobs.of(model))
    assert running(loaded) == SHIPPED.hash()
    yield paths
    loader.run(loaded, "swap", "--built-in")


def running(folder: Path) -> str:
    return loader.facts(loader.run(folder, "status")[1])["model_hash"]


@contextmanager
def swapping(folder: Path, files: list[Path]) -> Iterator[list[float]]:
    """Swap from one to the other without a pause; milliseconds of each swap."""
    took, ended = list[float](), threading.Event()

    def swap() -> None:
        while not ended.is_set():
            blob = str(files[len(took) % len(files)])
            took.append(float(loader.facts(loader.run(folder, "swap", blob)[1])["swap_ms"]))

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield took
    finally:
        ended.set()
        thread.join()


def test_every_round_is_by_one_of_two_networks(
    path: str, loaded: Path, files: list[Path], tmp_path: Path
) -> None:
    text = tmp_path / "rounds.txt"
    with text.open("w") as out:
        reader = subprocess.Popen([loaded / "ndm_bpf", "events"], stdout=out)
        time.sleep(0.5)
        clients = [["-C", loader.NAME]] * 2
        with namespaces.transfers(path, SECONDS, *clients) as found, swapping(loaded, files) as ms:
            time.sleep(SECONDS)
        reader.send_signal(signal.SIGTERM)
        assert reader.wait(10) == 0
    assert len(ms) > 3 * SECONDS
    assert not [flow["error"] for flow in found if "error" in flow]
    received = sum(flow["end"]["sum_received"]["bits_per_second"] for flow in found) / 1e6
    assert 0.5 * namespaces.MBPS <= received <= namespaces.MBPS
    table = event_lines.read(text)
    valid = table["valid"].to_numpy(zero_copy_only=False)
    seen = np.stack([table[n].to_numpy()[valid] for n in ("cwnd_gain", "congestion")], axis=1)
    x = inputs(table)[valid]
    by = [(core.infer(m.layers, x)[0] == seen).all(axis=1) for m in (OTHER, SHIPPED)]
    print(len(ms), "swaps,", [int(b.sum()) for b in by], "rounds, median", np.median(ms), "ms")
    assert (by[0] | by[1]).all()
    assert min((by[0] & ~by[1]).sum(), (by[1] & ~by[0]).sum()) > 50
    assert np.count_nonzero(np.diff(by[0][by[0] ^ by[1]].astype(int))) > SECONDS


def segments(namespace: str, *counters: str) -> int:
    """The sum of a namespace's counters of TCP segments."""
    words = [*namespaces.inside(namespace), "cat", "/proc/net/snmp"]
    text = subprocess.check_output(words, text=True)
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return sum(int(values[names.index(counter)]) for counter in counters)


def dropped(path: str) -> int:
    """Packets that the router's queue had no room for."""
    words = ["tc", "-n", f"{path}r", "-s", "-j", "qdisc", "show", "dev", "b0"]
    (bucket,) = json.loads(subprocess.check_output(words))
    return int(bucket["drops"])


def test_no_packet_is_lost_by_a_swap(path: str, loaded: Path, files: list[Path]) -> None:
    """Only the queue drops segments, as it does when the host stalls, and the rate is kept."""

    def counts() -> list[int]:
        sent = segments(f"{path}s", "OutSegs", "RetransSegs")  # one never counts the other's
        return [sent, segments(f"{path}d", "InSegs"), dropped(path)]

    before = counts()
    options = ["-C", loader.NAME, "-b", "20M"]
    with namespaces.transfers(path, SECONDS, options) as found, swapping(loaded, files) as ms:
        time.sleep(SECONDS)
    out, arrived, drops = np.subtract(counts(), before)
    print(len(ms), "swaps,", out, "sent,", arrived, "arrived,", drops, "dropped by the queue")
    assert len(ms) > 3 * SECONDS
    assert out > 20e6 / 8 / 1500 * SECONDS
    assert out - arrived == drops <= out / 100
    assert found[0]["end"]["sum_received"]["bytes"] >= 0.97 * 20e6 / 8 * SECONDS


BAD: dict[str, Callable[[bytes], bytes]] = {
    "checksum differs": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "output differs": lambda data: blobs.changed(data, len(data) - 12, bytes([data[-12] ^ 1])),
    "length differs": lambda data: data[:5000],
    "1 MB or more": lambda data: data + bytes(1 << 20),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_blob_leaves_the_former_network(fault: str, loaded: Path, files: list[Path]) -> None:
    loader.run(loaded, "swap", str(files[0]))
    files[1].write_bytes(BAD[fault](files[1].read_bytes()))
    done = subprocess.run([loaded / "ndm_bpf", "swap", files[1]], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and fault in done.stderr
    assert running(loaded) == OTHER.hash()


def test_swaps_at_once_follow_each_other(loaded: Path, files: list[Path]) -> None:
    words = [str(loaded / "ndm_bpf"), "swap"]
    started = [subprocess.Popen([*words, path], stdout=subprocess.PIPE) for path in files * 4]
    done = [(process.communicate(timeout=30), process.returncode)[1] for process in started]
    assert set(done) == {0}
    assert running(loaded) in {OTHER.hash(), SHIPPED.hash()}


def test_from_the_command_line(
    loaded: Path, files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    words = ["--folder", str(loaded)]
    assert run_command(["swap", str(run), *words]) == 2
    assert "run: ndm export RUN" in capsys.readouterr().err
    shutil.copy(files[0], run / "ndm_model.blob")
    assert run_command(["swap", str(run), *words, "--json"]) == 0
    [said] = json.loads(capsys.readouterr().out)
    assert (said["before"], said["model_hash"]) == (SHIPPED.hash(), OTHER.hash())
    assert run_command(["bpf", "status", *words]) == 0
    assert f"{OTHER.hash()}, swapped in; built with {SHIPPED.hash()}" in capsys.readouterr().out
    assert run_command(["swap", "--built-in", *words]) == 0
    assert f"network {SHIPPED.hash()} instead of {OTHER.hash()}" in capsys.readouterr().out
    assert run_command(["swap", *words]) == 2
    assert run_command(["swap", str(run), "--built-in", *words]) == 2


def test_another_build_must_not_write(loaded: Path, files: list[Path], tmp_path: Path) -> None:
    """A loader with another network would lay out the slot by another shape."""
    shutil.copytree(ROOT / "kmod", tmp_path / "kmod")
    header = tmp_path / "kmod" / "generated" / "ndm_model.h"
    header.write_text(header.read_text().replace(SHIPPED.hash(), "0" * 16))
    other = build(tmp_path / "built", tmp_path, "ndm_bpf")
    done = subprocess.run([other / "ndm_bpf", "swap", files[0]], capture_output=True, text=True)
    assert done.returncode == 1 and "use the loader that loaded them" in done.stderr
    assert running(loaded) == SHIPPED.hash()


def test_what_the_kernel_computes_decides(
    loadable: Path, alone: None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Programs that read a slot wrongly refuse its network; the built-in one runs on."""
    if PINS.exists():
        subprocess.run([loadable / "ndm_bpf", "unload"], check=True)
        request.addfinalizer(lambda: subprocess.run([loadable / "ndm_bpf", "load"], check=True))
    for folder in ("bpf", "kmod"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    source = tmp_path / "bpf" / "ndm_tcp.bpf.c"
    text, right = source.read_text(), "layer.bias = pair + pairs * layer.n_in;"
    assert text.count(right) == 1
    source.write_text(text.replace(right, "layer.bias = pair;"))
    subprocess.run(["make", "-s", "-B", "-C", tmp_path / "bpf"], check=True)
    blob = tmp_path / "other.blob"
    blob.write_bytes(blobs.of(OTHER))
    program = tmp_path / "bpf" / "ndm_bpf"
    subprocess.run([program, "load"], check=True)
    try:
        done = subprocess.run([program, "swap", blob], capture_output=True, text=True)
        assert done.returncode == 1 and "golden vector" in done.stderr
        assert running(tmp_path / "bpf") == SHIPPED.hash()
    finally:
        subprocess.run([program, "unload"], check=True)
