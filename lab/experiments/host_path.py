# SPDX-License-Identifier: GPL-2.0-only
"""An emulated network path on this machine: two network namespaces, two TUN devices, and a
process that carries packets between them through a bottleneck.

    sender namespace 10.77.0.1 -- TUN -- emulator -- TUN -- 10.77.0.2 receiver namespace

Per direction: a queue of `queue_packets` that drops at its tail, a bottleneck of `rate_bps`,
then half of the propagation delay. Jitter, random loss and bursts of loss strike the data
direction only, and of it only the packets of the measured flow that carry payload, so that
the control connection of the traffic generator neither suffers nor appears in the truth.
Every dropped packet of that flow is logged. The device MTU is 1500 and TUN devices have no
segmentation offload unless requested, so a packet is a segment.

The emulator runs as a separate process (`python -m ndm_tcp.lab.experiments.host_path`), given its
configuration as the first argument and the devices as inherited descriptors; it stops when
its standard input closes and then prints its counts as JSON.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import gc
import heapq
import json
import math
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ndm_tcp.errors import NdmError
from ndm_tcp.interrupts import signals_as_exit

SENDER_ADDRESS = "10.77.0.1"
RECEIVER_ADDRESS = "10.77.0.2"
MTU_BYTES = 1500
REVERSE_QUEUE_PACKETS = 1000
"""The direction of the acknowledgements never drops in practice."""

TUNSETIFF = 0x400454CA
IFF_TUN = 0x0001
IFF_NO_PI = 0x1000


@dataclass(frozen=True)
class LinkSpec:
    """The emulated path's treatment of packets."""

    rate_bps: int
    """bottleneck of both directions, bit/s, IP header included"""
    delay_us: int
    """propagation there and back, us; half of it in each direction"""
    queue_packets: int
    """packets that fit into the bottleneck's queue, the one being sent included"""
    loss: float = 0.0
    """probability that a packet is lost behind the bottleneck"""
    jitter_us: int = 0
    """standard deviation of the normally distributed extra delay, us"""
    reorder: bool = False
    """True: packets may overtake one another, extra delays are independent.
    False: order is kept, the extra delay wanders with a correlation time of `jitter_corr_us`"""
    jitter_corr_us: int = 50_000
    burst_start: float = 0.0
    """Gilbert-Elliott: probability per packet of entering the bad state"""
    burst_end: float = 0.3
    """Gilbert-Elliott: probability per packet of leaving it"""
    burst_loss: float = 0.7
    """Gilbert-Elliott: probability of loss in the bad state"""
    rate_steps: tuple[tuple[float, int], ...] = ()
    """(s since the first packet, bit/s from then on), in order of time"""
    seed: int = 0

    def check(self, where: str) -> None:
        """Raises NdmError if a value makes no sense; `where` starts the message."""
        rates = [self.rate_bps, *(rate for _, rate in self.rate_steps)]
        if min(rates) <= 0:
            raise NdmError(f"{where}: rate_bps must be positive, got {min(rates)}")
        if self.delay_us < 0 or self.jitter_us < 0:
            raise NdmError(f"{where}: delay_us and jitter_us must not be negative")
        if self.queue_packets < 1:
            raise NdmError(f"{where}: queue_packets must be at least 1, got {self.queue_packets}")
        for name in ("loss", "burst_start", "burst_end", "burst_loss"):
            if not 0 <= getattr(self, name) <= 1:
                raise NdmError(
                    f"{where}: {name} is a probability, got {getattr(self, name)}; write 0 to 1"
                )
        times = [t_s for t_s, _ in self.rate_steps]
        if times != sorted(times) or any(t_s < 0 for t_s in times):
            raise NdmError(f"{where}: rate_steps must be in order of time, from 0 on")


