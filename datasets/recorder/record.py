# SPDX-License-Identifier: GPL-2.0-only
"""Record transfers of this host's TCP into a folder that `ndm dataset build` reads.

    sender.pcap.zst       headers of the sockets' packets: raw IP, ns, no payload
    tcp_info.jsonl.zst    tcp_info of each socket every 10 ms (INET_DIAG), as M-Lab archives it
    tcp_probe.txt.zst     the kernel's tcp_probe events, CLOCK_MONOTONIC, if tracefs allows
    result.json           the sockets: port and congestion control
    run.toml              clocks at begin and end, facts about the host, what was lost

Packets carry addresses, as any capture does; datasets made of them do not.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import zstandard

from ndm_tcp import files
from ndm_tcp.datasets.recorder import kernel_events
from ndm_tcp.datasets.recorder.inet_diag import Diag
from ndm_tcp.datasets.recorder.kernel_events import POINTERS, NoEventsError
from ndm_tcp.errors import NdmError

PERIOD_S = 0.01
END_S = 10.0
"""that a program has to end in"""
SNAPLEN_BYTES = 160  # cooked v2, IPv6, all of TCP; the payload is cut off afterwards
PORTS = re.compile(r"(?:src|dest|sport|dport)=(?:\S*:)?(\d+) ")
ZSTD_LEVEL = 9
LINK_COOKED_V2, LINK_RAW = 276, 101
DATA_SEGMENTS_OUT = slice(156, 160)  # of struct tcp_info, since Linux 4.6
NO_ADDRESSES = base64.b64encode(bytes(72)).decode()
SYSCTLS = (
    *("net.ipv4.tcp_congestion_control", "net.core.default_qdisc", "net.ipv4.tcp_rmem"),
    *("net.ipv4.tcp_wmem", "net.ipv4.tcp_timestamps", "net.ipv4.tcp_sack", "net.ipv4.tcp_ecn"),
)


@dataclass(frozen=True)
class Wanted:
    """Which sockets count."""

    port: int | None = None
    """local or remote"""
    pid: int | None = None
    """of a process; its children count too"""


@dataclass
class _Seen:
    """Sockets that the polls have met."""

    sockets: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """cookie to (local port, remote port), in the order of their numbers"""
    ccs: dict[bytes, str] = field(default_factory=dict)
    """cookie to congestion control"""
    last: dict[bytes, bytes] = field(default_factory=dict)
    """cookie to its newest tcp_info"""
    polls: int = 0
    late: int = 0
    """polls more than one period late"""

    def flows(self) -> list[dict[str, int | str]]:
        """Ports and congestion control, but of ports that several sockets had with several."""
        found: dict[tuple[int, int], set[str]] = {}
        for cookie, ends in self.sockets.items():
            found.setdefault(ends, set()).add(self.ccs[cookie])
        return [
            {"port": port, "peer_port": peer, "cc": next(iter(ccs))}
            for (port, peer), ccs in sorted(found.items())
            if len(ccs) == 1
        ]


def clocks_ns() -> tuple[int, int]:
    """(CLOCK_REALTIME, CLOCK_MONOTONIC) at one moment: the closest of some pairs."""
    pairs = []
    for _ in range(20):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        pairs.append((after - before, real, (before + after) // 2))
    return min(pairs)[1:]


def _family(pid: int) -> set[int]:
    """A process and all its descendants."""
    found, waiting = set(), [pid]
    while waiting:
        one = waiting.pop()
        found.add(one)
        for path in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                waiting += [int(word) for word in path.read_text().split()]
    return found


def _inodes(pids: set[int]) -> set[int]:
    """Of the sockets that these processes hold."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(entry.readlink())
                    if target.startswith("socket:["):
                        found.add(int(target[8:-1]))
    return found


def _line(at_ns: int, info: bytes, cc: str) -> bytes:
    seconds, ns = divmod(at_ns, 10**9)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    names = [base64.b64encode(data).decode() for data in (info, cc.encode() + b"\0")]
    record = {
        "Timestamp": f"{stamp}.{ns // 1000:06d}Z",
        "RawIDM": NO_ADDRESSES,
        "Attributes": [None, None, names[0], None, names[1]],
    }
    return orjson.dumps(record) + b"\n"


