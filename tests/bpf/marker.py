# SPDX-License-Identifier: GPL-2.0-only
"""A path in user space between two network namespaces: a rate, a queue, and CE marks.

Kernels without a queue that marks can still be tested so. Run as root:
python marker.py SENDER RECEIVER; ends with its input, and prints the number of marks.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque

from pyroute2 import netns

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
RATE_BPS, DELAY_S = 8e6, 0.02
MARKED_FROM = 12
"""packets in the queue"""
MOST = 200


def device(namespace: str, address: str) -> int:
    """A tun device of a namespace; its packets pass through the descriptor."""
    netns.pushns(namespace)
    try:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", b"tun0", IFF_TUN | IFF_NO_PI))
    finally:
        netns.popns()
    for words in (["addr", "add", f"{address}/24", "dev", "tun0"], ["link", "set", "tun0", "up"]):
        subprocess.run(["ip", "-n", namespace, *words], check=True)
    return tun


def marked(packet: bytes) -> bytes | None:
    """The packet with CE and its checksum; None if its sender does not take marks."""
    if packet[0] >> 4 != 4 or not packet[1] & 3 or packet[1] & 3 == 3:
        return None
    head = bytearray(packet[:20])
    head[1] |= 3
    head[10:12] = b"\0\0"
    total = sum(struct.unpack(">10H", head))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    head[10:12] = struct.pack(">H", ~total & 0xFFFF)
    return bytes(head) + packet[20:]


def shuttle(there: int, back: int) -> int:
    """Carry packets; returns how many were marked on their way there."""
    marks, free_s = 0, 0.0
    queue: deque[tuple[float, int, bytes]] = deque()
    line: deque[tuple[float, int, bytes]] = deque()
    while True:
        ready = select.select([there, back, sys.stdin], [], [], 0.001)[0]
        if sys.stdin in ready:
            return marks
        now = time.monotonic()
        for tun in ready:
            packet = os.read(tun, 65535)
            if tun == back:
                line.append((now + DELAY_S, there, packet))
                continue
            waiting = sum(at > now for at, _, _ in queue)
            if waiting >= MOST:
                continue
            if waiting >= MARKED_FROM and (with_ce := marked(packet)) is not None:
                packet, marks = with_ce, marks + 1
            free_s = max(free_s, now) + 8 * len(packet) / RATE_BPS
            queue.append((free_s, back, packet))
        for leaving in (queue, line):
            while leaving and leaving[0][0] <= now:
                _, to, packet = leaving.popleft()
                os.write(to, packet)


if __name__ == "__main__":
    tuns = [device(name, f"10.7.0.{k}") for k, name in enumerate(sys.argv[1:3], start=1)]
    print("ready", flush=True)
    print(shuttle(tuns[0], tuns[1]), flush=True)