class Bottleneck:
    """A droptail queue served at a rate that may step.

    A packet's departure is known when it arrives, so the queue is the list of departures
    still to come. Times are monotonic ns.
    """

    def __init__(
        self, rate_bps: int, queue_packets: int, rate_steps: tuple[tuple[float, int], ...] = ()
    ) -> None:
        self.queue_packets = queue_packets
        self.departures: deque[int] = deque()
        self.free_ns = 0
        self._steps = rate_steps
        self._starts_ns: list[int] = [0]
        self._rates = [rate_bps, *(rate for _, rate in rate_steps)]
        self._started = False

    def _finish_ns(self, start_ns: int, size_bytes: int) -> int:
        index = bisect.bisect_right(self._starts_ns, start_ns) - 1
        bits = size_bytes * 8.0
        at_ns = float(start_ns)
        while index + 1 < len(self._starts_ns):
            room = (self._starts_ns[index + 1] - at_ns) * self._rates[index] / 1e9
            if room >= bits:
                break
            bits -= room
            at_ns = float(self._starts_ns[index + 1])
            index += 1
        return round(at_ns + bits * 1e9 / self._rates[index])

    def take(self, now_ns: int, size_bytes: int) -> int | None:
        """When the packet has left the bottleneck, ns; None if the queue is full."""
        if not self._started:
            self._started = True
            self._starts_ns += [now_ns + round(t_s * 1e9) for t_s, _ in self._steps]
        departures = self.departures
        while departures and departures[0] <= now_ns:
            departures.popleft()
        if len(departures) >= self.queue_packets:
            return None
        self.free_ns = self._finish_ns(max(now_ns, self.free_ns), size_bytes)
        departures.append(self.free_ns)
        return self.free_ns


class Impairments:
    """Loss and jitter behind the bottleneck, from a seeded generator."""

    def __init__(self, spec: LinkSpec) -> None:
        self.spec = spec
        self.random = random.Random(spec.seed)
        self.bad = False
        self.wander_us = 0.0
        self.wander_ns = 0

    def lost(self) -> bool:
        """Whether the next packet is lost."""
        spec, draw = self.spec, self.random.random
        lost = draw() < spec.loss
        if spec.burst_start:
            change = spec.burst_end if self.bad else spec.burst_start
            if draw() < change:
                self.bad = not self.bad
            if self.bad and draw() < spec.burst_loss:
                lost = True
        return lost

    def extra_us(self, now_ns: int) -> float:
        """Extra delay of a packet that leaves the bottleneck at `now_ns`, us; may be < 0."""
        spec = self.spec
        if not spec.jitter_us:
            return 0.0
        if spec.reorder:
            return self.random.gauss(0.0, spec.jitter_us)
        keep = math.exp(-(now_ns - self.wander_ns) / 1e3 / spec.jitter_corr_us)
        self.wander_us = keep * self.wander_us + self.random.gauss(
            0.0, spec.jitter_us * math.sqrt(1 - keep * keep)
        )
        self.wander_ns = now_ns
        return self.wander_us