class _Poller:
    """Writes the tcp_info of the wanted sockets, one file per connection."""

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        self.folder, self.wanted, self.seen = folder, wanted, _Seen()
        self.diag = Diag()

    def poll(self) -> None:
        """Look at all sockets once."""
        inodes = None if self.wanted.pid is None else _inodes(_family(self.wanted.pid))
        at_ns = time.time_ns()
        seen = self.seen
        seen.polls += 1
        for found in self.diag.sockets():
            ends, cookie = (found.port, found.peer_port), found.cookie
            if self.wanted.port is not None and self.wanted.port not in ends:
                continue
            if inodes is not None and found.inode not in inodes and cookie not in seen.sockets:
                continue
            if not any(found.info[DATA_SEGMENTS_OUT]):
                continue  # it may still get another congestion control
            seen.sockets.setdefault(cookie, ends)
            seen.ccs[cookie] = found.cc
            if seen.last.get(cookie) == found.info:
                continue
            seen.last[cookie] = found.info
            with (self.folder / f"{cookie.hex()}.jsonl").open("ab") as stream:
                stream.write(_line(at_ns, found.info, found.cc))

    def finish(self, target: Path) -> None:
        """One file of all connections, each after the line that begins it."""
        self.diag.close()
        with _zstd(target) as out:
            for number, cookie in enumerate(self.seen.sockets):
                out.write(orjson.dumps({"Metadata": {"UUID": str(number)}}) + b"\n")
                out.write((self.folder / f"{cookie.hex()}.jsonl").read_bytes())


@contextlib.contextmanager
def _zstd(path: Path) -> Iterator[Any]:
    with (
        path.open("wb") as raw,
        zstandard.ZstdCompressor(level=ZSTD_LEVEL).stream_writer(raw, closefd=False) as out,
    ):
        yield out


# --- the kernel's events ---------------------------------------------------------------------
@contextlib.contextmanager
def _events(port: int | None) -> Iterator[Path | str]:
    """A tracing instance of our own; or why there is none."""
    sockets = None if port is None else f"sport == {port} || dport == {port}"
    with contextlib.ExitStack() as stack:
        try:
            found: Path | str = stack.enter_context(
                kernel_events.recorded(f"record-{os.getpid()}", sockets)
            )
        except NoEventsError as error:
            found = error.short
        yield found


def _write_events(instance: Path, connections: set[tuple[int, int]], target: Path) -> int:
    """The events of the connections, without kernel pointers; returns how many were lost."""
    lost, kept = kernel_events.lost(instance), 0
    known = {frozenset(ends) for ends in connections}
    with (
        (instance / "trace").open(encoding="ascii", errors="replace") as stream,
        _zstd(target) as out,
    ):
        for line in stream:
            ports = PORTS.findall(line)
            if len(ports) >= 2 and frozenset((int(ports[0]), int(ports[1]))) in known:
                out.write(POINTERS.sub("", line).encode())
                kept += " tcp_probe: " in line
    if not kept:
        target.unlink()
    return lost


