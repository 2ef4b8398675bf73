# SPDX-License-Identifier: GPL-2.0-only
"""One run of a scenario in the lab's kernel: the real TCP stack in virtual time.

    path: senders s0, s1 .. -- router r -- delay m -- receiver d, each a network namespace
        r  bottleneck towards m: tbf of one packet's burst over a queue of packets
        m  netem towards d: half of the RTT, jitter, loss; towards r: the other half
    lo:   one host, netem and tbf on its loopback device

Loss by netem and loss by the queue happen on different devices of a path, so every dropped
packet has a certain cause. On the loopback device the cause is told by the way the packet took
out of the kernel; where netem's own queue was full, it counts as the queue's.

A run is a function of scenario, algorithm, seed, kernel and module: all its files but
`wall_s` in result.json are the same in every repetition on a machine, and what a light run
measures is what the whole one measures.

    scenario.toml       as given              run.toml           facts; for the dataset builder
    sender.pcap.zst     packets at senders    tcp_probe.txt.zst  the kernel's events of them
    tcp_info.jsonl.zst  state of each flow    drops.csv          every lost packet and why
    qdisc.csv.zst       queues and counters   iperf3.json.zst    and iperf3.N.json.zst per flow
    result.json         what came out of it   kernel.log         what the kernel printed
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import fcntl
import io
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import zstandard

from ndm_tcp.errors import NdmError
from ndm_tcp.lab import scenario as scenarios
from ndm_tcp.lab import uml_build
from ndm_tcp.lab.host_record import POINTERS
from ndm_tcp.lab.hostpath import signals_as_exit
from ndm_tcp.lab.scenario import UNDER_TEST, Link, Scenario

EXAMPLE = """example:
  ndm lab run lab/scenarios/published/b-jitter-loss-rate.toml --cc ndm_tcp --seed 1 -o out/b"""

FIRST_PORT = 20_001
"""port at the sender of the first flow; the next have the next ones"""
WEB_PORT = 20_901
SERVER_PORT = 5201
POLL_US = 10_000
START_NS = 1_700_000_000_000_000_000
"""CLOCK_REALTIME when the guest boots"""
SETTLE_S = 1.0
"""from the servers' start to the first flow"""
TOOLS = {"iperf3": "iperf3", "ip": "iproute2", "tc": "iproute2", "taskset": "util-linux"}
TOOLS |= {"setarch": "util-linux", "insmod": "kmod", "gcc": "gcc"}
EVENTS = ("tcp_probe", "tcp_cong_state_set", "tcp_retransmit_skb")
MARK = "NDM-LAB"
TROUBLE = re.compile(
    r"WARNING:|BUG:|Oops|Kernel panic|Call Trace|general protection|^(Command failed|Error: )"
)
COMMAND_LINE = (
    *("mem=2G", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"),
    *("init=/proc/self/cwd/init.sh", "con=null", "con0=null,fd:1", "ipv6.disable=1"),
    *("time-travel=inf-cpu", f"time-travel-start={START_NS}", "panic=-1", "thash_entries=512"),
)
"""Constant: the kernel stirs it into its random numbers."""
MAC = "02:00:00:00:00:01"  # of both ends of every wire: without ARP they must be the same
COALESCE_US = 3000
"""how long the receiving program lets data gather before it reads; see lab/uml/patience.c"""
PATIENCE = "LD_PRELOAD=/run/host/patience"
ZSTD_LEVEL = 9
SOCKET_RECORD = struct.Struct("<QHHHH")
QUEUE_RECORD = struct.Struct("<Q16s16s7IQ")
DROP_RECORD = struct.Struct("<QIHHHHII16s")
TCP_INFO = struct.Struct("<8B24I4Q6I4Q2I2Q")
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 80, 101)


# --- the guest's plan ------------------------------------------------------------------------
def _percent(chance: float) -> str:
    return f"{chance * 100:.7f}%"


def _netem(link: Link, delay_us: float, forward: bool) -> str:
    """netem's words for one direction."""
    words = f"limit 1000000 delay {delay_us:g}us"
    if forward and link.jitter_us:
        words += f" {link.jitter_us}us"
        if link.jitter_distribution != "uniform":
            words += f" distribution {link.jitter_distribution}"
        if not link.reorder:
            words += " rate 1000gbit"  # with a rate, netem lets nobody overtake
    loss = link.loss if forward else link.ack_loss
    if forward and link.burst:
        burst = link.burst
        chances = (burst.start, burst.end, burst.loss, link.loss)
        words += " loss gemodel " + " ".join(map(_percent, chances))
    elif loss:
        words += f" loss random {_percent(loss)}"
    return words


def _bottleneck(link: Link, verb: str, rate_bps: int) -> str:
    """tc's line for the device of the bottleneck, which counts IP packets, not frames.

    tbf hands its `limit` to a child that is a fifo at every change, and uses it for nothing
    else: so it is the queue's length in packets.
    """
    if link.qdisc == "cake":
        return (
            f"qdisc {verb} dev b0 root handle 1: cake bandwidth {rate_bps}bit overhead 0 besteffort"
        )
    words = f"tbf rate {rate_bps}bit burst 1600 limit {link.queue_packets}"
    return f"qdisc {verb} dev b0 root handle 1: {'stab overhead -14 ' * (verb == 'add')}{words}"