@dataclass
class Counts:
    """The emulator's actions, for the record of the run."""

    packets: int = 0
    drops_random: int = 0
    drops_queue: int = 0
    drops_other: int = 0
    """packets of other flows that found the queue full"""
    late_us_mean: float = 0.0
    """delivery after its due time: mean, us"""
    late_us_p99: float = 0.0
    late_us_max: float = 0.0
    fifo: bool = False
    """the process ran under SCHED_FIFO"""
    late_us: list[float] = field(default_factory=list, repr=False)

    def as_dict(self) -> dict[str, int | float | bool]:
        late = sorted(self.late_us) or [0.0]
        return {
            "packets": self.packets,
            "drops_random": self.drops_random,
            "drops_queue": self.drops_queue,
            "drops_other": self.drops_other,
            "late_us_mean": round(sum(late) / len(late), 1),
            "late_us_p99": round(late[len(late) * 99 // 100], 1),
            "late_us_max": round(late[-1], 1),
            "fifo": self.fifo,
        }


class Emulator:
    """Carries packets between two TUN descriptors."""

    def __init__(self, spec: LinkSpec, sender: int, receiver: int, port: int, drops: Path) -> None:
        """Args:
        spec: the path.
        sender, receiver: descriptors of the TUN devices, not blocking.
        port: TCP port of the measured flow at the sender.
        drops: CSV file of the dropped packets: t_ns,seq,len,cause.
        """
        self.spec = spec
        self.ends = (sender, receiver)
        self.port = port
        self.drops = drops
        self.impairments = Impairments(spec)
        self.forward = Bottleneck(spec.rate_bps, spec.queue_packets, spec.rate_steps)
        self.reverse = Bottleneck(spec.rate_bps, REVERSE_QUEUE_PACKETS, spec.rate_steps)
        self.half_ns = spec.delay_us * 500
        self.last_ns = 0
        self.pending: list[tuple[int, int, int, bytes]] = []
        self.rows: list[tuple[int, int, int, str]] = []
        self.counts = Counts()

    def _measured(self, packet: bytes) -> tuple[int, int] | None:
        """(seq, payload bytes) if the packet belongs to the measured flow and has payload."""
        if packet[9] != 6:
            return None
        tcp = (packet[0] & 15) * 4
        port, _, seq = struct.unpack_from(">HHI", packet, tcp)
        length = int(struct.unpack_from(">H", packet, 2)[0]) - tcp - (packet[tcp + 12] >> 4) * 4
        return (seq, length) if port == self.port and length > 0 else None

    def _from_sender(self, now_ns: int, packet: bytes) -> None:
        measured = self._measured(packet)
        leaves_ns = self.forward.take(now_ns, len(packet))
        wall_ns = time.time_ns() - time.monotonic_ns()
        if leaves_ns is None:
            if measured:
                self.rows.append((now_ns + wall_ns, *measured, "queue"))
                self.counts.drops_queue += 1
            else:
                self.counts.drops_other += 1
            return
        due_ns = leaves_ns + self.half_ns
        if measured:
            if self.impairments.lost():
                self.rows.append((leaves_ns + wall_ns, *measured, "random"))
                self.counts.drops_random += 1
                return
            due_ns += round(self.impairments.extra_us(leaves_ns) * 1e3)
        due_ns = max(due_ns, leaves_ns)
        if not self.spec.reorder:
            due_ns = max(due_ns, self.last_ns)
        self.last_ns = due_ns
        self._queue(due_ns, self.ends[1], packet)

    def _from_receiver(self, now_ns: int, packet: bytes) -> None:
        leaves_ns = self.reverse.take(now_ns, len(packet))
        if leaves_ns is None:
            self.counts.drops_other += 1
            return
        self._queue(leaves_ns + self.half_ns, self.ends[0], packet)

    def _queue(self, due_ns: int, target: int, packet: bytes) -> None:
        self.counts.packets += 1
        heapq.heappush(self.pending, (due_ns, self.counts.packets, target, packet))

    def _deliver(self, now_ns: int) -> None:
        while self.pending and self.pending[0][0] <= now_ns:
            due_ns, _, target, packet = heapq.heappop(self.pending)
            with contextlib.suppress(OSError):  # the device may be gone at the end
                os.write(target, packet)
            self.counts.late_us.append((time.monotonic_ns() - due_ns) / 1e3)

    def _receive(self, source: int) -> None:
        take = self._from_sender if source == self.ends[0] else self._from_receiver
        while True:
            try:
                packet = os.read(source, 65_536)
            except BlockingIOError:
                return
            if len(packet) >= 40 and packet[0] >> 4 == 4:
                take(time.monotonic_ns(), packet)

    def run(self, stop: int) -> None:
        """Carry packets until the descriptor `stop` becomes readable; then write the drops."""
        gc.disable()
        # epoll waits in whole milliseconds, select in microseconds
        watched = [*self.ends, stop]
        while True:
            now_ns = time.monotonic_ns()
            self._deliver(now_ns)
            wait_s = max(self.pending[0][0] - now_ns, 0) / 1e9 if self.pending else None
            readable, _, _ = select.select(watched, [], [], wait_s)
            if stop in readable:
                break
            for source in readable:
                self._receive(source)
        with self.drops.open("w", encoding="ascii") as stream:
            stream.write("t_ns,seq,len,cause\n")
            for row in sorted(self.rows):
                stream.write(",".join(map(str, row)) + "\n")


def open_tun(name: str) -> int:
    """Make a TUN device in this namespace; it lives as long as its descriptor.

    Raises:
        NdmError: no /dev/net/tun, or not allowed.
    """
    try:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        try:
            fcntl.ioctl(
                descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI)
            )
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise NdmError(
            f"/dev/net/tun: {error.strerror}; run as root on a kernel with CONFIG_TUN"
        ) from None
    return descriptor


def command(*words: str) -> None:
    """Run a command that must succeed, quietly.

    Raises:
        NdmError: it is missing or fails; the message holds the last line it printed.
    """
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NdmError(f"{words[0]}: command not found; install it") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise NdmError(f"{' '.join(words)}: {lines[-1]}")


@dataclass
class HostPath:
    """A path that is up."""

    sender: str
    """name of the sender's network namespace"""
    receiver: str
    device: str
    """the sender's TUN device"""
    emulator: subprocess.Popen[str]
    counts: dict[str, int | float | bool] = field(default_factory=dict)
    """filled by `finish`"""

    def finish(self) -> None:
        """Stop the emulator, which writes the drops, and take its counts.

        Raises:
            NdmError: it failed.
        """
        if self.counts:
            return
        output, errors = self.emulator.communicate(timeout=20)
        if self.emulator.returncode:
            last = (errors.strip().splitlines() or ["no message"])[-1]
            raise NdmError(f"path emulator failed: {last}")
        self.counts = json.loads(output)


def _configure(namespace: str, device: str, address: str, peer: str) -> None:
    inside = ("ip", "-n", namespace)
    command("ip", "link", "set", device, "netns", namespace)
    command(*inside, "link", "set", "lo", "up")
    command(*inside, "addr", "add", address, "peer", peer, "dev", device)
    command(*inside, "link", "set", device, "mtu", str(MTU_BYTES), "txqueuelen", "10000", "up")


@contextlib.contextmanager
def path_up(spec: LinkSpec, port: int, drops: Path) -> Iterator[HostPath]:
    """Bring up a path; take everything down again at the end, on errors and signals too.

    Args:
        spec: the path's treatment of packets.
        port: TCP port, at the sender, of the flow that is impaired and logged.
        drops: where the emulator writes the dropped packets, as CSV.

    Raises:
        NdmError: not root, no TUN devices, or `ip` is missing.
    """
    if os.geteuid() != 0:
        raise NdmError("network namespaces need root; run again as root")
    unique = f"{os.getpid():x}{random.SystemRandom().randrange(1 << 16):04x}"
    names = [f"ndm-{unique}-s", f"ndm-{unique}-r"]
    devices = [f"n{unique}s", f"n{unique}r"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(signals_as_exit())
        descriptors = []
        for name, device in zip(names, devices, strict=True):
            command("ip", "netns", "add", name)
            stack.callback(
                subprocess.run, ["ip", "netns", "del", name], capture_output=True, check=False
            )
            command(
                *("ip", "netns", "exec", name, "sysctl", "-qw"),
                *("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"),
            )
            descriptors.append(open_tun(device))
            stack.callback(os.close, descriptors[-1])
        _configure(names[0], devices[0], SENDER_ADDRESS, RECEIVER_ADDRESS)
        _configure(names[1], devices[1], RECEIVER_ADDRESS, SENDER_ADDRESS)
        setup = {"spec": asdict(spec), "ends": descriptors, "port": port, "drops": str(drops)}
        emulator = subprocess.Popen(
            [sys.executable, "-m", "ndm_tcp.lab.experiments.host_path", json.dumps(setup)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
            start_new_session=True,  # a Ctrl-C must not stop it before its counts are taken
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )

        def stop() -> None:
            if emulator.poll() is None:
                emulator.kill()
            emulator.wait()

        stack.callback(stop)
        assert emulator.stdout is not None
        if emulator.stdout.readline().strip() != "ready":
            _, errors = emulator.communicate(timeout=20)
            last = (errors.strip().splitlines() or ["no message"])[-1]
            raise NdmError(f"path emulator did not start: {last}")
        yield HostPath(names[0], names[1], devices[0], emulator)


def _emulate(setup: dict[str, object]) -> None:
    values = setup["spec"]
    ends, port = setup["ends"], setup["port"]
    assert isinstance(values, dict) and isinstance(ends, list) and isinstance(port, int)
    values["rate_steps"] = tuple((float(t), int(r)) for t, r in values["rate_steps"])
    emulator = Emulator(LinkSpec(**values), ends[0], ends[1], port, Path(str(setup["drops"])))
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        emulator.counts.fifo = True
    print("ready", flush=True)
    emulator.run(sys.stdin.fileno())
    print(json.dumps(emulator.counts.as_dict()))


if __name__ == "__main__":
    _emulate(json.loads(sys.argv[1]))
