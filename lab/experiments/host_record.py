# SPDX-License-Identifier: GPL-2.0-only
"""Record transfers of this kernel's TCP over emulated paths, with the truth beside them.

Each table of a plan (TOML) is one transfer and becomes one folder:

    sender.pcap.zst     packets of the flow at the sender's device, ns stamps, headers only
    tcp_probe.txt.zst   kernel events tcp_probe, tcp_cong_state_set, tcp_retransmit_skb of
                        the sending socket, CLOCK_MONOTONIC, without kernel pointers
    ss.txt.zst          `ss -tinOH` about every 40 ms, each after a line of CLOCK_REALTIME
    iperf3.json.zst     the sender's report, without facts about the machine
    drops.csv           packets the path dropped: t_ns (CLOCK_REALTIME), seq, len, cause
    run.toml            the path, the clocks, and the counts that must agree

Both clocks are taken together at the start, in run.toml. Needs root, iperf3, tcpdump, ss, ip
and a kernel with TUN and tracefs; nothing leaves the namespaces made for the transfer.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import orjson

from ndm_tcp import files
from ndm_tcp.datasets.recorder import kernel_events
from ndm_tcp.datasets.recorder.kernel_events import POINTERS
from ndm_tcp.datasets.recorder.record import clocks_ns
from ndm_tcp.errors import NdmError
from ndm_tcp.interrupts import signals_as_exit
from ndm_tcp.lab.experiments.host_path import (
    RECEIVER_ADDRESS,
    SENDER_ADDRESS,
    HostPath,
    LinkSpec,
    path_up,
)
from ndm_tcp.lab.guest.scrub import compress, iperf3_report, toml
from ndm_tcp.lab.paths.scenario import find

EXAMPLE = """example:
  sudo ndm lab host-record lab/plans/training.toml -o out/traces
  sudo ndm lab host-record lab/plans/training.toml -o out/traces --only cubic-00-clean"""

IPERF3_PORT = 5201
SNAPLEN_BYTES = 80  # IPv4, TCP, time stamps and three SACK blocks
SS_PERIOD_S = 0.04
ZSTD_LEVEL = 19
MSS_BYTES = 1448
PLAN_KEYS = {
    *("cc", "seconds", "rate_bps", "rtt_us", "queue_packets", "loss", "jitter_us", "reorder"),
    *("burst_start", "burst_end", "burst_loss", "rate_steps", "seed"),
}


@dataclass(frozen=True)
class Transfer:
    """One table of a plan."""

    name: str
    cc: str
    """congestion control of the sender, as in net.ipv4.tcp_available_congestion_control"""
    seconds: int
    """how long iperf3 sends"""
    link: LinkSpec


def load_plan(plan: Path) -> list[Transfer]:
    """The transfers of a plan.

    Raises:
        NdmError: no such file, not TOML, an unknown or missing key, a senseless value.
    """
    try:
        tables = tomllib.loads(plan.read_text(encoding="utf-8"))
    except OSError as error:
        raise NdmError(
            f"{plan}: {error.strerror}; name a plan, such as lab/plans/training.toml"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NdmError(f"{plan}: not valid TOML ({error}); correct it") from None
    if not tables:
        raise NdmError(f"{plan}: no transfers; add one table [name] per transfer")
    return [_transfer(plan, name, table) for name, table in tables.items()]


def _transfer(plan: Path, name: str, table: Any) -> Transfer:
    where = f"{plan}: [{name}]"
    if not isinstance(table, dict):
        raise NdmError(f"{plan}: {name} stands outside a table; add one table per transfer")
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise NdmError(f"{where}: the name becomes a folder; use letters, digits, . _ -")
    unknown = sorted(set(table) - PLAN_KEYS)
    if unknown:
        raise NdmError(f"{where}: unknown key {unknown[0]}; known: {', '.join(sorted(PLAN_KEYS))}")
    try:
        values = dict(table)
        values["delay_us"] = int(values.pop("rtt_us"))
        cc, seconds = str(values.pop("cc")), int(values.pop("seconds"))
        link = msgspec.convert(values, LinkSpec)
    except KeyError as error:
        raise NdmError(f"{where}: {error.args[0]} is missing; add it") from None
    except (TypeError, ValueError, msgspec.ValidationError) as error:
        raise NdmError(f"{where}: {error}; correct it") from None
    if seconds < 1:
        raise NdmError(f"{where}: seconds must be at least 1, got {seconds}")
    link.check(where)
    return Transfer(name, cc, seconds, link)


# --- one transfer ----------------------------------------------------------------------------
def _inside(namespace: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *words]


@contextlib.contextmanager
def _running(words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose output is taken at the end; it is ended with the block."""
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _event_lines(instance: Path, port: int) -> str:
    """The events of the sending socket, in order of time, without kernel pointers.

    Raises:
        NdmError: the buffer overflowed.
    """
    kernel_events.stop(instance)
    if lost := kernel_events.lost(instance):
        raise NdmError(f"{lost} kernel events lost; shorten the transfer")
    ours = (f"src={SENDER_ADDRESS}:{port} ", f"sport={port} ")
    address = f"saddr={SENDER_ADDRESS} "
    lines = []
    with (instance / "trace").open(encoding="ascii", errors="replace") as stream:
        for line in stream:
            if ours[0] in line or (ours[1] in line and address in line):
                lines.append(POINTERS.sub("", line))
    return "".join(lines)