def _leaf(link: Link) -> list[str]:
    packets = link.queue_packets
    kinds = {"droptail": f"pfifo limit {packets}", "fq_codel": f"fq_codel limit {packets}"}
    kinds["fq"] = f"fq limit {packets} flow_limit {packets}"
    if link.qdisc == "cake":
        return []
    return [f"qdisc add dev b0 parent 1:1 handle 10: {kinds[link.qdisc]}"]


def _wire(here: tuple[str, str], there: tuple[str, str]) -> str:
    """A veth pair; (name, namespace) of both ends. One segment is one packet."""
    ends = [f"{name} netns {space} address {MAC} arp off" for name, space in (here, there)]
    return f"link add {ends[0]} gso_max_segs 1 type veth peer name {ends[1]}"


def _path_batches(scenario: Scenario) -> dict[str, str]:
    """File to contents: what `ip -batch` and `tc -batch` do, per namespace."""
    link = scenario.link
    assert link is not None
    count = scenario.senders()
    spaces = [*(f"s{i}" for i in range(count)), "r", "m", "d"]
    root = [f"netns add {space}" for space in spaces]
    root += [_wire((f"s{i}", f"s{i}"), (f"r{i}", "r")) for i in range(count)]
    root += [_wire(("b0", "r"), ("b1", "m")), _wire(("m0", "m"), ("d0", "d"))]
    ip: dict[str, list[str]] = {space: ["link set lo up"] for space in spaces}

    def address(space: str, device: str, value: str) -> None:
        ip[space] += [f"addr add {value}/24 dev {device}", f"link set {device} up"]

    for i in range(count):
        address(f"s{i}", f"s{i}", f"10.1.{i}.2")
        address("r", f"r{i}", f"10.1.{i}.1")
        ip[f"s{i}"].append(f"route add default via 10.1.{i}.1")
    address("r", "b0", "10.2.0.1")
    address("m", "b1", "10.2.0.2")
    address("m", "m0", "10.3.0.1")
    address("d", "d0", "10.3.0.2")
    ip["r"].append("route add default via 10.2.0.2")
    ip["m"].append("route add default via 10.2.0.1")
    ip["d"].append("route add default via 10.3.0.1")
    half_us = link.rtt_us / 2
    tc = {"r": [_bottleneck(link, "add", link.rate_bps), *_leaf(link)], "m": []}
    for number, flow in enumerate(scenario.flows):
        first = all(flow.sender != other.sender for other in scenario.flows[:number])
        if first and flow.extra_rtt_us:
            netem = f"limit 1000000 delay {flow.extra_rtt_us}us"
            tc["r"].append(f"qdisc add dev r{flow.sender} root handle 1: netem {netem}")
    tc["m"].append(f"qdisc add dev m0 root handle 1: netem {_netem(link, half_us, True)}")
    tc["m"].append(f"qdisc add dev b1 root handle 1: netem {_netem(link, half_us, False)}")
    files = {"net.ip": root} | {f"{space}.ip": lines for space, lines in ip.items()}
    files |= {f"{space}.tc": lines for space, lines in tc.items()}
    files["steps"] = [f"{at_s:f} {_bottleneck(link, 'change', bps)}" for at_s, bps in link.steps]
    return {name: "\n".join(lines) + "\n" for name, lines in files.items()}


def _places(scenario: Scenario) -> tuple[list[str], str, list[str]]:
    """Namespaces of the senders, of the receiver, and of the queues."""
    if scenario.topology == "lo":
        return ["-"], "-", ["-"]
    return [f"s{i}" for i in range(scenario.senders())], "d", ["r", "m"]


def _addresses(scenario: Scenario, sender: int) -> tuple[str, str]:
    """(sender's, receiver's)"""
    if scenario.topology == "lo":
        return "127.0.0.1", "127.0.0.1"
    return f"10.1.{sender}.2", "10.3.0.2"


def _network_lines(scenario: Scenario) -> list[str]:
    if scenario.lo:
        lines = ["ip link set lo up"]
        lines.append(f"tc qdisc add dev lo root handle 1: netem {scenario.lo.netem}")
        if scenario.lo.tbf:
            lines.append(f"tc qdisc add dev lo parent 1: handle 10: tbf {scenario.lo.tbf}")
        return lines
    senders, receiver, _ = _places(scenario)
    lines = ["ip -batch /run/host/net.ip"]
    lines += [f"ip -n {n} -batch /run/host/{n}.ip" for n in (*senders, "r", "m", receiver)]
    lines += [f"guest in {n} tc -batch /run/host/{n}.tc" for n in ("r", "m")]
    forward = "echo 1 >/proc/sys/net/ipv4/ip_forward"
    lines += [f"guest in {n} sh -c {shlex.quote(forward)}" for n in ("r", "m")]
    return lines


def _buffer_lines(scenario: Scenario) -> list[str]:
    send, receive = 4_194_304, 6_291_456
    if scenario.host.buffer_bytes:
        send = receive = scenario.host.buffer_bytes
    words = f"echo 4096 16384 {send} >/proc/sys/net/ipv4/tcp_wmem; "
    words += f"echo 4096 131072 {receive} >/proc/sys/net/ipv4/tcp_rmem; "
    words += "echo 1 >/proc/sys/net/ipv4/tcp_no_metrics_save"
    senders, receiver, _ = _places(scenario)
    spaces = dict.fromkeys([*senders, receiver])
    return [f"guest in {space} sh -c {shlex.quote(words)}" for space in spaces]


