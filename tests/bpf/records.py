# SPDX-License-Identifier: GPL-2.0-only
"""Scripted flows for bpf/ndm_bpf_record.h: plausible ACKs, and losses of every kind among them."""

from __future__ import annotations

import random
import struct

from ndm_tcp import contract

WORDS = (
    "op arg",
    "mstamp bytes_acked prior_mstamp",
    "interval_us rtt_us",
    "cwnd ssthresh random jiffies packets_out sacked_out lost_out retrans_out max_packets_out "
    "prr_out mss_cache srtt_us mdev_us min_rtt_us delivered delivered_ce lost "
    "total_retrans reord_seen data_segs_out undo_marker tlp_high_seq lsndtime rto "
    "prior_delivered acked_sacked",
    "rs_delivered losses",
    "app_limited advanced cwnd_limited tlp_retrans probing_mtu ns",
)
INPUTS = [name for words in WORDS for name in words.split()]
OUTPUTS = ["cwnd", "ssthresh", "prior_cwnd", "prior_ssthresh", "state", "pacing"]
_FORMAT = struct.Struct(
    "@"
    + "".join(len(w.split()) * k for w, k in zip(WORDS, "IQqIiI", strict=True))
    + f"5IQ13Q{contract.N_MEANS}H"
)
INIT, ACK, CUT, STATE, UNDO, IDLE = range(6)
MARK, LOST, TAIL = range(3)
OPEN, DISORDER, CWR, RECOVERY, LOSS = range(5)
INFINITE = 0x7FFFFFFF
U32 = 0xFFFFFFFF


