# SPDX-License-Identifier: GPL-2.0-only
"""The TCP sockets of this host by sock_diag(7): ports, inode, congestion control, tcp_info."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR, NLMSG_DONE = 2, 3
NETLINK_SOCK_DIAG = 4
INFO, CONG = 2, 4  # INET_DIAG_INFO, INET_DIAG_CONG
STATES = 1 << 1 | 1 << 4 | 1 << 8 | 1 << 9 | 1 << 11
"""ESTABLISHED, FIN_WAIT1, CLOSE_WAIT, LAST_ACK, CLOSING: those that may have data in flight."""
HEADER = struct.Struct("=IHHII")  # nlmsghdr
MESSAGE_BYTES = 72  # inet_diag_msg
COOKIE = slice(44, 52)
INODE_AT = 68
RECEIVE_BYTES = 1 << 18


@dataclass(frozen=True)
class Socket:
    """One TCP socket at one moment."""

    port: int
    peer_port: int
    cookie: bytes
    """of this socket alone: others may have the same ports, to another address or later"""
    inode: int
    """0 once no process holds it"""
    cc: str
    info: bytes
    """struct tcp_info as the kernel has it"""


class Diag:
    """A netlink socket that requests all TCP sockets of this network namespace."""

    def __init__(self) -> None:
        self.netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG)
        self.netlink.settimeout(2)

    def close(self) -> None:
        """Give the socket back."""
        self.netlink.close()

    def sockets(self) -> Iterator[Socket]:
        """Every open TCP socket, IPv4 and IPv6.

        Raises:
            OSError: the kernel refuses.
        """
        for family in (socket.AF_INET, socket.AF_INET6):
            extensions = 1 << (INFO - 1) | 1 << (CONG - 1)
            request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, extensions, 0, STATES)
            size = HEADER.size + len(request)
            head = HEADER.pack(size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 1, 0)
            self.netlink.send(head + request)
            yield from self._answers()

    def _answers(self) -> Iterator[Socket]:
        while True:
            data, at = self.netlink.recv(RECEIVE_BYTES), 0
            while at + HEADER.size <= len(data):
                size, kind, *_ = HEADER.unpack_from(data, at)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", data, at + HEADER.size)[0]
                    raise OSError(code, "sock_diag")
                found = _socket(data[at + HEADER.size : at + size])
                if found is not None:
                    yield found
                at += (size + 3) & ~3


def _socket(message: bytes) -> Socket | None:
    attributes, at = {}, MESSAGE_BYTES
    while at + 4 <= len(message):
        size, kind = struct.unpack_from("=HH", message, at)
        if size < 4:
            break
        attributes[kind] = message[at + 4 : at + size]
        at += (size + 3) & ~3
    if INFO not in attributes:
        return None
    port, peer_port = struct.unpack_from(">HH", message, 4)
    (inode,) = struct.unpack_from("=I", message, INODE_AT)
    cc = attributes.get(CONG, b"").rstrip(b"\0").decode("ascii", errors="replace")
    return Socket(port, peer_port, message[COOKIE], inode, cc, attributes[INFO])
