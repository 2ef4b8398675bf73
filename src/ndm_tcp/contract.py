# SPDX-License-Identifier: GPL-2.0-only
"""The one table: measurements, the network's memory and outputs, and their number formats.

The C enum, structs, clamps and constants (`kmod/generated/ndm_contract.h`), the NumPy
types and the dataset schema are generated from this module; a test compares the tables of
`docs/contract.md` with it. `HASH` travels in models, headers and vectors, `INTERFACE_HASH` in
checkpoints and ONNX files, `DATA_HASH` in datasets; a loader that meets another hash refuses.
Standard library only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from ndm_tcp.errors import NdmError

REVISION = 4
"""Raised by hand whenever the C features or the inference change their results."""

# --- arithmetic --------------------------------------------------------------------------
Q_INPUT = 12  # inputs: s16, 1.0 = 4096
Q_ACT = 15  # hidden activations: s16, tanh in (-1, 1)
Q_PRE = 16  # pre-activations and outputs: s32
TANH_RANGE_LOG2 = 3  # the table covers |x| < 8; tanh(8) rounds to 1 in Q15
TANH_STEPS_LOG2 = 11  # 2048 intervals, 2049 entries
EXP2_STEPS_LOG2 = 5  # 32 intervals for 2**x on [0, 1]
MAX_WIDTH = 64  # widest hidden layer; bounds the stack of the inference
MAX_LAYERS = 4
WEIGHT_SHIFT_MIN, WEIGHT_SHIFT_MAX = 5, 15  # fractional bits of a weight row
ARITHMETIC = frozenset(
    {
        *("Q_ACT", "Q_PRE", "TANH_RANGE_LOG2", "TANH_STEPS_LOG2", "EXP2_STEPS_LOG2"),
        *("MAX_WIDTH", "MAX_LAYERS", "WEIGHT_SHIFT_MIN", "WEIGHT_SHIFT_MAX"),
    }
)
"""How the network computes; real weights outlive a change of these."""

# --- features ----------------------------------------------------------------------------
ENTROPY_RING = 16  # samples held per entropy, four bits each
RTT_SAMPLES_PER_ROUND = 4  # H_delay must not depend on the ACK rate
RTT_BINS_PER_SRTT = 16  # bin width is srtt / 16, sixteen bins centred on srtt
ENTROPY_LOSS_WEIGHT = 2458  # 0.6 in Q12
ENTROPY_DELAY_WEIGHT = 1638  # 0.4 in Q12; the two add to exactly 1
PLASTICITY_DECAY_SHIFT = 4  # plasticity loses 1/16 per round
MAX_RATE_HALF_ROUNDS = 5  # max_rate: maximum of the last 5 to 10 rounds
FLOOR_HALF_ROUNDS = 4  # queue_floor: extremes of the last 4 to 8 rounds
RATE_SHIFT = 24  # delivery rates: packets per microsecond, Q24, as in tcp_bbr.c
PRIVATE_BYTES = 104  # ICSK_CA_PRIV_SIZE of Linux 6.1 and 6.12


@dataclass(frozen=True)
class Input:
    """A measured input, or the running mean of one."""

    index: int
    """1-based number, as the field's papers and `--mask` count."""
    name: str
    meaning: str
    lo: float
    hi: float
    of: str = ""
    """The input whose mean it is; empty for a measured one."""

    @property
    def lo_q(self) -> int:
        return round(self.lo * (1 << Q_INPUT))

    @property
    def hi_q(self) -> int:
        return round(self.hi * (1 << Q_INPUT))


@dataclass(frozen=True)
class Output:
    """One of the two network outputs."""

    name: str
    meaning: str
    lo: float
    hi: float

    @property
    def lo_q(self) -> int:
        return round(self.lo * (1 << Q_PRE))

    @property
    def hi_q(self) -> int:
        return round(self.hi * (1 << Q_PRE))


@dataclass(frozen=True)
class Memory:
    """The network's first layer: running means of inputs, one state for each flow.

    In a round with inputs each mean moves 1 / 2**shift of the way to its input; the first such
    round sets it. The dense layers take the inputs and the means.
    """

    of: tuple[str, ...]
    """The inputs that are remembered, in their order."""
    shift: int
    """log2 of the rounds that a mean reaches back."""
    bits: int
    """Fractional bits of a mean beyond those of an input."""


