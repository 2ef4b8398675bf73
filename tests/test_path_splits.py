# SPDX-License-Identifier: GPL-2.0-only
"""Flows of one path are in one split, whatever source they come from; no address is kept."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from ndm_tcp.datasets.builder import build
from ndm_tcp.datasets.readers import run_folder
from ndm_tcp.datasets.rounds.flow import host_pair
from ndm_tcp.datasets.store import store

from .captures import Captured
from .conftest import TRACES
from .test_field_captures import read
from .test_field_logs import START, interval, record, report


def transfer(path: Path, host: int, port: int, n: int = 80) -> Captured:
    """From 10.0.0.host to 10.0.0.2."""
    made = Captured(path, (bytes([10, 0, 0, host]), port))
    first = host * 10**6 + port * 1000  # as two connections never share it
    made.handshake(1_000_000, 1_020_000, 1_020_050, first)
    made.transfer(1_021_000, n + port % 50 + host, first + 1)
    return made.sort()


def merged(path: Path, flows: list[Captured]) -> Path:
    made = Captured(path)
    made.records = [record for flow in flows for record in flow.records]
    return made.sort().write()


def splits(out: Path) -> dict[str, str]:
    table = store.load(out).rounds
    return dict(zip(table["flow_id"].to_pylist(), table["split"].to_pylist(), strict=True))


def test_flows_between_the_same_hosts_are_in_one_split(tmp_path: Path) -> None:
    """In one capture, in another one, and in logs of ss and iperf3."""
    hosts = range(11, 21)
    flows = [transfer(tmp_path / "x", host, port) for host in hosts for port in (3000, 3001, 3002)]
    merged(tmp_path / "all.pcap", flows)
    for host in hosts:
        transfer(tmp_path / f"{host}.pcap", host, 3003).write()
        log = "".join(f"{1_700_000_000 + k}.5\n{record(k + 1)}" for k in range(40))
        (tmp_path / f"{host}.txt").write_text(log.replace("10.0.0.1:", f"[::ffff:10.0.0.{host}]:"))
        ends = {"socket": 5, "local_host": f"10.0.0.{host}", "remote_host": "10.0.0.2"}
        document = report([interval(k) for k in range(12)]) | {
            "start": START | {"connected": [ends]}
        }
        document["end"] = {"sender_tcp_congestion": "cubic", "host": host}
        (tmp_path / f"{host}.json").write_text(json.dumps(document))
    manifest = build.build([tmp_path], tmp_path / "out", quiet=True)
    assert manifest["flows"] == 10 * 6 and set(manifest["splits"]) == {"train", "val", "test"}
    found = splits(tmp_path / "out")
    of_source = {s["name"]: [f["flow_id"] for f in s["flows"]] for s in manifest["sources"]}
    for k, host in enumerate(hosts):
        names = (f"{host}.pcap", f"{host}.txt", f"{host}.json")
        flows_of_host = [flow for name in names for flow in of_source[name]]
        flows_of_host += of_source["all.pcap"][3 * k : 3 * k + 3]
        assert len({found[flow] for flow in flows_of_host}) == 1, host


def test_a_capture_of_one_path_only_trains(tmp_path: Path) -> None:
    flows = [transfer(tmp_path / "x", 11, 3000 + k) for k in range(9)]
    merged(tmp_path / "all.pcap", flows)
    manifest = build.build([tmp_path / "all.pcap"], tmp_path / "out", quiet=True)
    assert manifest["splits"] == {"train": 9}


def test_no_name_of_a_path_is_left_in_a_dataset(tmp_path: Path) -> None:
    merged(tmp_path / "all.pcap", [transfer(tmp_path / "x", 11 + k, 3000) for k in range(5)])
    build.build([tmp_path / "all.pcap"], tmp_path / "out", quiet=True)
    for k in range(5):
        name = host_pair(f"10.0.0.{11 + k}", "10.0.0.2").encode()
        for path in (tmp_path / "out").iterdir():
            assert name[:12] not in path.read_bytes(), path.name
    assert b'"group"' not in (tmp_path / "out" / store.MANIFEST).read_bytes()


def test_names_of_paths() -> None:
    pair = host_pair("10.0.0.1", "10.0.0.2")
    assert (
        pair == host_pair(b"\x0a\0\0\2", b"\x0a\0\0\1") == host_pair("::ffff:10.0.0.2", "10.0.0.1")
    )
    assert pair != host_pair("10.0.0.1", "10.0.0.3")
    assert host_pair("fe80::1%eth0", "fe80::2") == host_pair("fe80::2", "fe80::1")
    assert host_pair("one.example", "b") == host_pair("b", "one.example")


def test_recorded_runs_of_one_link_are_in_one_split(tmp_path: Path) -> None:
    names = sorted(p for p in TRACES.iterdir() if run_folder.is_run(p))[::2]
    build.build(names, tmp_path / "out", jobs=2, quiet=True)
    table = store.load(tmp_path / "out").rounds
    of_path: dict[str, set[str]] = {}
    for path, split in zip(table["path"].to_pylist(), table["split"].to_pylist(), strict=True):
        if path:
            of_path.setdefault(path, set()).add(split)
    assert len(of_path) > 10 and all(len(found) == 1 for found in of_path.values())


# --- a capture that does not see what the kernel saw -----------------------------------------
@pytest.mark.parametrize("clock", [True, False])
def test_a_run_behind_a_shaper_of_its_own_is_refused(tmp_path: Path, clock: bool) -> None:
    """The kernel waits 40 ms for an ACK that the capture sees after 4 us."""
    run = tmp_path / "run"
    run.mkdir()
    made = Captured(run / "sender.pcap")
    made.handshake(1_000_000, 1_000_004, 1_000_008)
    made.transfer(1_001_000, 150, rtt_us=4)
    flows, _, _ = read(made.sort())
    assert len(flows) == 1
    event = (
        "x-1 [001] ..s. {}: tcp_probe: family=AF_INET src=10.0.0.1:1000 dest=10.0.0.2:2000 "
        "mark=0x0 data_len=0 snd_nxt={:#x} snd_una={:#x} snd_cwnd=10 ssthresh=9 snd_wnd=65160 "
        "srtt={} rcv_wnd=29312 sock_cookie=5\n"
    )
    for srtt_us, kept in ((41_000, 0), (900, 1)):
        lines = [
            event.format(f"1.{1000 + k * 1000:06d}", k * 1000 + 4000, k * 1000, srtt_us)
            for k in range(150)
        ]
        (run / "tcp_probe.txt").write_text("".join(lines))
        if clock:
            (run / "clock.txt").write_text("1.0 1.0\n")
        flows, skipped = run_folder.read(run)
        assert len(flows) == kept and ("shaper" in str(skipped)) == (not kept)


@pytest.mark.parametrize("name", ["lab/train-03-loss--cubic--1", "cubic-03-lossy"])
def test_a_run_reads_the_same_when_all_its_files_are_compressed(name: str, tmp_path: Path) -> None:
    small = tmp_path / Path(name).name
    small.mkdir()
    for path in (TRACES / name).iterdir():
        packed = path.suffix in (".zst", ".gz")
        data = path.read_bytes() if packed else gzip.compress(path.read_bytes())
        (small / (path.name if packed else f"{path.name}.gz")).write_bytes(data)
    assert (small / "run.toml.gz").exists()
    (one,), (other,) = (run_folder.read(folder)[0] for folder in (TRACES / name, small))
    assert one.flow_id == other.flow_id and one.truth == other.truth and one.facts == other.facts
    assert (one.cc_name, one.path) == (other.cc_name, other.path)
    assert np.array_equal(one.acks, other.acks)


def test_so_is_one_that_only_has_tcp_info(tmp_path: Path) -> None:
    from .test_poll_formats import _tcp_info, _tcp_info_file

    run = tmp_path / "run"
    run.mkdir()
    made = Captured(run / "sender.pcap")
    made.handshake(1_000_000, 1_000_004, 1_000_008)
    made.transfer(1_001_000, 150, rtt_us=4)
    made.sort().write()
    for rtt_us, kept in ((41_000, 0), (900, 1)):
        infos = [_tcp_info(232, mss=1000, cwnd=10 + k, rtt=rtt_us, delivered=k) for k in range(9)]
        _tcp_info_file(run / "tcp_info.jsonl", infos)
        assert len(run_folder.read(run)[0]) == kept


def test_shipped_runs_see_what_their_kernel_saw() -> None:
    for name in ("bbr-00-clean", "cubic-07-jitter", "reno-09-burst"):
        flows, skipped = run_folder.read(TRACES / name)
        assert len(flows) == 1 and not skipped
