# SPDX-License-Identifier: GPL-2.0-only
"""`ndm dataset record` around a real transfer between two network namespaces."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest

from ndm_tcp.cli import run_command
from ndm_tcp.datasets.readers import capture, mlab, run_folder, streams
from ndm_tcp.datasets.recorder import kernel_events, record
from ndm_tcp.datasets.recorder.inet_diag import Diag
from ndm_tcp.datasets.recorder.record import Wanted
from ndm_tcp.datasets.store import store
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.experiments.host_path import RECEIVER_ADDRESS, LinkSpec, path_up

from .captures import RECEIVER, SENDER, Captured, stamps
from .test_host_record import _cannot_record

LINK = LinkSpec(rate_bps=8_000_000, delay_us=20_000, queue_packets=20, loss=0.005, seed=3)
reason = _cannot_record()
needs_root = pytest.mark.skipif(reason is not None, reason=str(reason))


def test_root_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run_command(["dataset", "record", "-o", str(tmp_path / "x"), "--", "true"]) == 2
    assert "needs root" in capsys.readouterr().err
    assert run_command(["dataset", "record", "-o", str(tmp_path / "x")]) == 2
    assert "nothing to record is named; give -- CMD..., --port or --pid" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_payload_is_cut_off_and_other_connections_left_out(tmp_path: Path) -> None:
    made = Captured(tmp_path / "x.pcap")
    made.data(1_000_000, 1, 600, options=stamps(1, 2))
    made.sender = (SENDER[0], 77)
    made.data(1_000_001, 1, 600)
    source = made.write()
    data = bytearray(source.read_bytes())
    first = 24 + 16 + 52
    data[first:first] = b"secret" * 5
    data[24 + 8 : 24 + 12] = struct.pack("<I", 52 + 30)
    source.write_bytes(data)
    target = tmp_path / "y.zst"
    assert record.keep_headers(source, target, {(SENDER[1], RECEIVER[1])}) == 1
    with streams.open_bytes(target) as stream:
        kept = stream.read()
    assert b"secret" not in kept
    assert kept[24:] == struct.pack("<IIII", 1, 0, 52, 652) + bytes(data[40 : 40 + 52])


@needs_root
def test_a_real_transfer(tmp_path: Path) -> None:
    """The builder reads the folder; capture, tcp_info and the kernel tell the same story."""
    out = tmp_path / "run"
    with path_up(LINK, 24_311, tmp_path / "drops.csv") as path:
        inside = ["ip", "netns", "exec", path.sender]
        server = subprocess.Popen(
            ["ip", "netns", "exec", path.receiver, "iperf3", "-s", "-1", "-B", RECEIVER_ADDRESS],
            stdout=subprocess.DEVNULL,
        )
        try:
            words = [sys.executable, "-m", "ndm_tcp.cli", "dataset", "record", "-o", str(out)]
            transfer = f"sleep 0.5; iperf3 -c {RECEIVER_ADDRESS} --cport 24311 -t 4 -J -C cubic"
            done = subprocess.run(
                [*inside, *words, "--", "sh", "-c", f"{transfer} > {tmp_path}/iperf3.json"],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        finally:
            server.kill()
            server.wait()
        path.finish()
    assert done.returncode == 0, done.stderr
    facts = tomllib.loads((out / "run.toml").read_text())
    assert facts["polls"] > 150 and facts["packets_lost"] == 0
    assert "2 connections" in done.stdout  # iperf3's control connection too
    flows, _ = run_folder.read(out)
    (flow,) = [f for f in flows if f.facts["segments"] > 500]
    report = orjson.loads((tmp_path / "iperf3.json").read_bytes())
    retransmitted = report["end"]["streams"][0]["sender"]["retransmits"]
    assert retransmitted <= flow.facts["retransmitted"] <= retransmitted + 3
    assert flow.facts["retransmitted"] > 0 and flow.cc_name == "cubic"
    polled = max(mlab.read(out / "tcp_info.jsonl.zst"), key=lambda f: len(f.acks))
    assert len(polled.acks) > 100 and polled.cc_name == "cubic"
    medians = [np.median(f.acks["srtt_us"][len(f.acks) // 3 :]) for f in (flow, polled)]
    assert medians[0] == pytest.approx(medians[1], rel=0.05)
    if "no_tcp_probe" not in facts:
        assert flow.cwnd_source.value == "kernel"
    assert run_command(["dataset", "build", str(out), "-o", str(tmp_path / "data")]) == 0
    assert store.load(tmp_path / "data").rounds.num_rows > 50
    for name in ("tcp_info.jsonl.zst", "result.json", "run.toml"):
        with streams.open_bytes(out / name) as stream:
            assert RECEIVER_ADDRESS.encode() not in stream.read()


@needs_root
def test_sockets_of_a_process_or_port(tmp_path: Path) -> None:
    """Over loopback: this test's own sockets, found by its pid."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as peer:
            diag = Diag()
            ends = {(s.port, s.peer_port) for s in diag.sockets()}
            diag.close()
            assert (client.getsockname()[1], port) in ends

            def send() -> None:
                for _ in range(40):
                    client.sendall(bytes(20_000))
                    peer.recv(20_000)
                    threading.Event().wait(0.01)

            sender = threading.Thread(target=send)
            sender.start()
            wanted = Wanted(port=port, pid=os.getpid())
            facts = record.record(tmp_path / "run", [], wanted, 1.0, "lo")
            sender.join()
            other = Wanted(port=port, pid=1)
            with pytest.raises(NdmError, match="no packet of a TCP connection"):
                record.record(tmp_path / "none", [], other, 0.2, "lo")
    assert facts["connections"] == 1 and facts["packets"] > 40
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


