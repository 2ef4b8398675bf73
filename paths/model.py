# SPDX-License-Identifier: GPL-2.0-only
"""A path model: the values of a path that a capture of one flow shows, and how surely.

Every value has a kind, so that no consumer mistakes a bound or an assumption for a measurement:

    measured   the capture shows it; `low` and `high` are a 95 % interval
    at_least   a lower bound: the path was never driven further
    at_most    an upper bound
    assumed    the capture does not show it, and something has to stand here

A model is a JSON file. `scenario.py` turns it into a path of the lab.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ndm_tcp import files
from ndm_tcp.errors import NdmError
from ndm_tcp.lab.paths.levels import mean
from ndm_tcp.lab.paths.scenario import Burst
from ndm_tcp.lab.paths.truth import IP_PACKET_BYTES

HEADER_BYTES = 52
"""IPv4 and TCP with time stamps: assumed where the packets were not seen"""
FORMAT = 1
"""of the file; another one is refused"""


class Kind(enum.StrEnum):
    """How surely a value is known."""

    MEASURED = "measured"
    AT_LEAST = "at_least"
    AT_MOST = "at_most"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Value:
    """A number, its interval, and its kind."""

    value: float
    low: float
    high: float
    kind: Kind = Kind.MEASURED

    @classmethod
    def exact(cls, value: float, kind: Kind = Kind.MEASURED) -> Value:
        """A value without an interval."""
        return cls(value, value, value, kind)


@dataclass(frozen=True)
class Level:
    """The bottleneck's rate from a time on."""

    from_s: float
    """s since the flow's first ACK; 0 for the first level"""
    rate_bps: Value
    """bit/s, IP headers included"""


@dataclass(frozen=True)
class Rival:
    """A competing flow."""

    cc: str
    """the algorithm that stands for it"""
    kind: Kind
    """of `cc`: measured if the capture shows the algorithm's kind, else assumed"""
    start_s: float
    """s since the flow's first ACK; 0: it was there before, or its start is not known"""


@dataclass(frozen=True)
class Seen:
    """Measures of the flow itself, which a replay has to meet."""

    goodput_mbps: float
    """payload that was acknowledged, over the whole flow"""
    rtt_mean_ms: float
    """mean of the smoothed RTT over ACKs' times"""
    rtt_p95_ms: float
    retransmission_rate: float
    """retransmitted over sent segments"""
    share: float | None = None
    """of the goodput of all flows; None: alone, or, in a capture, not known"""
    fair: float | None = None
    """what the share would be if all flows had the same"""


@dataclass(frozen=True)
class PathModel:
    """The path of one flow, estimated from the sender's side."""

    name: str
    """of the source, and of the flow in it; letters, digits, . _ -"""
    source: str
    """file name of the capture or log, without its folders"""
    flow_id: str
    sampling: str
    """per_ack, poll, or profile (imported)"""
    cc: str | None
    """the sender's congestion control; null if unknown"""
    seconds: float
    """from the first ACK to the last"""
    mss: int
    """payload bytes of a full segment"""
    levels: tuple[Level, ...]
    """at least one"""
    rtt_us: Value
    """baseline RTT"""
    queue_packets: Value
    """size of the bottleneck's queue, packets"""
    qdisc: str
    """droptail, fq, fq_codel or cake"""
    loss: Value
    """random loss, probability per packet; with a burst, its long-run mean"""
    burst: Burst | None
    """null: losses are independent"""
    jitter_us: Value
    """standard deviation, us"""
    reorder: bool
    """may packets overtake one another?"""
    ack_hold_us: Value
    """longest time between two groups of ACKs, us; 0: ACKs are not gathered"""
    rivals: tuple[Rival, ...]
    joined: bool
    """the flow joined rivals that were there: rate and baseline RTT are bounds"""
    bucket_packets: Value
    """depth of the bottleneck's token bucket; above 1 it is a policer, which has no queue"""
    app_limited: float
    """part of the ACKs, or of the time if that is more, in which the application had no data"""
    rwnd_limited: float
    """share of the ACKs at which the receiver's window held the flow back"""
    seen: Seen | None
    """null: the model was imported, not estimated from a flow"""
    label_error_log2: float
    """expected error of the target window from this model, |log2|; see `label.py`"""
    notes: tuple[str, ...]
    """what the capture cannot show, one sentence each"""
    header_bytes: int = HEADER_BYTES
    """IP and TCP of a full segment"""
    buffer_bytes: int = 0
    """of the receiver, by its window scale; 0: not known"""
    path: int = 0
    """number of the path, one for all flows between the same two hosts; 0: not known"""
    window_bdp: float = 0.0
    """the constant window that scored best on the model, in BDPs (adapt/windows.py); 0: not
    measured"""

    def _mean(self, values: Sequence[float]) -> float:
        """Of one value a level, over the flow's time."""
        starts = (level.from_s for level in self.levels)
        return mean([*zip(starts, values, strict=True)], self.seconds)

    @property
    def rate_bps(self) -> float:
        """Mean of the levels over the flow's time, bit/s."""
        return self._mean([level.rate_bps.value for level in self.levels])

    @property
    def measured(self) -> float:
        """Share of the flow's time in which its rate is no bound."""
        return self._mean([level.rate_bps.kind == Kind.MEASURED for level in self.levels])

    @property
    def packets_per_s(self) -> float:
        """Full segments that the mean rate carries."""
        return self.rate_bps / 8 / (self.mss + self.header_bytes)

    @property
    def lab_packets(self) -> float:
        """Full packets of the lab that have the bytes of one of the flow's."""
        return (self.mss + self.header_bytes) / IP_PACKET_BYTES

    def times(self, factor: float) -> PathModel:
        """The model whose rates have this many times their values; intervals stay."""
        levels = (
            replace(one, rate_bps=replace(one.rate_bps, value=one.rate_bps.value * factor))
            for one in self.levels
        )
        return replace(self, levels=tuple(levels))

    @property
    def bdp_packets(self) -> float:
        """Bandwidth-delay product, full segments."""
        return self.packets_per_s * self.rtt_us.value / 1e6