class SocketPoller(threading.Thread):
    """Runs `ss` on the sending socket again and again."""

    def __init__(self, namespace: str, port: int) -> None:
        super().__init__(daemon=True)
        self.words = ["ss", "-N", namespace, "-tinOH", f"sport = :{port}"]
        self.blocks: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        due_s = time.monotonic()
        while not self.done.is_set():
            before_ns = time.time_ns()
            text = subprocess.run(
                self.words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
            ).stdout
            stamp_ns = (before_ns + time.time_ns()) // 2
            if text:
                self.blocks.append(f"{stamp_ns // 10**9}.{stamp_ns % 10**9:09d}\n{text}")
            due_s = max(due_s + SS_PERIOD_S, time.monotonic())
            self.done.wait(due_s - time.monotonic())

    def finish(self) -> str:
        self.done.set()
        self.join()
        return "".join(self.blocks)


def _wait_listening(namespace: str, server: subprocess.Popen[bytes]) -> None:
    words = ["ss", "-N", namespace, "-tlnH", f"sport = :{IPERF3_PORT}"]
    for _ in range(200):
        if subprocess.run(words, capture_output=True, check=False).stdout:
            return
        if server.poll() is not None:
            break
        time.sleep(0.02)
    raise NdmError("iperf3 server did not start; is iperf3 installed?")


def _wait_capturing(capture: subprocess.Popen[bytes]) -> None:
    assert capture.stderr is not None
    line = capture.stderr.readline()
    if b"listening on" not in line:
        raise NdmError(f"tcpdump: {line.decode(errors='replace').strip() or 'did not start'}")


def _run_toml(
    transfer: Transfer,
    begin_ns: tuple[int, int],
    report: dict[str, Any],
    path: HostPath,
    drops: Path,
) -> str:
    link = transfer.link
    sent, received = (report["end"]["streams"][0][side] for side in ("sender", "receiver"))
    with drops.open(encoding="ascii") as stream:
        causes = [row["cause"] for row in csv.DictReader(stream)]
    run: dict[str, object] = {"name": transfer.name, "cc": transfer.cc}
    run |= {"seconds": transfer.seconds, "rate_bps": link.rate_bps, "rtt_us": link.delay_us}
    run |= {"queue_packets": link.queue_packets, "loss": link.loss}
    run |= {"jitter_us": link.jitter_us, "reorder": link.reorder}
    if link.jitter_us and not link.reorder:
        run["jitter_corr_us"] = link.jitter_corr_us
    if link.burst_start:
        run |= {"burst_start": link.burst_start, "burst_end": link.burst_end}
        run["burst_loss"] = link.burst_loss
    run |= {"rate_steps": link.rate_steps, "seed": link.seed}
    run |= {"mss": int(report["start"].get("tcp_mss_default", MSS_BYTES))}
    run |= {"kernel": os.uname().release}
    run |= {"sender_port": int(report["start"]["connected"][0]["local_port"])}
    truth = {
        "drops_random": causes.count("random"),
        "drops_queue": causes.count("queue"),
        "retransmitted_segments": int(sent["retransmits"]),
        "mean_mbps": round(float(received["bits_per_second"]) / 1e6, 3),
    }
    clock = {"realtime_ns": begin_ns[0], "monotonic_ns": begin_ns[1]}
    parts: list[tuple[str, dict[str, Any]]] = [("", run), ("truth", truth), ("clock", clock)]
    parts.append(("emulator", path.counts))
    text = "# SPDX-License-Identifier: CC0-1.0\n"
    for title, values in parts:
        text += f"\n[{title}]\n" if title else ""
        text += "".join(f"{key} = {toml(value)}\n" for key, value in values.items())
    return text