def _trace_kb(scenario: Scenario) -> int:
    """Room for an event per data packet and some more, KiB."""
    rate_bps = scenario.link.rate_bps if scenario.link else 200_000_000
    packet_bytes = 1500 if scenario.link else 20_000
    events = rate_bps / 8 / packet_bytes * scenario.end_s()
    return int(min(max(8_192, events * 250 / 1024), 524_288))


def _trace_lines(scenario: Scenario, light: bool, events: tuple[str, ...] = ()) -> list[str]:
    """The same commands for both: their number moves the guest's clock and random numbers."""
    tracing = "/sys/kernel/tracing"
    lines = [f"echo {8_192 if light else _trace_kb(scenario)} >{tracing}/buffer_size_kb"]
    lines.append(f"echo mono >{tracing}/trace_clock")
    for event in EVENTS:
        folder = f"{tracing}/events/tcp/{event}"
        lines.append(f"echo 'sport >= {FIRST_PORT} && sport < {FIRST_PORT + 999}' >{folder}/filter")
        lines.append(f"echo {int(not light)} >{folder}/enable")
    lines += [f"echo 1 >{tracing}/events/{event}/enable" for event in events]
    return lines


def _traffic_lines(scenario: Scenario, cc: str) -> list[str]:
    """Servers, then flows at their times, all in the background; then wait for the flows."""
    senders, receiver, _ = _places(scenario)
    lines, clients = [], []
    for number, flow in enumerate(scenario.flows):
        source, sink = _addresses(scenario, flow.sender)
        port = SERVER_PORT + number
        lines.append(
            f"guest in {receiver} env {PATIENCE} NDM_COALESCE_US={COALESCE_US} "
            f"iperf3 -s -1 -4 -B {sink} -p {port} >server.{number} 2>&1 &"
        )
        algorithm = cc if flow.cc == UNDER_TEST else flow.cc
        amount = f"-n {flow.bytes}" if flow.bytes else f"-t {flow.seconds:g}"
        words = f"env {PATIENCE} iperf3 -4 -c {sink} -p {port} -B {source}"
        words += f" --cport {FIRST_PORT + number} -C {algorithm} {amount}"
        words += " -i 1 -J --repeating-payload --connect-timeout 60000"
        clients.append((flow.start_s, f"guest in {senders[flow.sender]} {words}", f"flow.{number}"))
    if scenario.web:
        web = scenario.web
        source, _ = _addresses(scenario, web.sender)
        algorithm = cc if web.cc == UNDER_TEST else web.cc
        lines.append(f"guest in {senders[web.sender]} guest serve {WEB_PORT} {algorithm} &")
        words = f"fetch {source} {WEB_PORT} {web.objects} {web.bytes} {web.connections}"
        clients.append((web.start_s, f"guest in {receiver} guest {words}", "web"))
    lines.append(f"sleep {SETTLE_S}")
    lines.append("guest clock >clock")
    for start_s, command, output in clients:
        lines.append(
            f'( sleep {start_s:g}; {command} >{output} 2>{output}.err ) & flows="$flows $!"'
        )
    if scenario.link and scenario.link.steps:
        lines.append("guest in r sh -c 'guest at /run/host/steps | tc -batch -' &")
    lines.append("for flow in $flows; do wait $flow || true; done")
    return lines


def _plan(
    scenario: Scenario,
    cc: str,
    modules: list[tuple[str, dict[str, Any]]],
    light: bool,
    events: tuple[str, ...] = (),
) -> str:
    """The guest's script; it runs with `set -e`."""
    senders, _, routers = _places(scenario)
    lines = [f'fail() {{ echo {MARK} error: "$@"; exit 1; }}']
    prefix = "lo" if scenario.topology == "lo" else "s"
    lines.append(
        f"insmod /run/host/ndm_watch.ko sender={prefix} capture={int(not light)} "
        "|| fail the lab\\'s own module ndm_watch does not load"
    )
    for name, parameters in modules:
        words = " ".join(shlex.quote(f"{key}={value}") for key, value in parameters.items())
        lines.append(f"insmod /run/host/{name}.ko {words} || fail module {name} does not load")
    available = "/proc/sys/net/ipv4/tcp_available_congestion_control"
    for name in scenario.algorithms(cc):
        lines.append(
            f"grep -qw -e {name} {available} || "
            f"fail no algorithm {name}, there are: $(cat {available})"
        )
    lines += _network_lines(scenario) + _buffer_lines(scenario)
    lines.append("cat /sys/module/ndm_tcp/parameters/model_hash >model 2>/dev/null || true")
    lines += _trace_lines(scenario, light, events)
    spaces = f"sockets.bin {','.join(senders)} queues.bin {','.join(routers)}"
    lines.append(f"guest poll {POLL_US} {spaces} & poller=$!")
    lines += _traffic_lines(scenario, cc)
    rtt_s = scenario.link.rtt_us / 1e6 if scenario.link else 0.5
    lines.append(f"sleep {2 * rtt_s + 0.1:g}")
    lines += ["kill $poller", "wait $poller", "guest clock >clock.end"]
    out = "/run/host/out"
    if not light:
        lines.append("echo 0 >/sys/kernel/tracing/tracing_on")
        lines.append("cat /sys/kernel/tracing/per_cpu/cpu0/stats >trace.stats")
        lines.append(f"cat /sys/kernel/tracing/trace >{out}/trace")
        lines.append(f"cat /proc/ndm_capture >{out}/capture || fail the capture is too large")
    lines.append(f"cat /proc/ndm_drops >{out}/drops || fail too many drops")
    return "\n".join(lines) + "\n"