@dataclass(frozen=True)
class File:
    """A model's file."""

    format: int
    model: PathModel


SUFFIX = ".path.json"
"""of a model's file"""


def load_all(folder: Path) -> list[PathModel]:
    """The models of a folder, by name.

    Raises:
        NdmError: none there, or a damaged one.
    """
    found = [read(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    if not found:
        raise NdmError(f"{folder}: no path model in it; run: ndm path estimate SOURCE... -o DIR")
    return found


def apart(model: PathModel, taken: Container[str]) -> PathModel:
    """The model under a name that none has yet: two folders may hold files of the same name."""
    name, number = model.name, 2
    while name in taken:
        name, number = f"{model.name}.{number}", number + 1
    return replace(model, name=name)


def write(model: PathModel, path: Path) -> None:
    """Write a model's file, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(File(FORMAT, model)), indent=1)
    files.write_text(path, text.decode() + "\n")


def read(path: Path) -> PathModel:
    """The model of a file.

    Raises:
        NdmError: no such file, not JSON, another format, or a value missing or of another kind.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=File)
    except OSError as error:
        raise NdmError(f"{path}: {files.why(error)}; run: ndm path estimate") from None
    except msgspec.DecodeError as error:
        raise NdmError(f"{path}: not a path model ({error}); run: ndm path estimate") from None
    if found.format != FORMAT:
        raise NdmError(f"{path}: not a path model of format {FORMAT}; run: ndm path estimate")
    if name := _impossible(found.model):
        raise NdmError(
            f"{path}: {name}: no path has this value, or not low <= value <= high; "
            "mend it, or run: ndm path estimate"
        )
    return found.model


def _impossible(model: PathModel) -> str:
    """The first field whose value no path can have; empty if there is none."""
    least = {
        **dict.fromkeys(("seconds", "mss", "rtt_us"), 1e-9),
        **dict.fromkeys(("queue_packets", "jitter_us", "ack_hold_us", "bucket_packets"), 0.0),
        **dict.fromkeys(("loss", "app_limited", "rwnd_limited", "label_error_log2"), 0.0),
        **dict.fromkeys(("header_bytes", "buffer_bytes", "path", "window_bdp"), 0.0),
    }
    most = {"mss": 65535.0, "loss": 1.0, "app_limited": 1.0, "rwnd_limited": 1.0}
    for name, low in least.items():
        if not _within(getattr(model, name), low, most.get(name, math.inf)):
            return name
    starts_s = [level.from_s for level in model.levels]
    if not starts_s or starts_s[0] < 0 or sorted(set(starts_s)) != starts_s:
        return "levels"
    if not all(_within(level.rate_bps, 1e-9, math.inf) for level in model.levels):
        return "rate_bps"
    return ""


def _within(value: Value | float, least: float, most: float) -> bool:
    """Is a number, or a value with its interval, in these bounds?"""
    if isinstance(value, Value):
        return least <= value.low <= value.value <= value.high <= most
    return least <= value <= most