class Flow:
    """One sender; the seed decides its path, its application and what the path does to it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.base_us = self.random.choice((40, 900, 4000, 20000, 120000))
        self.window = self.random.choice((4, 20, 300, 5000))
        self.lossy = self.random.choice((0.0, 0.01, 0.1, 0.4))
        self.queue = self.random.random() * 3
        self.state = OPEN
        self.values = dict.fromkeys(INPUTS, 0)
        self.values |= {
            "cwnd": 10, "ssthresh": self.random.choice((INFINITE, INFINITE, 30)),
            "random": self.random.getrandbits(32), "mss_cache": self.random.choice((536, 1448)),
            "min_rtt_us": U32, "rto": 250, "mstamp": 10**6 * self.random.randrange(1, 10**6),
            "delivered": self.random.choice((1, U32 - 900)), "cwnd_limited": 1,
        }  # fmt: skip
        self.made = [self.pack(INIT)]

    def pack(self, op: int, arg: int = 0) -> bytes:
        self.values |= {"op": op, "arg": arg}
        return _FORMAT.pack(*(self.values[name] for name in INPUTS), *[0] * (19 + contract.N_MEANS))

    def add(self, op: int, arg: int = 0) -> None:
        self.made.append(self.pack(op, arg))

    def measure(self) -> None:
        """An RTT sample into the kernel's averages."""
        v, r = self.values, self.random
        self.window = min(max(2, self.window + r.randint(-2, 2)), 1 << 19)
        self.queue = min(max(0.0, self.queue + r.uniform(-0.2, 0.2)), 8.0)
        rtt = int(self.base_us * (1 + self.queue * r.random()) * r.choice((1, 1, 1, 1.5)))
        v["rtt_us"] = -1 if r.random() < 0.05 else rtt
        v["min_rtt_us"] = min(v["min_rtt_us"], max(rtt, 1))
        srtt = (v["srtt_us"] >> 3) or rtt
        v["mdev_us"] = int(v["mdev_us"] * 0.75 + abs(rtt - srtt))
        v["srtt_us"] = int(srtt * 7 + rtt)

    def ack(self) -> None:
        v, r = self.values, self.random
        self.measure()
        acked = 0 if r.random() < 0.05 else r.choice((1, 1, 2, 2, 4, 44, r.randint(1, self.window)))
        lost = r.choice((1, 1, 3, self.window // 3)) if r.random() < self.lossy / 8 else 0
        v["mstamp"] += r.randint(1, self.base_us * 2 * max(acked, 1) // self.window + 2)
        v["jiffies"] = v["mstamp"] // 4000 & U32
        v["bytes_acked"] += acked * v["mss_cache"]
        v["delivered"] = v["delivered"] + acked & U32
        v["lost"] = v["lost"] + lost & U32
        v["losses"], v["acked_sacked"] = lost, acked
        v["prior_mstamp"] = v["mstamp"] - v["srtt_us"] // 8 if acked else 0
        flight = r.randint(1, self.window)
        v["prior_delivered"] = v["delivered"] - acked - flight & U32 if acked else 0
        v["rs_delivered"] = -1 if r.random() < 0.03 else acked + flight
        v["interval_us"] = r.choice((-1, 1, v["srtt_us"] >> 3, v["srtt_us"] >> 3))
        v["packets_out"] = r.randint(0, self.window)
        v["max_packets_out"] = max(v["packets_out"], r.randint(0, self.window))
        v["sacked_out"] = r.randint(0, v["packets_out"] // 2) if self.state else 0
        v["lost_out"] = r.randint(0, v["packets_out"] // 2) if self.state else 0
        v["retrans_out"] = r.randint(0, v["lost_out"])
        v["total_retrans"] += v["retrans_out"] > 0
        v["prr_out"] += r.randint(0, acked + 1)
        v["data_segs_out"] += acked
        v["app_limited"] = int(r.random() < 0.15)
        v["cwnd_limited"] = int(r.random() < 0.85)
        v["advanced"] = int(r.random() < 0.9)
        v["tlp_high_seq"] = int(r.random() < 0.05)
        v["tlp_retrans"] = int(r.random() < 0.3)
        v["reord_seen"] += r.random() < 0.002
        if r.random() < 0.01:
            v["probing_mtu"] = r.choice((0, 1460))
        self.add(ACK)

    def turn(self) -> None:
        """The core finds a loss, a mark, a timeout, or that it was wrong."""
        r, v = self.random, self.values
        if self.state == OPEN:
            if r.random() > 0.02 + self.lossy / 4:
                return
            self.state = r.choice((RECOVERY, RECOVERY, RECOVERY, CWR, LOSS))
            v["undo_marker"] = int(self.state != CWR)
            v["prr_out"] = 0
            self.cut()
        elif r.random() < 0.1:
            if v["undo_marker"] and r.random() < 0.3:
                self.add(UNDO)
            self.state = r.choice((OPEN, OPEN, OPEN, DISORDER if self.state != LOSS else OPEN))
            v["undo_marker"] = 0
        elif self.state == RECOVERY and r.random() < 0.02:
            self.state = LOSS
        else:
            return
        self.add(STATE, self.state)
        if self.state == DISORDER:
            self.state = OPEN
            self.add(STATE, OPEN)

    def cut(self) -> None:
        """A loss; or a mark, which is counted, or a loss that a tail loss probe repaired."""
        v = self.values
        kind = LOST if self.state != CWR else self.random.choice((MARK, TAIL))
        if kind == LOST and self.random.random() < 0.2:
            kind = MARK
        v["delivered_ce"] += kind == MARK
        if kind == TAIL:
            v |= {"tlp_retrans": 1, "lost_out": 0, "sacked_out": 0}
        self.add(CUT, kind)

    def idle(self) -> None:
        v = self.values
        v["packets_out"] = 0
        v["lsndtime"] = v["jiffies"]
        v["jiffies"] = v["jiffies"] + self.random.choice((10, 300, 2000)) & U32
        v["mstamp"] += 10**6
        self.add(IDLE)


def flow(seed: int, acks: int, timed: bool = False) -> bytes:
    """The records of one flow; timed: the programs write how long each took."""
    made = Flow(seed)
    made.values["ns"] = int(timed)
    for _ in range(acks):
        made.turn()
        made.ack()
        if made.random.random() < 0.003:
            made.idle()
    return b"".join(made.made)


def inputs(record: bytes) -> dict[str, int]:
    """What a record says of the socket."""
    return dict(zip(INPUTS, _FORMAT.unpack(record), strict=False))


def outputs(record: bytes) -> dict[str, int]:
    """What came out of a record, but the private area."""
    values = _FORMAT.unpack(record)[len(INPUTS) :]
    return dict(zip(OUTPUTS, values, strict=False))


def left(record: bytes) -> tuple[int, ...]:
    """What the simulator writes, too: window, threshold, pacing rate, private area and memory."""
    cwnd, ssthresh, _, _, _, *rest = _FORMAT.unpack(record)[len(INPUTS) :]
    return (cwnd, ssthresh, *rest)


def memory(record: bytes) -> tuple[int, ...]:
    """The network's memory after a record."""
    found: tuple[int, ...] = _FORMAT.unpack(record)[-contract.N_MEANS :]
    return found


def split(text: bytes) -> list[bytes]:
    """Records one by one."""
    return [text[i : i + _FORMAT.size] for i in range(0, len(text), _FORMAT.size)]