# --- packets -----------------------------------------------------------------------------------
@contextlib.contextmanager
def _tcpdump(device: str, port: int | None, target: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A capture of headers that has begun.

    Raises:
        NdmError: tcpdump cannot capture.
    """
    words = ["tcpdump", "-i", device, "-s", str(SNAPLEN_BYTES), "-n", "-Z", "root", "-B", "16384"]
    words += ["--time-stamp-precision=nano", "--immediate-mode", "-w", str(target)]
    if device == "any":
        words += ["-y", "LINUX_SLL2"]
    process = subprocess.Popen(
        [*words, "tcp" if port is None else f"tcp port {port}"],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        said = b""
        while b"listening on" not in said:
            line = process.stderr.readline()
            if not line:
                last = said.decode(errors="replace").strip().splitlines()[-1:]
                raise NdmError(
                    f"tcpdump: {''.join(last) or 'did not start'}; name another --device"
                )
            said += line
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _stop(tcpdump: subprocess.Popen[bytes]) -> bytes:
    """End a capture; what it says of it.

    Raises:
        NdmError: it had ended before.
    """
    tcpdump.send_signal(signal.SIGINT)
    _, said = tcpdump.communicate(timeout=20)
    if tcpdump.returncode:
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise NdmError(
            f"tcpdump ended before the recording ({''.join(last) or tcpdump.returncode}); "
            "make room for the capture, and record again"
        )
    return said


def _ip_at(record: bytes, link: int) -> int:
    if link == LINK_COOKED_V2:
        return 20
    kind, at = int.from_bytes(record[12:14], "big"), 14
    while kind in (0x8100, 0x88A8):
        kind, at = int.from_bytes(record[at + 2 : at + 4], "big"), at + 4
    return at


def _headers(packet: bytes) -> tuple[int, int, int] | None:
    """Bytes of IP and TCP headers, and the ports; None: no plain TCP."""
    if len(packet) >= 40 and packet[0] >> 4 == 4 and packet[9] == 6:
        at = (packet[0] & 15) * 4
    elif len(packet) >= 60 and packet[0] >> 4 == 6 and packet[6] == 6:
        at = 40
    else:
        return None
    if len(packet) < at + 20:
        return None
    ports = struct.unpack_from(">HH", packet, at)
    return (at + (packet[at + 12] >> 4) * 4, *ports)


def keep_headers(source: Path, target: Path, connections: set[tuple[int, int]]) -> int:
    """Copy the connections' packets of tcpdump's file: from the IP header on, without payload.

    Returns:
        packets kept.
    """
    known = {frozenset(ends) for ends in connections}
    kept = 0
    with source.open("rb") as stream, _zstd(target) as out:
        head = stream.read(24)
        link = struct.unpack_from("=I", head, 20)[0] & 0xFFFF if len(head) == 24 else LINK_RAW
        out.write(struct.pack("=IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, SNAPLEN_BYTES, LINK_RAW))
        while len(record := stream.read(16)) == 16:
            seconds, ns, caught, wire = struct.unpack("=IIII", record)
            data = stream.read(caught)
            at = 0 if link == LINK_RAW else _ip_at(data, link)
            found = _headers(data[at:])
            if found is None or frozenset(found[1:]) not in known:
                continue
            packet = data[at : at + found[0]]
            out.write(struct.pack("=IIII", seconds, ns, len(packet), wire - at) + packet)
            kept += 1
    return kept


# --- a recording -------------------------------------------------------------------------------
def _toml(facts: dict[str, Any]) -> str:
    lines, tables = [], []
    for key, value in facts.items():
        if isinstance(value, dict):
            tables.append(f"\n[{key}]\n" + _toml(value))
        else:
            lines.append(f"{key} = {orjson.dumps(value).decode()}\n")
    return "".join(lines + tables)


def _host() -> dict[str, Any]:
    found: dict[str, Any] = {"kernel": os.uname().release, "cpus": os.cpu_count()}
    for name in SYSCTLS:
        with contextlib.suppress(OSError):
            path = Path("/proc/sys") / name.replace(".", "/")
            found[name.rpartition(".")[2]] = " ".join(path.read_text().split())
    return found


def _check(out: Path) -> None:
    if os.geteuid() != 0:
        raise NdmError("recording needs root (capture, sockets of others, tracing); run as root")
    if shutil.which("tcpdump") is None:
        raise NdmError("tcpdump: command not found; install it")
    if out.exists():
        raise NdmError(f"{out}: exists already; name another folder")


def _watch(
    poller: _Poller,
    process: subprocess.Popen[bytes] | None,
    until_s: float | None,
    tcpdump: subprocess.Popen[bytes],
) -> None:
    """Poll until the command, the process or the capture ends, the time is over, or Ctrl-C."""
    due = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt):
        while (until_s is None or due < until_s) and not tcpdump.poll():
            poller.poll()
            if process is not None and process.poll() is not None:
                return
            pid = poller.wanted.pid
            if process is None and pid is not None and not Path(f"/proc/{pid}").exists():
                return
            due += PERIOD_S
            wait_s = due - time.monotonic()
            if wait_s < 0:
                poller.seen.late += wait_s < -PERIOD_S
                due = time.monotonic()
            else:
                time.sleep(wait_s)


def _events_facts(
    instance: Path | str, connections: set[tuple[int, int]], folder: Path
) -> dict[str, Any]:
    """Write the kernel's events of these connections; how many were lost, or why there are none."""
    if not isinstance(instance, Path):
        return {"no_tcp_probe": instance}
    lost = _write_events(instance, connections, folder / "tcp_probe.txt.zst")
    return {"events_lost": lost}


def _started(command: list[str], prints_to: int | None) -> subprocess.Popen[bytes] | None:
    """The program to record, if there is one.

    Raises:
        NdmError: it does not start.
    """
    if not command:
        return None
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=prints_to)
    except OSError as error:
        raise NdmError(f"{command[0]}: {error.strerror}") from None


