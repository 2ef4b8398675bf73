# SPDX-License-Identifier: GPL-2.0-only
"""Captures with a link type that the C engine does not know: scapy finds the IP packets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ndm_tcp.datasets.readers import streams
from ndm_tcp.errors import NdmError

RAW_IP = 101  # DLT of the bytes that `frames` gives


def knows(link: int, path: Path) -> bool:
    """True if scapy can dissect the link type of this capture.

    Raises:
        NdmError: scapy is not installed.
    """
    try:
        import scapy.layers.all  # noqa: F401  (fills the table)
        from scapy.config import conf
    except ModuleNotFoundError:
        raise NdmError(
            f"{path}: only scapy reads its link type {link}; run: pip install 'ndm-tcp[scapy]'"
        ) from None

    return link in conf.l2types.num2layer


def frames(path: Path) -> Iterator[tuple[int, bytes, int]]:
    """(time in ns, bytes from the IP header on, their number on the wire) of each IP packet."""
    import scapy.layers.all  # noqa: F401
    from scapy.layers.inet import IP
    from scapy.layers.inet6 import IPv6
    from scapy.utils import PcapReader

    with streams.open_bytes(path) as stream, PcapReader(stream) as reader:  # type: ignore[arg-type]
        for packet in reader:
            layer = packet.getlayer(IP) or packet.getlayer(IPv6)
            if layer is not None:
                data = bytes(layer.original)
                left_out = len(packet.original) - len(data)
                wire = max((packet.wirelen or len(packet.original)) - left_out, len(data))
                yield int(packet.time * 10**9), data, wire
