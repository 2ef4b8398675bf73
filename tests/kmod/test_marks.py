# SPDX-License-Identifier: GPL-2.0-only
"""What a mark begins and something else ends: a timeout, a silence."""

from __future__ import annotations

from pathlib import Path

from .test_cases import play

MARKED = """
for n in s d; do guest in $n sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_ecn'; done
path() { guest in r tc qdisc replace dev b0 root netem limit 1000 delay 20ms "$@"; }
"""
LOSS, CWR = 4, 2


def test_a_timeout_after_a_mark_halves_the_window(flow: Path, tmp_path: Path) -> None:
    """The core calls ssthresh() for the mark alone, and the mark takes a fifth."""
    script = f"""{MARKED}
path rate 8mbit
{{ sleep 2; path rate 8mbit loss 100% ecn; sleep .16; forth 1000 delay 20ms loss 100%
sleep 2; forth 1000 delay 20ms rate 8mbit; }} &
flow send 10.2.0.2 5000 ndm_tcp send:4000000 info
counter TCPTimeouts
"""
    seen = play(script, flow, tmp_path)
    assert seen.value("TCPTimeouts") > 0 and seen.rounds is not None
    rows = seen.rounds.to_pylist()
    number = next(i for i, row in enumerate(rows) if row["ca_state"] == LOSS)
    marked, timeout = rows[number - 1], rows[number]
    assert marked["ca_state"] == CWR
    window = rows[number - 2]["target"]
    assert marked["ssthresh"] > 0.7 * window, "the mark took a fifth"
    assert timeout["ssthresh"] <= 0.52 * window


def test_a_silence_ends_what_a_mark_began(flow: Path, tmp_path: Path) -> None:
    """The mark of the last packet: the core waits in CWR for the next ACK, which must not raise
    the window to the threshold at once."""
    script = f"""{MARKED}
state tcp_slow_start_after_idle 0
path rate 30mbit
{{ sleep 3; path rate 30mbit loss 100% ecn; sleep 3; path rate 30mbit
state tcp_slow_start_after_idle 1; }} &
flow send 10.2.0.2 5000 ndm_tcp send:3000000 sleep:3000 send:1000 info sleep:6000 \
put:1000 info sleep:200 info
"""
    seen = play(script, flow, tmp_path)
    assert int(seen.info[0]["ce"]) == 1 and int(seen.info[1]["ssthresh"]) > 40
    assert seen.cwnd(1) <= 10  # of one packet in flight the core takes less than the initial window
    assert seen.cwnd(2) <= 12