def record(transfer: Transfer, folder: Path) -> dict[str, Any]:
    """Record one transfer into a folder that is there and empty.

    Returns:
        the contents of run.toml.

    Raises:
        NdmError: a tool is missing or fails.
    """
    port = 20_000 + random.SystemRandom().randrange(10_000)
    capture_file = folder / "sender.pcap"
    drops = folder / "drops.csv"
    # The capture may write as another user, in a folder that only this user may enter.
    with (
        path_up(transfer.link, port, drops) as path,
        kernel_events.recorded(f"host-{os.getpid()}-{port}", f"sport == {port}") as events,
        _running(
            _inside(
                path.sender,
                *("tcpdump", "-i", path.device, "-s", str(SNAPLEN_BYTES), "-n", "-Z", "root"),
                *("--time-stamp-precision=nano", "-B", "8192", "--immediate-mode"),
                *("-w", str(capture_file)),
                f"tcp port {port}",
            )
        ) as capture,
        _running(_inside(path.receiver, "iperf3", "-s", "-1", "-B", RECEIVER_ADDRESS)) as server,
    ):
        _wait_capturing(capture)
        _wait_listening(path.receiver, server)
        begin_ns = clocks_ns()
        poller = SocketPoller(path.sender, port)
        poller.start()
        try:
            words = _inside(
                path.sender,
                *("iperf3", "-c", RECEIVER_ADDRESS, "-B", SENDER_ADDRESS, "--cport", str(port)),
                *("-C", transfer.cc, "-t", str(transfer.seconds), "-i", "0.1", "-J"),
                "--repeating-payload",
            )
            with _running(words) as client:
                output, _ = client.communicate(timeout=transfer.seconds * 2 + 60)
        except subprocess.TimeoutExpired:
            raise NdmError(f"{transfer.name}: iperf3 did not end in time; try again") from None
        finally:
            ss_text = poller.finish()
        last = output.decode(errors="replace").strip().splitlines()[-1:]
        report = iperf3_report(output, "".join(last), transfer.name)
        time.sleep(2 * transfer.link.delay_us / 1e6 + 0.1)
        capture.send_signal(signal.SIGINT)
        _, messages = capture.communicate(timeout=20)
        lost = re.search(rb"(\d+) packets? dropped by kernel", messages)
        if lost and int(lost[1]):
            raise NdmError(f"{transfer.name}: tcpdump lost {int(lost[1])} packets; try again")
        event_text = _event_lines(events, port)
        path.finish()
    compress(folder / "sender.pcap.zst", capture_file.read_bytes(), ZSTD_LEVEL)
    capture_file.unlink()
    compress(folder / "tcp_probe.txt.zst", event_text.encode(), ZSTD_LEVEL)
    compress(folder / "ss.txt.zst", ss_text.encode(), ZSTD_LEVEL)
    compress(folder / "iperf3.json.zst", orjson.dumps(report), ZSTD_LEVEL)
    text = _run_toml(transfer, begin_ns, report, path, drops)
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return tomllib.loads(text)


def record_plan(plan: Path, out: Path, only: str | None = None) -> list[Path]:
    """Record the transfers of a plan, one folder each; finished ones are left as they are.

    Args:
        plan: TOML, one table per transfer.
        out: where the folders go.
        only: name of a single transfer.

    Returns:
        the folders of all (or the one) transfers of the plan.

    Raises:
        NdmError: not root, a bad plan, or a tool is missing or fails.
    """
    transfers = load_plan(plan)
    if only is not None:
        names = [transfer.name for transfer in transfers]
        transfers = [transfer for transfer in transfers if transfer.name == only]
        if not transfers:
            raise NdmError(f"{plan}: no transfer [{only}], there are: {', '.join(names)}")
    if os.geteuid() != 0:
        raise NdmError("recording needs root (namespaces, tracing, capture); run again as root")
    for tool in ("ip", "ss", "iperf3", "tcpdump"):
        if shutil.which(tool) is None:
            raise NdmError(f"{tool}: command not found; install it")
    out.mkdir(parents=True, exist_ok=True)
    for number, transfer in enumerate(transfers, start=1):
        target = out / transfer.name
        head = f"[{number}/{len(transfers)}] {transfer.name}"
        if (target / "run.toml").is_file():
            print(f"{head}: there already", file=sys.stderr)
            continue
        if target.exists():
            raise NdmError(f"{target}: exists without run.toml; remove it")
        # SystemExit from a signal removes the unfinished folder too
        with signals_as_exit(), files.scratch(target) as scratch:
            folder = scratch / "run"
            folder.mkdir()
            truth = record(transfer, folder)["truth"]
            folder.rename(target)
        print(
            f"{head}: {truth['mean_mbps']:.2f} Mbit/s, dropped {truth['drops_random']} at random, "
            f"{truth['drops_queue']} by the queue, retransmitted "
            f"{truth['retransmitted_segments']}",
            file=sys.stderr,
        )
    return [out / transfer.name for transfer in transfers]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm lab host-record`."""
    parser.add_argument("plan", metavar="PLAN", type=Path, help="TOML file, one table per transfer")
    parser.add_argument(
        "-o", "--out", type=files.folder, required=True, help="folder of the recordings"
    )
    parser.add_argument("--only", metavar="NAME", help="record only this transfer")


def main(args: argparse.Namespace) -> int:
    """`ndm lab host-record`."""
    record_plan(find(args.plan), args.out, args.only)
    return 0