@dataclass(frozen=True)
class AckField:
    """One field of the per-ACK record."""

    name: str
    ctype: str
    meaning: str


INPUTS: tuple[Input, ...] = (
    Input(1, "rtt_ratio", "min_rtt / srtt", 0, 1),
    Input(2, "loss_rate", "lost / (lost + delivered) in the round", 0, 1),
    Input(3, "bdp_ratio", "max_rate x min_rtt / cwnd", 0, 2),
    Input(4, "entropy", "0.6 x H_loss + 0.4 x H_delay, each normalised", 0, 1),
    Input(5, "slow_start", "1 if cwnd < ssthresh", 0, 1),
    Input(6, "plasticity", "1 at a loss event, times 15/16 per round", 0, 1),
    Input(7, "rtt_variation", "rttvar / srtt", 0, 2),
    Input(8, "rtt_gradient", "(srtt - srtt of the round before) / srtt of the round before", -1, 1),
    Input(9, "delivery_ratio", "delivery rate / max_rate", 0, 1),
    Input(
        10,
        "queue_floor",
        "(lowest RTT of the last 4-8 rounds - min_rtt) / (highest of them - min_rtt)",
        0,
        1,
    ),
)

"""The measurements of a round; datasets hold these."""

MEMORY = Memory(
    of=(
        *("rtt_ratio", "loss_rate", "bdp_ratio", "plasticity"),
        *("rtt_variation", "rtt_gradient", "delivery_ratio", "queue_floor"),
    ),
    shift=4,
    bits=2,
)
"""All but entropy, which is a memory itself, and the state of slow start. The queue of the sender's
own, a competing flow's and jitter look alike in one round; the rate, RTT, window and losses of many
rounds distinguish them."""


def _mean(number: int, of: Input) -> Input:
    meaning = f"mean of input {of.index} over some {1 << MEMORY.shift} rounds"
    return Input(number, f"{of.name}_mean", meaning, of.lo, of.hi, of.name)


MEANS: tuple[Input, ...] = tuple(
    _mean(number, of)
    for number, of in enumerate((i for i in INPUTS if i.name in MEMORY.of), len(INPUTS) + 1)
)
DENSE: tuple[Input, ...] = INPUTS + MEANS
"""Inputs of the first dense layer: the inputs of a round, then the means."""

OUTPUTS: tuple[Output, ...] = (
    Output("cwnd_gain", "log2 multiplier on cwnd for the next round", -1, 1),
    Output("congestion", "logit that a loss now is congestion, not noise", -8, 8),
)

ACK_FIELDS: tuple[AckField, ...] = (
    AckField("now_us", "u64", "arrival of the ACK, us, any epoch"),
    AckField("rtt_us", "s32", "raw RTT sample of this ACK, us; -1: none"),
    AckField("acked", "u32", "packets newly delivered (cumulatively or by SACK)"),
    AckField("lost", "u32", "packets newly marked lost"),
    AckField("inflight", "u32", "packets in flight after this ACK"),
    AckField("cwnd", "u32", "congestion window, packets, before this ACK changes it"),
    AckField("ssthresh", "u32", "slow start threshold, packets"),
    AckField("srtt_us", "u32", "smoothed RTT, us; 0: none yet"),
    AckField("rttvar_us", "u32", "mean deviation of the RTT, us (tcp_info's rttvar)"),
    AckField("min_rtt_us", "u32", "lowest RTT of the connection, us; 0: none yet"),
    AckField("delivered", "u32", "packets delivered so far, wraps"),
    AckField("prior_delivered", "u32", "`delivered` when the newest packet acked here was sent"),
    AckField("interval_us", "s32", "interval of the rate sample, us; -1: invalid"),
    AckField("app_limited", "u32", "1: the rate sample is limited by the application"),
    AckField("ca_state", "u32", "0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss"),
)