def _end(process: subprocess.Popen[bytes] | None) -> bool:
    """End the program if it still runs; did it?"""
    if process is None or process.poll() is not None:
        return False
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return True


def record(
    out: Path,
    command: list[str],
    wanted: Wanted,
    seconds: float | None = None,
    device: str = "any",
    prints_to: int | None = None,
) -> dict[str, Any]:
    """Record until the command ends, the time is over, or the user interrupts.

    Args:
        out: folder that does not exist yet; it appears whole.
        command: a program to run, whose sockets are recorded unless a port is given.
        wanted: which sockets.
        seconds: at most so long.
        device: network device.
        prints_to: file descriptor for what the command prints; None: this program's.

    Returns:
        the contents of run.toml.

    Raises:
        NdmError: not root, a tool is missing, or no packet of a wanted socket was seen.
    """
    _check(out)
    with files.scratch(out) as scratch:
        work, folder = scratch / "work", scratch / "run"
        work.mkdir()
        folder.mkdir()
        with (
            _tcpdump(device, wanted.port, work / "all.pcap") as tcpdump,
            _events(wanted.port) as (instance),
        ):
            begin, process = clocks_ns(), _started(command, prints_to)
            if process is not None and wanted.port is None:
                wanted = Wanted(pid=process.pid)
            poller = _Poller(work, wanted)
            try:
                until_s = None if seconds is None else time.monotonic() + seconds
                _watch(poller, process, until_s, tcpdump)
            finally:
                stopped = _end(process)
            time.sleep(0.2)  # the last ACKs
            said = _stop(tcpdump)
            if isinstance(instance, Path):
                kernel_events.stop(instance)
            seen = poller.seen
            connections = {*seen.sockets.values()}
            facts: dict[str, Any] = {"device": device, "seconds": seconds or 0.0}
            ccs = sorted(set(seen.ccs.values()))
            if len(ccs) == 1:
                facts["cc"] = ccs[0]
            lost = re.search(rb"(\d+) packets? dropped by kernel", said)
            facts["packets"] = keep_headers(
                work / "all.pcap", folder / "sender.pcap.zst", connections
            )
            facts["packets_lost"] = int(lost[1]) if lost else 0
            facts |= _events_facts(instance, connections, folder)
        if not facts["packets"]:
            raise NdmError(
                "no packet of a TCP connection of these sockets was seen; "
                "let the transfer send data while it is recorded, or name another --device"
            )
        poller.finish(folder / "tcp_info.jsonl.zst")
        facts |= {"connections": len(seen.sockets), "polls": seen.polls, "late_polls": seen.late}
        if process is not None:
            facts |= {"stopped": True} if stopped else {"exit_code": process.returncode}
        end = clocks_ns()
        facts["clock"] = {"realtime_ns": begin[0], "monotonic_ns": begin[1]}
        facts["clock_at_end"] = {"realtime_ns": end[0], "monotonic_ns": end[1]}
        facts["host"] = _host()
        (folder / "result.json").write_bytes(orjson.dumps({"flows": seen.flows()}))
        (folder / "run.toml").write_text(_toml(facts), encoding="utf-8")
        folder.rename(out)
    return facts
