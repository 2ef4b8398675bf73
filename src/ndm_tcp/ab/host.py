# SPDX-License-Identifier: GPL-2.0-only
"""Polls the TCP sockets of this network namespace by sock_diag(7), with pyroute2."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ndm_tcp.ab.flows import Ends, Flow, Poll, Watched, measure, plain
from ndm_tcp.datasets.recorder.inet_diag import CONG, INFO, STATES
from ndm_tcp.errors import NdmError

NO_MIN_RTT_US = 0xFFFFFFFF
SNMP = Path("/proc/self/net/snmp")
MOUNTS = Path("/proc/self/mountinfo")


def poll_of(info: Mapping[str, int], cc: str, time_s: float) -> Poll:
    """A poll from struct tcp_info, as pyroute2 names its members."""
    lowest = info["tcpi_min_rtt"]
    return Poll(
        time_s=time_s,
        cc=cc,
        acked_bytes=info["tcpi_bytes_acked"],
        sent=info["tcpi_data_segs_out"],
        retransmitted=info["tcpi_total_retrans"],
        rtt_us=info["tcpi_rtt"],
        min_rtt_us=lowest if lowest < NO_MIN_RTT_US else 0,
        inflight=info["tcpi_unacked"],
        app_limited=bool(info["tcpi_delivery_rate_app_limited"]),
        busy_us=info["tcpi_busy_time"],
        rwnd_limited_us=info["tcpi_rwnd_limited"],
        sndbuf_limited_us=info["tcpi_sndbuf_limited"],
    )


def opened(path: Path = SNMP) -> tuple[int, int, int]:
    """Counts of this network namespace since its beginning: connections opened by it, opened by
    others, and attempts that failed, of which those of others were never opened."""
    rows = [line.split() for line in path.read_text().splitlines() if line.startswith("Tcp:")]
    tcp = {name: int(value) for name, value in zip(*rows[:2], strict=True) if name != "Tcp:"}
    return tcp["ActiveOpens"], tcp["PassiveOpens"], tcp["AttemptFails"]


def cgroup_root(mounts: Path = MOUNTS) -> Path | None:
    """Where control groups of version 2 are: the kernel numbers a socket's group among these."""
    for line in mounts.read_text().splitlines():
        place, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return Path(place.split()[4])
    return None


def cgroup_names(root: Path | None) -> dict[int, str]:
    """Paths of the control groups by their number, which is the inode of their folder."""
    found = {}
    for folder, _, _ in os.walk(root) if root else ():
        try:
            found[Path(folder).stat().st_ino] = folder.removeprefix(str(root)) or "/"
        except OSError:
            continue  # it ended meanwhile
    return found


@dataclass
class Host:
    """The sockets of this host over some polls."""

    least_s: float
    """flows that were watched for less are left out"""
    watched: dict[tuple[int, Ends], tuple[Watched, int]] = field(default_factory=dict)
    """cookie and ends to the polls and the number of the cgroup"""
    there_before: int = 0
    """of these, connections of the first poll"""
    opened_before: tuple[int, int, int] = (0, 0, 0)
    polls: int = 0

    def poll(self, sockets: Any) -> None:
        """Look at all sockets once.

        Args:
            sockets: an open pyroute2.DiagSocket.
        """
        if not self.polls:
            self.opened_before = opened()
        for family in (socket.AF_INET, socket.AF_INET6):
            extensions = 1 << (INFO - 1) | 1 << (CONG - 1)
            found = sockets.get_sock_stats(family=family, states=STATES, extensions=extensions)
            now = time.monotonic()
            for message in found:
                self._take(message, now)
        if not self.polls:
            self.there_before = len(self.watched)
        self.polls += 1

    def _take(self, message: Any, now: float) -> None:
        ends = Ends(
            plain(message["idiag_src"]),
            message["idiag_sport"],
            plain(message["idiag_dst"]),
            message["idiag_dport"],
        )
        key = (message["idiag_cookie"], ends)
        info, cc = message.get_attr("INET_DIAG_INFO"), message.get_attr("INET_DIAG_CONG")
        if info is None or cc is None:
            return
        made = poll_of(info, cc, now)
        if key in self.watched:
            self.watched[key][0].add(made)
        else:
            self.watched[key] = (Watched(made), message.get_attr("INET_DIAG_CGROUP_ID") or 0)

    def flows(self) -> list[Flow]:
        """What the polls measured, flow by flow."""
        numbered = any(number for _, number in self.watched.values())
        names = cgroup_names(cgroup_root()) if numbered else {}
        return [
            measure(ends, seen, self.least_s, names.get(number, str(number)))
            for (_, ends), (seen, number) in self.watched.items()
        ]

    def missed(self) -> int:
        """Connections that were opened and closed between two polls, at least."""
        grown = [now - then for now, then in zip(opened(), self.opened_before, strict=True)]
        active, passive, failed = grown
        new = len(self.watched) - self.there_before
        return max(active - min(failed, active) + passive - new, 0)


def watch(seconds: float, every_s: float, host: Host) -> Iterator[float]:
    """Poll until the time is over; yields the seconds that have passed after each poll.

    Raises:
        NdmError: the kernel does not answer.
    """
    from pyroute2 import DiagSocket
    from pyroute2.netlink.exceptions import NetlinkError

    begin = time.monotonic()
    try:
        with DiagSocket() as sockets:
            sockets.bind()
            while True:
                host.poll(sockets)
                passed = time.monotonic() - begin
                yield passed
                if passed >= seconds:
                    return
                time.sleep(max(min(host.polls * every_s, seconds) - passed, 0))
    except (NetlinkError, OSError) as error:
        raise NdmError(
            f"sock_diag: the kernel does not answer ({error}); load tcp_diag: modprobe tcp_diag"
        ) from None