@contextlib.contextmanager
def served(ccs: list[bytes]) -> Iterator[int]:
    """Flows from one port of a server, one of each algorithm; they send while it lasts."""
    stop = threading.Event()

    def send(peer: socket.socket, client: socket.socket) -> None:
        while not stop.wait(0.01):
            peer.sendall(bytes(20_000))
            client.recv(20_000)

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        threads = []
        for cc in ccs:
            client = stack.enter_context(socket.create_connection(server.getsockname()))
            peer = stack.enter_context(server.accept()[0])
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, cc)
            threads.append(threading.Thread(target=send, args=(peer, client)))
        for thread in threads:
            thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@needs_root
def test_flows_of_one_port_have_each_their_algorithm(tmp_path: Path) -> None:
    """As on a server: `--port 443` finds all of them, and their own port is the same."""
    with served([b"cubic", b"reno"]) as port:
        record.record(tmp_path / "run", [], Wanted(port=port), 2.0, "lo")
    told = run_folder._cc_by_ports(tmp_path / "run")
    assert sorted(told.values()) == ["cubic", "reno"] and {ends[0] for ends in told} == {port}
    truth = capture.Truth(cc_by_ports=told)
    assert [truth.cc_of((port, peer or 0)) for _, peer in told] == [*told.values()]
    assert truth.cc_of((port, 1)) is None
    polled = mlab.read(tmp_path / "run" / "tcp_info.jsonl.zst")
    assert sorted(str(flow.cc_name) for flow in polled) == ["cubic", "reno"]
    facts = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert "cc" not in facts


def test_sockets_with_the_same_ports_are_not_mixed() -> None:
    """To two addresses: ports of two algorithms name none."""
    seen = record._Seen()
    for cookie, ends, cc in (
        (b"a", (443, 5000), "cubic"),
        (b"b", (443, 5000), "reno"),
        (b"c", (443, 5001), "reno"),
    ):
        seen.sockets[cookie], seen.ccs[cookie] = ends, cc
    assert seen.flows() == [{"port": 443, "peer_port": 5001, "cc": "reno"}]


@needs_root
def test_a_capture_that_ends_early_is_no_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or a device that is gone."""
    real = shutil.which("tcpdump")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tcpdump").write_text(f'#!/bin/sh\nexec timeout -s KILL 1 {real} "$@"\n')
    (tmp_path / "bin" / "tcpdump").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with served([b"cubic"]) as port, pytest.raises(NdmError, match="tcpdump ended before"):
        record.record(tmp_path / "run", [], Wanted(port=port), 4.0, "lo")
    assert not (tmp_path / "run").exists()


def test_a_socket_is_seen_until_its_last_byte() -> None:
    """The peer has closed, this end has, too, and data wait for a reader."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        peer, _ = server.accept()
        peer.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                peer.send(bytes(1 << 20))
        client.shutdown(socket.SHUT_WR)
        ends = (peer.getsockname()[1], client.getsockname()[1])
        peer.close()
        diag = Diag()
        seen = {(s.port, s.peer_port) for s in diag.sockets()}
        diag.close()
    assert ends in seen


@needs_root
def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(NdmError, match="exists already"):
        record.record(tmp_path / "x", ["true"], Wanted())
    assert shutil.which("tcpdump") is None or not list((tmp_path / "x").iterdir())