N_INPUTS = len(INPUTS)
N_MEANS = len(MEANS)
N_DENSE = len(DENSE)
N_OUTPUTS = len(OUTPUTS)
MEAN_SHIFT, MEAN_BITS = MEMORY.shift, MEMORY.bits
MEAN_OFFSET = 2 << (Q_INPUT + MEAN_BITS)
"""2.0: a state is a mean plus this, so that 0, which no mean gives, marks a missing mean."""
NETWORK = frozenset({"N_MEANS", "N_DENSE", "N_OUTPUTS", "MEAN_SHIFT", "MEAN_BITS", "MEAN_OFFSET"})
"""Constants of the network; recorded rounds outlive a change of these."""

NUMPY_TYPES = {"u64": "<u8", "s32": "<i4", "u32": "<u4"}
ACK_DTYPE = [(f.name, NUMPY_TYPES[f.ctype]) for f in ACK_FIELDS]
"""NumPy structured type of `struct ndm_ack`: 64 bytes, no padding."""


CONSTANTS = (
    *("REVISION", "Q_INPUT", "Q_ACT", "Q_PRE"),
    *("TANH_RANGE_LOG2", "TANH_STEPS_LOG2", "EXP2_STEPS_LOG2"),
    *("MAX_WIDTH", "MAX_LAYERS", "WEIGHT_SHIFT_MIN", "WEIGHT_SHIFT_MAX"),
    *("ENTROPY_RING", "RTT_SAMPLES_PER_ROUND", "RTT_BINS_PER_SRTT"),
    *("ENTROPY_LOSS_WEIGHT", "ENTROPY_DELAY_WEIGHT", "PLASTICITY_DECAY_SHIFT"),
    *("MAX_RATE_HALF_ROUNDS", "FLOOR_HALF_ROUNDS", "RATE_SHIFT", "PRIVATE_BYTES"),
    *("N_INPUTS", "N_MEANS", "N_DENSE", "N_OUTPUTS", "MEAN_SHIFT", "MEAN_BITS", "MEAN_OFFSET"),
)
"""Constants that C shares with Python, in the order of `ndm_contract.h`."""


def constants() -> dict[str, int]:
    """The values of `CONSTANTS`, by their C names without `NDM_`."""
    return {name: globals()[name] for name in CONSTANTS}


def measured() -> dict[str, object]:
    """Dependencies of recorded rounds, as plain data, in a fixed order."""
    rest = ARITHMETIC | NETWORK
    return {
        "revision": REVISION,
        "constants": {name: value for name, value in constants().items() if name not in rest},
        "inputs": [asdict(i) for i in INPUTS],
        "ack": [asdict(f) for f in ACK_FIELDS],
    }


def interface() -> dict[str, object]:
    """Dependencies of a network in real numbers: those, its memory and its outputs."""
    return {**measured(), "memory": asdict(MEMORY), "outputs": [asdict(o) for o in OUTPUTS]}


def canonical() -> dict[str, object]:
    """All of the contract."""
    return {**interface(), "constants": constants()}


def _hash(contract: dict[str, object]) -> str:
    """First 64 bits of the SHA-256, in hex."""
    return hashlib.sha256(json.dumps(contract, sort_keys=True).encode()).hexdigest()[:16]


HASH = _hash(canonical())
"""The contract: of all of it, on which integers depend. In models, headers, vectors, the module."""
INTERFACE_HASH = _hash(interface())
"""The interface: without the arithmetic, on which a network in real numbers depends. In
checkpoints and ONNX files."""
DATA_HASH = _hash(measured())
"""Hash of the measurements, without the network and its memory. In datasets."""


def require(found: str | None, what: str, remedy: str, ours: str = HASH) -> None:
    """Refuse an artefact made under another contract.

    Args:
        found: the hash it carries, None if it carries none.
        what: the artefact, for the message.
        remedy: the command that makes it anew.
        ours: the hash it should carry.

    Raises:
        NdmError: if it carries another.
    """
    current = (HASH, INTERFACE_HASH, DATA_HASH)
    if found in current and ours not in current:  # wanted of an older one, to convert it
        raise NdmError(
            f"{what}: made for contract {found} already, which is this code's; use it as it is"
        )
    if found != ours:
        part = {INTERFACE_HASH: " (its interface)", DATA_HASH: " (what is measured)"}.get(ours, "")
        raise NdmError(
            f"{what}: made for contract {found or 'unknown'}{part}, this code has {ours}; "
            f"run: {remedy}"
        )