# --- the kernel as a process -----------------------------------------------------------------
@contextlib.contextmanager
def _one_cpu(cpu: int | None) -> Iterator[int]:
    """The CPU to use: the given one, or one that no other run uses, while there is one."""
    allowed = sorted(os.sched_getaffinity(0))
    if cpu is not None:
        if cpu not in allowed:
            raise NdmError(f"cpu {cpu}: not one of {', '.join(map(str, allowed))}")
        yield cpu
        return
    folder = uml_build.cache() / "cpus"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        chosen = allowed[os.getpid() % len(allowed)]
        for candidate in reversed(allowed):
            lock = stack.enter_context((folder / str(candidate)).open("w"))
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                chosen = candidate
                break
        yield chosen


def start_kernel(
    work: Path, seed: int, cpu: int, extra: tuple[str, ...] = ()
) -> subprocess.Popen[bytes]:
    """Start the kernel on a folder with init.sh, guest and plan.sh; it prints to stdout.

    Args:
        extra: more words for the kernel's command line, such as module parameters.
    """
    kernel, programs = uml_build.build(quiet=True), uml_build.build_programs()
    shutil.copy(programs.guest, work / "guest")
    shutil.copy(programs.patience, work / "patience")
    shutil.copy(uml_build.RECIPE / "init.sh", work / "init.sh")
    (work / "init.sh").chmod(0o755)
    (work / "out").mkdir()
    words = ["setarch", "-R", "taskset", "-c", str(cpu), str(kernel.vmlinux)]
    # Nothing of this process's environment: it would move the kernel's stack.
    env = {"NDM_SEED": f"{seed:020d}", "LD_PRELOAD": str(programs.getrandom), "HOME": "."}
    env["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    return subprocess.Popen(
        [*words, *COMMAND_LINE, *extra],
        cwd=work,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def session_members(session: int) -> list[int]:
    """The processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            state, _, _, number = fields.rpartition(")")[2].split()[:4]
            if int(number) == session and state not in "ZX":
                found.append(int(folder.name))
    return found


def end_kernel(process: subprocess.Popen[bytes]) -> None:
    """Kill a kernel, if it still runs, and the processes inside it.

    These have process groups of their own, but the session that was begun for the kernel.
    """
    if process.poll() is not None:
        return
    process.kill()
    patience_s = time.monotonic() + 5
    while (left := session_members(process.pid)) and time.monotonic() < patience_s:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()


def boot(
    work: Path, seed: int, cpu: int | None, limit_s: float, extra: tuple[str, ...] = ()
) -> str:
    """Run the kernel to its end; what it printed.

    Raises:
        NdmError: it takes longer than `limit_s`, s of wall time.
    """
    with _one_cpu(cpu) as chosen:
        process = start_kernel(work, seed, chosen, extra)
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            end_kernel(process)
            output = process.communicate()[0]
            last = uml_build.last_lines(output.decode(errors="replace"), 3)
            raise NdmError(f"no end within {limit_s:g} s; the guest's last words: {last}") from None
        finally:
            end_kernel(process)
    return output.decode(errors="replace").replace("\r", "")


def verdict(log: str) -> str | None:
    """What went wrong in the guest, or None if it came to its end."""
    if re.search(rf"^{MARK} end$", log, re.MULTILINE):
        return None
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    at = next((n for n, line in enumerate(lines) if line.startswith(f"{MARK} error: ")), None)
    if at is not None:
        said = [line for line in lines[max(at - 2, 0) : at] if re.search("insmod|golden", line)]
        cause = f" ({'; '.join(said)})" if said else ""
        return lines[at].removeprefix(f"{MARK} error: ") + cause
    panic = [line for line in lines if "Kernel panic" in line]
    said = [line for line in lines if not line.startswith(MARK)]
    return (panic or [" | ".join(said[-3:])])[0] or "the kernel printed nothing"


# --- what it leaves --------------------------------------------------------------------------
INFO_FIELDS = (
    *("state", "ca_state", "retransmits", "probes", "backoff", "options", "wscale", "flags"),
    *("rto_us", "ato_us", "snd_mss", "rcv_mss", "unacked", "sacked", "lost", "retrans"),
    *("fackets", "last_data_sent", "last_ack_sent", "last_data_recv", "last_ack_recv", "pmtu"),
    *("rcv_ssthresh", "srtt_us", "rttvar_us", "ssthresh", "cwnd", "advmss", "reordering"),
    *("rcv_rtt_us", "rcv_space", "total_retrans", "pacing_Bps", "max_pacing_Bps"),
    *("bytes_acked", "bytes_received", "segs_out", "segs_in", "notsent_bytes", "min_rtt_us"),
    *("data_segs_in", "data_segs_out", "delivery_Bps", "busy_us", "rwnd_limited_us"),
    *("sndbuf_limited_us", "delivered", "delivered_ce", "bytes_sent", "bytes_retrans"),
)
KEPT = (
    *("state", "ca_state", "cwnd", "ssthresh", "srtt_us", "rttvar_us", "min_rtt_us", "rto_us"),
    *("snd_mss", "unacked", "sacked", "lost", "retrans", "total_retrans", "reordering"),
    *("bytes_acked", "bytes_sent", "bytes_retrans", "delivered", "delivered_ce"),
    *("segs_out", "data_segs_out", "pacing_Bps", "delivery_Bps", "notsent_bytes"),
    *("busy_us", "rwnd_limited_us", "sndbuf_limited_us"),
)
ESTABLISHED = 1


@dataclass(frozen=True)
class Polls:
    """tcp_info of one socket over time; int64 [polls] each."""

    t_ns: np.ndarray[Any, np.dtype[np.int64]]
    """CLOCK_REALTIME"""
    values: dict[str, np.ndarray[Any, np.dtype[np.int64]]]


def _read_sockets(data: bytes) -> list[dict[str, int]]:
    rows, at = [], 0
    while at + SOCKET_RECORD.size <= len(data):
        t_ns, sport, dport, _, length = SOCKET_RECORD.unpack_from(data, at)
        at += SOCKET_RECORD.size
        info = dict(zip(INFO_FIELDS, TCP_INFO.unpack_from(data, at), strict=True))
        at += length
        row = {"t_ns": t_ns, "sport": sport, "dport": dport}
        row |= {name: info[name] for name in KEPT} | {"app_limited": info["flags"] & 1}
        rows.append(row)
    return rows


def _polls(rows: list[dict[str, int]], port: int) -> Polls | None:
    """The polls of the established socket at a port of the sender."""
    ours = [row for row in rows if row["sport"] == port and row["bytes_sent"]]
    if not ours:
        return None
    columns = {name: np.array([row[name] for row in ours], dtype=np.int64) for name in ours[0]}
    return Polls(columns.pop("t_ns"), columns)


def _queue_table(data: bytes) -> str:
    table = io.StringIO()
    names = "device,kind,handle,qlen,backlog,drops,overlimits,requeues,packets,bytes"
    table.write(f"t_ns,{names}\n")
    for t_ns, device, kind, handle, *counts in QUEUE_RECORD.iter_unpack(data):
        texts = [name.rstrip(b"\0").decode() for name in (device, kind)]
        table.write(",".join(map(str, [t_ns, *texts, f"{handle >> 16:x}:", *counts])) + "\n")
    return table.getvalue()


def _drop_cause(scenario: Scenario, device: str, at_root: bool, full: bool) -> str:
    if scenario.topology == "path":
        return "queue" if device == "b0" else "random"
    # What netem loses leaves through the root discipline's enqueue, like what finds its
    # queue full; what its child drops leaves inside its dequeue.
    return "random" if at_root and not full else "queue"


def _drop_rows(
    scenario: Scenario, data: bytes, qdisc_drop: int
) -> list[tuple[int, int, int, str, int]]:
    rows = []
    for t_ns, seq, length, sport, _, reason, qlen, limit, name in DROP_RECORD.iter_unpack(data):
        device = name.rstrip(b"\0").decode()
        full = 0 < limit <= qlen
        cause = _drop_cause(scenario, device, reason == qdisc_drop, full)
        rows.append((t_ns, seq, length, cause, sport))
    return rows


def _compress(path: Path, data: bytes) -> None:
    path.write_bytes(zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data))


def _report(data: bytes, errors: str, name: str) -> dict[str, Any]:
    """iperf3's report without facts about the machine."""
    try:
        report = orjson.loads(data)
    except orjson.JSONDecodeError:
        said = uml_build.last_lines(errors) or "no output"
        raise NdmError(f"{name}: iperf3 gave no report: {said}") from None
    if "error" in report:
        raise NdmError(f"{name}: iperf3: {report['error']}")
    for key in ("system_info", "cookie"):
        report["start"].pop(key, None)
    report["end"].pop("cpu_utilization_percent", None)
    assert isinstance(report, dict)
    return report


def _rounded(value: float, digits: int = 3) -> float:
    return round(float(value), digits)


def _flow_result(
    flow: scenarios.Flow,
    cc: str,
    port: int,
    report: dict[str, Any],
    polls: Polls | None,
    t0_ns: int,
) -> dict[str, Any]:
    end = report["end"]
    sent, received = end["sum_sent"], end["sum_received"]
    intervals = [part["sum"] for part in report["intervals"] if not part["sum"].get("omitted")]
    result: dict[str, Any] = {
        "cc": cc if flow.cc == UNDER_TEST else flow.cc,
        "sender": flow.sender,
        "port": port,
        "start_s": flow.start_s,
        "seconds": _rounded(sent["seconds"]),
        "goodput_mbps": _rounded(received["bits_per_second"] / 1e6),
        "sent_mbps": _rounded(sent["bits_per_second"] / 1e6),
        "bytes": int(received["bytes"]),
        "retransmissions": int(sent["retransmits"]),
        "intervals": len(intervals),
        "zero_intervals": sum(part["bytes"] == 0 for part in intervals),
    }
    if polls is None:
        return result
    values = polls.values
    open_ = values["state"] == ESTABLISHED
    rtt_ms = values["srtt_us"][open_ & (values["srtt_us"] > 0)] / 1e3
    cwnd = values["cwnd"][open_]
    result["segments"] = int(values["data_segs_out"].max())
    if rtt_ms.size:
        result |= {"rtt_mean_ms": _rounded(rtt_ms.mean())}
        result |= {"rtt_p95_ms": _rounded(np.percentile(rtt_ms, 95))}
        result |= {"rtt_min_ms": _rounded(values["min_rtt_us"][-1] / 1e3)}
        result |= {"cwnd_mean": _rounded(cwnd.mean(), 1), "cwnd_max": int(cwnd.max())}
    marks_ns = np.arange(polls.t_ns[0], polls.t_ns[0] + sent["seconds"] * 1e9 + 1, 10**9)
    acked = np.interp(marks_ns, polls.t_ns, values["bytes_acked"])
    result["silent_intervals"] = int((np.diff(acked) == 0).sum())
    return result


def _shares(results: list[dict[str, Any]], polls: list[Polls | None], t0_ns: int) -> None:
    """Each flow's part of what all delivered while all were there, into the results."""
    if not results:
        return
    rates = [float(result["goodput_mbps"]) for result in results]
    present = [poll for poll in polls if poll is not None]
    if len(present) == len(results):
        start_ns = max(int(poll.t_ns[0]) for poll in present)
        ends = [r["start_s"] + r["seconds"] for r in results]
        end_ns = t0_ns + round(min(ends) * 1e9)
        if end_ns - start_ns >= 10**9:
            rates = []
            for poll in present:
                at = np.interp([start_ns, end_ns], poll.t_ns, poll.values["bytes_acked"])
                rates.append(float(at[1] - at[0]) * 8e3 / (end_ns - start_ns))
    total = sum(rates)
    for result, rate in zip(results, rates, strict=True):
        result["common_mbps"] = _rounded(rate)
        result["share"] = _rounded(rate / total, 4) if total else 0.0


def jain(rates: list[float]) -> float:
    """Jain's index of fairness: 1 if all are equal, 1/n if one has all."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 0.0


def _web_result(
    text: str, errors: str, web: scenarios.Web, cc: str, rows: list[dict[str, int]]
) -> dict[str, Any]:
    objects = [tuple(map(int, line.split())) for line in text.splitlines()]
    if len(objects) != web.objects:
        said = uml_build.last_lines(errors) or "no message"
        raise NdmError(f"web: {len(objects)} of {web.objects} objects came: {said}")
    start_ns, end_ns = min(o[2] for o in objects), max(o[3] for o in objects)
    each_ms = [(o[3] - o[2]) / 1e6 for o in objects]
    last: dict[int, dict[str, int]] = {r["dport"]: r for r in rows if r["sport"] == WEB_PORT}
    return {
        "cc": cc if web.cc == UNDER_TEST else web.cc,
        "seconds": _rounded((end_ns - start_ns) / 1e9, 6),
        "mbps": _rounded(web.bytes * 8e3 / (end_ns - start_ns)),
        "object_ms_mean": _rounded(sum(each_ms) / len(each_ms)),
        "object_ms_p95": _rounded(np.percentile(each_ms, 95)),
        "retransmissions": sum(row["total_retrans"] for row in last.values()),
    }


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _run_toml(
    scenario: Scenario,
    cc: str,
    seed: int,
    kernel: str,
    clock_ns: tuple[int, int],
    result: dict[str, Any],
) -> str:
    first = scenario.flows[0] if scenario.flows else None
    tested = cc if first is None or first.cc == UNDER_TEST else first.cc
    run: dict[str, object] = {"name": scenario.name, "cc": tested, "seconds": scenario.seconds}
    link = scenario.link
    if link:
        run |= {"rate_bps": link.rate_bps, "rtt_us": link.rtt_us, "loss": link.loss}
        run |= {"queue_packets": link.queue_packets, "qdisc": link.qdisc}
        run |= {"jitter_us": link.jitter_us, "reorder": link.reorder, "rate_steps": link.steps}
        if link.burst:
            run |= {f"burst_{k}": v for k, v in dataclasses.asdict(link.burst).items()}
    elif scenario.lo:
        run |= {"lo_netem": scenario.lo.netem, "lo_tbf": scenario.lo.tbf}
    run |= {"seed": seed, "kernel": kernel, "flows": len(scenario.flows)}
    run |= {"sender_port": FIRST_PORT if scenario.flows else WEB_PORT}
    clock = {"realtime_ns": clock_ns[0], "monotonic_ns": clock_ns[1]}
    truth: dict[str, object] = {f"drops_{k}": n for k, n in result["drops"].items()}
    truth["retransmitted_segments"] = sum(flow["retransmissions"] for flow in result["flows"])
    truth["mean_mbps"] = result["total_mbps"]
    text = "# SPDX-License-Identifier: CC0-1.0\n"
    for title, values in (("", run), ("truth", truth), ("clock", clock)):
        text += f"\n[{title}]\n" if title else ""
        text += "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())
    return text


def _keep_trace(out: Path, folder: Path) -> None:
    stats = (out / "trace.stats").read_text(encoding="ascii")
    lost = re.search(r"overrun: (\d+)", stats)
    if lost and int(lost[1]):
        raise NdmError(f"{lost[1]} kernel events lost; shorten the run or use --light")
    lines = []
    with (out / "trace").open(encoding="ascii", errors="replace") as stream:
        for line in stream:
            if not line.startswith("#"):
                lines.append(POINTERS.sub("", line))
    _compress(folder / "tcp_probe.txt.zst", "".join(lines).encode())


def _collect(
    scenario: Scenario, cc: str, seed: int, out: Path, folder: Path, light: bool
) -> dict[str, Any]:
    """From what the guest left in `out` to the files of a run in `folder`."""
    kernel = uml_build.build(quiet=True)
    t0_ns, mono_ns = map(int, (out / "clock").read_text().split())
    simulated_s = (int((out / "clock.end").read_text().split()[0]) - START_NS) / 1e9
    rows = _read_sockets((out / "sockets.bin").read_bytes())
    flows, polls = [], []
    for number, flow in enumerate(scenario.flows):
        errors = (out / f"flow.{number}.err").read_text(errors="replace")
        report = _report((out / f"flow.{number}").read_bytes(), errors, f"flow {number}")
        name = "iperf3.json.zst" if number == 0 else f"iperf3.{number}.json.zst"
        _compress(folder / name, orjson.dumps(report))
        port = FIRST_PORT + number
        polls.append(_polls(rows, port))
        flows.append(_flow_result(flow, cc, port, report, polls[-1], t0_ns))
    _shares(flows, polls, t0_ns)
    drops = _drop_rows(scenario, (out / "drops").read_bytes(), _qdisc_drop(kernel.dir))
    causes = [row[3] for row in drops]
    result: dict[str, Any] = {"scenario": scenario.name, "title": scenario.title, "cc": cc}
    result |= {"seed": seed, "kernel": kernel.release}
    model = (out / "model").read_text().strip()
    if model:
        result["model"] = model
    result |= {"simulated_s": _rounded(simulated_s), "flows": flows}
    result["total_mbps"] = _rounded(sum(flow["goodput_mbps"] for flow in flows))
    if flows:
        result["jain"] = _rounded(jain([flow["common_mbps"] for flow in flows]), 4)
    result["drops"] = {cause: causes.count(cause) for cause in ("random", "queue")}
    if scenario.web:
        errors = (out / "web.err").read_text(errors="replace")
        text = (out / "web").read_text()
        result["web"] = _web_result(text, errors, scenario.web, cc, rows)
    if scenario.published:
        result["published"] = list(scenario.published)
    with (folder / "drops.csv").open("w", encoding="ascii", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["t_ns", "seq", "len", "cause", "sport"])
        writer.writerows(drops)
    lines = b"\n".join(orjson.dumps(row) for row in rows)
    _compress(folder / "tcp_info.jsonl.zst", lines + b"\n" if lines else b"")
    _compress(folder / "qdisc.csv.zst", _queue_table((out / "queues.bin").read_bytes()).encode())
    if not light:
        _keep_trace(out, folder)
        _compress(folder / "sender.pcap.zst", PCAP_HEADER + (out / "capture").read_bytes())
    (folder / "scenario.toml").write_text(scenario.text, encoding="utf-8")
    text = _run_toml(scenario, cc, seed, kernel.release, (t0_ns, mono_ns), result)
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return result


def _qdisc_drop(tree: Path) -> int:
    """The number of SKB_DROP_REASON_QDISC_DROP, counted in the kernel's header."""
    text = (tree / "include" / "net" / "dropreason-core.h").read_text(encoding="utf-8")
    body = re.sub(r"/\*.*?\*/", "", text.split("enum skb_drop_reason {", 1)[1], flags=re.DOTALL)
    names = re.findall(r"^\s*SKB_(\w+)(?:\s*=[^,]*)?,", body.split("}", 1)[0], re.MULTILINE)
    return names.index("DROP_REASON_QDISC_DROP")


def _modules(
    scenario: Scenario, cc: str, module: Path | None, params: dict[str, Any] | None
) -> list[tuple[Path, dict[str, Any]]]:
    """The modules that the algorithms need, and their parameters."""
    needed = scenario.algorithms(cc)
    found: list[tuple[Path, dict[str, Any]]] = []
    if module is not None:
        built = uml_build.build_module(module) if module.is_dir() else module
        if not built.is_file():
            raise NdmError(f"{module}: no such module")
        found.append((built, params or {}))
    given = {path.stem for path, _ in found}
    for name, sources in (("ndm_tcp", uml_build.KMOD), ("fixed_cwnd", uml_build.FIXED_CWND)):
        if name in needed and name not in given:
            mine = params or {} if name == cc and module is None else {}
            found.append((uml_build.build_module(sources), mine))
    if params and not any(values for _, values in found):
        raise NdmError(f"{cc}: is not a module, it takes no parameters")
    return found


def run(
    scenario: Scenario | Path,
    cc: str,
    seed: int,
    out: Path,
    cpu: int | None = None,
    module: Path | None = None,
    params: dict[str, Any] | None = None,
    light: bool = False,
    limit_s: float | None = None,
    events: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Run a scenario once.

    Args:
        scenario: or its file.
        cc: the algorithm under test.
        seed: of every random number of the guest's kernel.
        out: the folder to leave; one that holds a run is replaced.
        cpu: number of the CPU to run on; by default one without another run.
        module: a .ko for the lab's kernel, or the sources of one, loaded before the run.
        params: parameters of that module, or of ndm_tcp or fixed_cwnd if `cc` is one of them.
        light: no packets and no kernel events; for many flows or high rates.
        limit_s: wall time that it may take, s.
        events: more of the kernel's events for the trace, as "group/name"; a run that is not
            light. They move the guest's clock: it is another run than one without.

    Returns:
        the contents of result.json.

    Raises:
        NdmError: a tool is missing, the guest fails, or it takes too long.
    """
    if isinstance(scenario, Path):
        scenario = scenarios.load(scenario)
    if not scenarios.CC_NAME.fullmatch(cc):
        raise NdmError(f"{cc!r} is not the name of an algorithm")
    if not 0 <= seed < 1 << 64:
        raise NdmError(f"seed: {seed} is not in [0, 2^64)")
    if out.exists() and not (out / "result.json").is_file() and any(out.iterdir()):
        raise NdmError(f"{out}: holds something else than a run; name another folder")
    uml_build.need(TOOLS)
    modules = _modules(scenario, cc, module, params)
    out.parent.mkdir(parents=True, exist_ok=True)
    limit_s = limit_s or max(300.0, 60 * scenario.end_s())
    with (
        signals_as_exit(),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as name,
    ):
        work, folder = Path(name) / "work", Path(name) / "run"
        work.mkdir()
        folder.mkdir()
        for path, _ in [(uml_build.build_module(uml_build.WATCH), {}), *modules]:
            shutil.copy(path, work)
        if scenario.link:
            for file, text in _path_batches(scenario).items():
                (work / file).write_text(text, encoding="ascii")
        named = [(path.stem, values) for path, values in modules]
        (work / "plan.sh").write_text(_plan(scenario, cc, named, light, events), encoding="ascii")
        title = f"{scenario.name} with {cc}"
        before_s = time.monotonic()
        try:
            log = boot(work, seed, cpu, limit_s)
        except NdmError as error:
            raise NdmError(f"{title}: {error}") from None
        wall_s = time.monotonic() - before_s
        problem = verdict(log)
        if problem:
            failed = out.with_name(out.name + ".failed.log")
            failed.write_text(log, encoding="utf-8")
            raise NdmError(f"{title}: {problem} (all of it: {failed})")
        try:
            result = _collect(scenario, cc, seed, work / "out", folder, light)
        except NdmError as error:
            raise NdmError(f"{title}: {error}") from None
        trouble = [line.strip() for line in log.splitlines() if TROUBLE.search(line)]
        if trouble:
            result["kernel_trouble"] = trouble
        result["wall_s"] = _rounded(wall_s)
        (folder / "kernel.log").write_text(log, encoding="utf-8")
        text = json.dumps(result, indent=1) + "\n"
        (folder / "result.json").write_text(text, encoding="utf-8")
        if out.exists():
            shutil.rmtree(out)
        folder.rename(out)
    return result


def summary(result: dict[str, Any]) -> str:
    """A result in a few lines, the published figures beside it."""
    lines = []
    for flow in result["flows"]:
        parts = [f"{flow['cc']:10} {flow['goodput_mbps']:9.3f} Mbit/s"]
        parts.append(f"{flow['retransmissions']} retransmissions")
        if "rtt_mean_ms" in flow:
            parts.append(f"RTT {flow['rtt_mean_ms']:.1f} ms (95 %: {flow['rtt_p95_ms']:.1f})")
        parts.append(f"{flow['zero_intervals']}/{flow['intervals']} intervals without")
        if len(result["flows"]) > 1:
            parts.append(f"share {flow['share']:.3f}")
        lines.append(", ".join(parts))
    if "web" in result:
        web = result["web"]
        lines.append(f"{web['cc']:10} page in {web['seconds']:.3f} s ({web['mbps']:.3f} Mbit/s)")
    drops = result["drops"]
    lines.append(f"dropped {drops['random']} at random, {drops['queue']} by the queue")
    for row in result.get("published", []):
        lines.append("published: " + ", ".join(f"{key} {value}" for key, value in row.items()))
    lines += result.get("kernel_trouble", [])
    speed = result["simulated_s"] / result["wall_s"]
    lines.append(
        f"{result['simulated_s']:.1f} s simulated in {result['wall_s']:.1f} s ({speed:.1f} times)"
    )
    return "\n".join(lines)


def parameter(text: str) -> tuple[str, str]:
    """NAME=VALUE of the command line."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"\w+", name):
        raise NdmError(f"--param {text}: expected NAME=VALUE")
    return name, value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `ndm lab run`."""
    parser.add_argument("scenario", type=Path, help="TOML file, see lab/scenarios")
    parser.add_argument("--cc", required=True, help="algorithm under test, such as cubic, ndm_tcp")
    parser.add_argument("--seed", type=int, default=1, help="of all randomness in the guest")
    parser.add_argument("-o", "--out", type=Path, help="folder to leave (default: out/lab/...)")
    parser.add_argument("--cpu", type=int, help="CPU to run on (default: a free one)")
    parser.add_argument("--module", type=Path, help=".ko or sources of a module to load")
    parser.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="of it")
    parser.add_argument("--light", action="store_true", help="no packets, no kernel events")


def main(args: argparse.Namespace) -> int:
    """`ndm lab run`."""
    loaded = scenarios.load(args.scenario)
    out = args.out or Path("out") / "lab" / f"{loaded.name}-{args.cc}-{args.seed}"
    params = dict(parameter(text) for text in args.param)
    uml_build.build()
    result = run(loaded, args.cc, args.seed, out, args.cpu, args.module, params, args.light)
    print(summary(result))
    print(f"in {out}", file=sys.stderr)
    return 0