def _traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *events: str) -> Path:
    """A tracefs of plain folders, whose instances have these events."""
    instances = tmp_path / "instances"
    instances.mkdir()
    whole = tempfile.mkdtemp

    def mkdtemp(prefix: str, dir: Path) -> str:
        made = whole(prefix=prefix, dir=dir)
        for event in events:
            (Path(made) / "events" / event).mkdir(parents=True)
        return made

    monkeypatch.setattr(kernel_events, "TRACING", tmp_path)
    monkeypatch.setattr(kernel_events.tempfile, "mkdtemp", mkdtemp)
    monkeypatch.setattr(kernel_events.Path, "rmdir", shutil.rmtree)
    return instances


def test_an_old_kernel_lacks_events_that_a_recording_can_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = _traced(monkeypatch, tmp_path, kernel_events.PROBE)
    with kernel_events.recorded("x", None) as instance:
        assert (instance / "events" / kernel_events.PROBE / "enable").read_text() == "1"
        assert not any((instance / "events" / event).exists() for event in kernel_events.MORE)
    assert not list(instances.iterdir())


def test_a_kernel_without_tcp_probe_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    instances = _traced(monkeypatch, tmp_path, kernel_events.MORE[1])
    with (
        pytest.raises(kernel_events.NoEventsError, match="tcp_probe"),
        kernel_events.recorded("x", None),
    ):
        pass
    assert not list(instances.iterdir())


def test_what_a_killed_recorder_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else: no instance of a user, and none that a recorder holds."""
    instances = _traced(monkeypatch, tmp_path, kernel_events.PROBE)
    for name in ("ndm-record-7-old", "trace-cmd"):
        (instances / name).mkdir()
    with kernel_events.recorded("record-7", None) as one:
        with kernel_events.recorded("record-7", None) as two:
            assert {p.name for p in instances.iterdir()} == {one.name, two.name, "trace-cmd"}
        assert one.is_dir() and not two.exists()
    assert [p.name for p in instances.iterdir()] == ["trace-cmd"]


needs_tracefs = pytest.mark.skipif(
    os.geteuid() != 0 or not kernel_events.TRACING.is_dir(), reason="not root, or no tracefs"
)


@needs_tracefs
def test_an_instance_that_somebody_reads_ends_no_recording(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel_events, "ATTEMPTS", 2)
    with kernel_events.recorded("read", None) as instance:
        reader = (instance / "trace_pipe").open("rb")
    try:
        assert f"{instance}: still there" in capsys.readouterr().err
        assert (instance / "tracing_on").read_text() == "0\n"
    finally:
        reader.close()
    with kernel_events.recorded("next", None):
        assert not instance.exists(), "nobody holds its lock"


@needs_tracefs
def test_no_event_is_recorded_once_the_capture_has_ended() -> None:
    """Later ones would take the place of the transfer's own."""
    with kernel_events.recorded("stop", None) as instance:
        kernel_events.stop(instance)
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as client,
        ):
            client.sendall(b"x" * 100_000)
        text = (instance / "trace").read_text()
    assert " tcp_probe: " not in text


@needs_root
def test_facts_as_json_are_alone_on_stdout(tmp_path: Path) -> None:
    """Also where the program prints, as iperf3 and curl do."""
    code = "import socket\nprint('Connecting')\ns = socket.create_server(('127.0.0.1', 0))\n"
    code += "c = socket.create_connection(s.getsockname())\nr, _ = s.accept()\n"
    code += (
        "c.sendall(b'x' * 100_000)\nwhile r.recv(1 << 20):\n    break\nimport time\ntime.sleep(.3)"
    )
    cli = "import sys; from ndm_tcp.cli import main; sys.exit(main())"
    words = ["dataset", "record", "--json", "-o", str(tmp_path / "run"), "--"]
    done = subprocess.run(
        [sys.executable, "-c", cli, *words, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert orjson.loads(done.stdout)["packets"] > 0 and "Connecting" in done.stderr


@needs_root
def test_a_program_that_the_recorder_ends_has_not_failed(tmp_path: Path) -> None:
    """Nor does one that does not listen hold the recorder up."""
    code = "import signal, socket, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    code += "s = socket.create_server(('127.0.0.1', 0))\n"
    code += "c = socket.create_connection(s.getsockname())\nr, _ = s.accept()\n"
    code += "while True:\n    c.sendall(b'x' * 1000)\n    r.recv(1000)\n    time.sleep(.01)\n"
    words = ["dataset", "record", "-o", str(tmp_path / "run"), "--seconds", "1.5"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "END_S", 0.5)
        assert run_command([*words, "--", sys.executable, "-c", code]) == 0
    facts = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert facts["stopped"] is True and "exit_code" not in facts
    words[3] = str(tmp_path / "failed")
    failing = code.split("while")[0] + "c.sendall(b'x')\ntime.sleep(.3)\nraise SystemExit(3)"
    assert run_command([*words, "--", sys.executable, "-c", failing]) == 3
