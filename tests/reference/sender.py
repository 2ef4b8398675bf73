# SPDX-License-Identifier: GPL-2.0-only
"""Replays a captured connection through the sender's own bookkeeping.

From the data packets that left and the ACKs that came back, this rebuilds what the kernel
knew at each ACK: RTT samples by the rule of tcp_clean_rtx_queue(), srtt by RFC 6298 as in
tcp_rtt_estimator(), delivery rate as in tcp_rate.c (draft-cheng-iccrg-delivery-rate-
estimation), losses by RACK (RFC 8985), recovery by RFC 6675. The window is not on the wire:
it is estimated from the packets in flight, unless `truth` knows better.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from ndm_tcp.datasets.rounds.flow import ACK_DTYPE, INITIAL_SSTHRESH, AckArray, LossCause

from .estimators import RttEstimator, WindowedMin
from .sender_state import (
    DISORDER,
    DUPTHRESH,
    HELD_ACKS,
    LEFT_SLOW_START,
    LOSS,
    MIN_RTT_WINDOW_US,
    OPEN,
    RECOVERY,
    REO_PERSIST,
    _Edges,
    _is_dsack,
    _Packet,
    _RateSample,
    _Stamps,
    _unwrap,
    cause_of,
    is_rto,
    overtaken,
)
from .tcp_options import Options


class SenderReplay:
    """One direction of a connection; feed it packets in order, then ask for `records`."""

    def __init__(
        self, mss: int, wscale: int | None, loss_cause: dict[int, list[tuple[int, int]]] | None
    ) -> None:
        """
        Args:
            mss: payload bytes of a full segment.
            wscale: the receiver's window scale; None if the handshake was not captured.
            loss_cause: 32-bit sequence number to [(time in us, LossCause)] for every packet
                the path dropped; None where the path did not tell.
        """
        self.mss = mss
        self.wscale = wscale
        self.causes = loss_cause
        self.rtt = RttEstimator()
        self.min_rtt = WindowedMin(MIN_RTT_WINDOW_US)
        self.packets: list[_Packet] = []
        self.starts: list[int] = []
        self.head, self.una, self.nxt = 0, -1, -1
        self.top_sacked = self.beyond = -1
        self.closed = self.fin = False
        self.fins_resent = 0
        self.sacked_out = self.lost_out = self.resent_out = 0
        self.marked, self.marked_cause = 0, int(LossCause.UNKNOWN)
        self.entered = self.keepalives = 0
        self.delivered = 0
        self.delivered_us = self.first_tx_us = 0
        self.app_limited = 1  # the first flight counts as limited, as in the kernel
        self.state, self.high_seq = OPEN, 0
        self.rack_sent_us = self.rack_end = self.rack_rtt_us = 0
        self.reordered = self.rack_advanced = self.dsack_seen = False
        self.reo_steps, self.reo_persist, self.reo_mark = 1, 0, 0
        self.repeated, self.probe_end = 0, -1
        self.window, self.last_progress_us = -1, 0
        self.stamps, self.edges = _Stamps(), _Edges(mss)
        self.ssthresh = INITIAL_SSTHRESH
        self.peak = self.last_peak = self.peak_mark = 0
        self.full_peak = self.flat_rounds = 0
        self.retransmitted = self.dsacks = self.held = 0
        self.sent_segments = self.rtos = 0
        self.sample = _RateSample()
        self.rows: list[tuple[int, ...]] = []
        self.cause_rows: list[int] = []
        self.rwnd_rows: list[bool] = []
        self.rtt_rows: list[int] = []

    # --- what leaves ---------------------------------------------------------------------

    def _packets_out(self) -> int:
        return len(self.packets) - self.head

    def inflight(self) -> int:
        """Packets in flight: out - sacked - lost + retransmitted, as the kernel counts."""
        return self._packets_out() - self.sacked_out - self.lost_out + self.resent_out

    def _stamp(self, packet: _Packet, now_us: int) -> None:
        if not self._packets_out():
            self.first_tx_us = self.delivered_us = now_us
        packet.sent_us = now_us
        packet.first_tx_us = self.first_tx_us
        packet.delivered_us = self.delivered_us
        packet.delivered = self.delivered
        packet.app_limited = bool(self.app_limited)
        packet.rate_taken = False

    def sent(self, now_us: int, seq32: int, length: int, options: Options) -> None:
        """A data packet (or TSO super-packet) left the sender."""
        if self.nxt < 0:
            self.una = self.nxt = seq32
        seq = _unwrap(seq32, self.nxt)
        end = seq + length
        probe = seq == self.una - 1 or (self.closed and seq == self.nxt)
        if length == 1 and not self._packets_out() and probe:
            self.beyond = max(self.beyond, seq + 1) if seq == self.nxt else self.beyond
            self.keepalives += 1  # and probes of the window
            return
        if options.ts:
            self.stamps.note(options.ts[0], now_us)
        self.sent_segments += -(-length // self.mss)
        at = max(bisect_left(self.starts, seq, self.head), self.head)
        before = self.packets[at - 1].end if at > self.head else self.una
        soon_us = now_us - self.rtt.srtt_us / 2
        if seq < self.nxt and not overtaken(before, self.packets[at : at + 1], seq, end, soon_us):
            self._resent(now_us, seq, min(end, self.nxt))
            seq, at = self.nxt, len(self.packets)
        if not self._packets_out() and self.rows and end > seq:
            self.app_limited = self.delivered + 1
        for place, first in enumerate(range(seq, end, self.mss)):
            packet = _Packet(first, min(first + self.mss, end), place)
            self._stamp(packet, now_us)
            self.packets.insert(at + place, packet)
            self.starts.insert(at + place, first)
        self.nxt = max(self.nxt, end)
        self.peak = max(self.peak, self.inflight())

    def finished(self, seq32: int, alone: bool) -> None:
        """A FIN with this sequence number left, alone or behind data."""
        if self.nxt < 0:
            self.una = self.nxt = seq32
        seq = _unwrap(seq32, self.nxt)
        if self.fin:
            self.fins_resent += alone
            return
        self.nxt = max(self.nxt, seq)
        self.fin = True
        self.beyond = max(self.beyond, seq + 1)

    def _resent(self, now_us: int, seq: int, end: int) -> None:
        self.retransmitted += -(-(end - seq) // self.mss)
        self._note_edges(seq, end)
        i = max(bisect_left(self.starts, seq, self.head), self.head)
        first = self.packets[i : i + 1] if i == self.head else []
        if first and is_rto(now_us - max(self.last_progress_us, first[0].sent_us), self.rtt):
            self._enter_loss(now_us)
        for packet in self.packets[i:]:
            if packet.seq >= end:
                break
            tail = packet.end == self.nxt and not packet.lost and self.state < RECOVERY
            # By a timer, or its last repetition would not have been the last.
            if not packet.sacked and not tail and (not packet.lost or packet.resent_out):
                self._mark_lost(packet)
            if tail:
                self.probe_end = packet.end
            self._stamp(packet, now_us)
            packet.resent = True
            if not packet.resent_out and not packet.sacked:
                packet.resent_out = True
                self.resent_out += 1

    def _note_edges(self, *edges: int) -> None:
        for edge in edges:
            self.edges.note(self.packets, self.starts, self.head, edge)

    def _mark_lost(self, packet: _Packet) -> None:
        """A packet is lost, or its repetition is: what the kernel counts in tp->lost."""
        if packet.resent_out:
            packet.resent_out = False
            self.resent_out -= 1
        if not packet.lost:
            packet.lost = True
            self.lost_out += 1
        self.marked += 1
        self.marked_cause = max(self.marked_cause, cause_of(self.causes, packet))

    def _enter_loss(self, now_us: int) -> None:
        """All is lost but what left less than an RTT ago."""
        self.rtos += 1
        self.ssthresh = max(self._cwnd() // 2, 2)
        self.state = LOSS
        self.high_seq = self.nxt
        self.probe_end = -1
        self.peak = self.last_peak = 1
        for number, packet in enumerate(self.packets[self.head :]):
            if packet.sacked or (packet.lost and not packet.resent_out):
                continue
            if number and self.rack_rtt_us > now_us - packet.sent_us:
                continue
            self._mark_lost(packet)

    # --- what comes back -----------------------------------------------------------------

    def acked(self, now_us: int, ack32: int, window: int, options: Options) -> None:
        """An ACK arrived."""
        if self.nxt < 0:
            return
        ack = _unwrap(ack32, self.una)
        if ack < self.una:
            self._overtaken(now_us, ack, options)
            return
        self.closed = not window
        if self.nxt < ack <= self.beyond:
            if not self._packets_out():
                self.nxt = ack
            ack = self.nxt
        if ack > self.nxt or not self._packets_out():
            if ack <= self.nxt:
                self.delivered += self._repeated(ack, options.sack)
            self.window = window << (self.wscale or 0)
            self.una = max(self.una, min(ack, self.nxt))
            return
        before = self.delivered
        self.held = self.held + 1 if self.state < RECOVERY and self._held() else 0
        self.sample = _RateSample()
        twice = self._repeated(ack, options.sack)
        self.delivered += twice
        if ack > self.probe_end:
            self.probe_end = -1
        rtt_us, ca_rtt_us, captured_us = self._take_ack(now_us, ack, options)
        if ack > self.una:
            self._note_edges(ack)
        newly = self.delivered - before
        if newly > twice or ack > self.una:
            self.last_progress_us = now_us
        self.una = ack
        self.window = window << (self.wscale or 0)
        if rtt_us >= 0:
            self.min_rtt.update(now_us, max(ca_rtt_us, 1) + (1000 if captured_us >= 0 else 0))
            self.rtt.update(max(rtt_us, 1))
        self._adapt_reo_window()
        self._rack(now_us)
        lost, cause = self.marked, self.marked_cause
        self._advance_state(lost - self.entered)
        self.marked, self.marked_cause, self.entered = 0, int(LossCause.UNKNOWN), 0
        self._record(now_us, ca_rtt_us, newly, lost, cause)
        self.rtt_rows.append(captured_us if captured_us >= 0 else ca_rtt_us)
        self.rwnd_rows.append(self.held >= HELD_ACKS or self._held())
        self._compact()

    def _held(self) -> bool:
        known = self.wscale is not None and self.window >= 0
        return known and self.una + self.window - self.nxt < self.mss

    def _overtaken(self, now_us: int, ack: int, options: Options) -> None:
        """An ACK came after a later one: its blocks count, but not as delivered."""
        if not options.sack:
            return
        self._repeated(ack, options.sack)
        delivered, self.sample = self.delivered, _RateSample()
        self._take_ack(now_us, self.una, options)
        self.delivered = delivered
        self._rack(now_us)
        self._advance_state(self.marked - self.entered)
        self.entered = self.marked

    def _deliver(self, packet: _Packet) -> None:
        """Count a packet and keep the newest one's state for the rate sample."""
        self.delivered += 1
        if packet.rate_taken:
            return
        packet.rate_taken = True
        sample = self.sample
        if sample.end < 0 or (packet.sent_us, packet.end) > (self.first_tx_us, sample.end):
            sample.prior_delivered = packet.delivered
            sample.prior_us = packet.delivered_us
            sample.end = packet.end
            sample.send_us = packet.sent_us - packet.first_tx_us
            sample.app_limited = packet.app_limited
            self.first_tx_us = packet.sent_us

    def _rack_advance(self, now_us: int, packet: _Packet) -> None:
        rtt = now_us - packet.sent_us
        if packet.resent and rtt < self.min_rtt.value:
            return
        self.rack_rtt_us = rtt
        self.rack_advanced = True
        if (packet.sent_us, packet.end) > (self.rack_sent_us, self.rack_end):
            self.rack_sent_us, self.rack_end = packet.sent_us, packet.end

    def _take_ack(self, now_us: int, ack: int, options: Options) -> tuple[int, int, int]:
        """Remove and mark packets.

        Returns: the RTTs for srtt and controller; if a timestamp's, not rounded, else -1.
        """
        first_sack = last_sack = first_ack = last_ack = -1
        old_top = self.top_sacked
        # The kernel walks its queue once, so it takes the blocks in order of their numbers.
        blocks = [tuple(_unwrap(edge, self.una) for edge in block) for block in options.sack]
        for left, right in sorted(blocks, key=lambda block: block[0]):
            if right <= ack or right > self.nxt or left >= right:
                continue
            before = self.sacked_out
            for i in range(bisect_left(self.starts, left, self.head), len(self.packets)):
                packet = self.packets[i]
                if packet.end > right:
                    break
                if packet.sacked:
                    continue
                self._deliver(packet)
                self._rack_advance(now_us, packet)
                packet.sacked = True
                self.sacked_out += 1
                self._unmark(packet)
                if not packet.resent:
                    self.reordered |= packet.end <= old_top
                    if first_sack < 0 or packet.sent_us < first_sack:
                        first_sack = packet.sent_us
                    last_sack = max(last_sack, packet.sent_us)
                self.top_sacked = max(self.top_sacked, packet.end)
            if self.sacked_out > before:
                self._note_edges(left, right)
        resent_acked = False
        while self.head < len(self.packets) and self.packets[self.head].end <= ack:
            packet = self.packets[self.head]
            self.head += 1
            if packet.sacked:
                self.sacked_out -= 1
            else:
                self._deliver(packet)
                self._rack_advance(now_us, packet)
                self._unmark(packet)
                if packet.resent:
                    resent_acked = True
                else:
                    last_ack = packet.sent_us
                    if first_ack < 0:
                        first_ack = packet.sent_us
                    self.reordered |= packet.end <= old_top
        rtt = ca_rtt = -1
        if first_ack >= 0 and not resent_acked:
            rtt, ca_rtt = now_us - first_ack, now_us - last_ack
        if first_sack >= 0:
            ca_rtt = now_us - last_sack
            if rtt < 0:
                rtt = now_us - first_sack
        if rtt < 0 and ack > self.una and options.ts:
            stamped, captured = self.stamps.rtts_us(now_us, options.ts[1])
            if stamped >= 0:
                return stamped, stamped, captured
        return rtt, ca_rtt, -1

    def _unmark(self, packet: _Packet) -> None:
        if packet.lost:
            packet.lost = False
            self.lost_out -= 1
        if packet.resent_out:
            packet.resent_out = False
            self.resent_out -= 1

    def _rack(self, now_us: int) -> None:
        """Mark what a later packet overtook."""
        advanced, self.rack_advanced = self.rack_advanced, False
        if not advanced or (self.top_sacked <= self.una and self.state == OPEN):
            return
        hurry = self.state >= RECOVERY or self.sacked_out >= DUPTHRESH
        reo_us = 0
        if self.reordered or not hurry:
            reo_us = min((self.min_rtt.value >> 2) * self.reo_steps, self.rtt.srtt_us)
        newest = (self.rack_sent_us, self.rack_end)
        for packet in self.packets[self.head :]:
            if packet.sacked or (packet.lost and not packet.resent_out):
                continue
            if not packet.resent and packet.sent_us > self.rack_sent_us:
                break
            if (packet.sent_us, packet.end) >= newest:
                continue
            if self.rack_rtt_us + reo_us - (now_us - packet.sent_us) > 0:
                continue
            self._mark_lost(packet)

    def _repeated(self, ack: int, blocks: tuple[tuple[int, int], ...]) -> int:
        """Segments that came twice, if that many were sent twice: the kernel delivers them."""
        if not blocks or not _is_dsack(self.una, ack, blocks):
            return 0
        left, right = (_unwrap(edge, self.una) for edge in blocks[0])
        if self.keepalives and (left, right) == (self.una - 1, self.una):
            return 0
        self.dsacks += 1
        segments = -(-(right - left) // self.mss)
        self.repeated += segments
        if self.repeated > self.retransmitted + self.fins_resent:
            return 0
        if segments == 1 and right == self.probe_end:
            if ack >= right:
                self.probe_end = -1
        elif self.reordered:
            self.dsack_seen = True
        return segments

    def _adapt_reo_window(self) -> None:
        """RFC 8985: one step more per round with a D-SACK, kept for 16 recoveries."""
        if self.sample.end < 0:
            return
        if self.dsack_seen and self.sample.prior_delivered >= self.reo_mark:
            self.reo_steps = min(self.reo_steps + 1, 255)
            self.reo_mark = self.delivered
            self.reo_persist = REO_PERSIST
        elif not self.reo_persist:
            self.reo_steps = 1
        self.dsack_seen = False

    def _advance_state(self, lost: int) -> None:
        if self.state in (RECOVERY, LOSS) and self.una >= self.high_seq:
            self.state = OPEN
            self.reo_persist = max(self.reo_persist - 1, 0)
        if self.state in (OPEN, DISORDER):
            if lost or self.lost_out:
                self.state = RECOVERY
                self.high_seq = self.nxt
                self.probe_end = -1
                self.ssthresh = LEFT_SLOW_START
            else:
                self.state = DISORDER if self.sacked_out else OPEN

    def _cwnd(self) -> int:
        return max(self.peak, self.last_peak, 1)

    def _record(self, now_us: int, ca_rtt_us: int, newly: int, lost: int, cause: int) -> None:
        sample = self.sample
        interval = -1
        if newly:
            self.delivered_us = now_us
        if sample.end >= 0:
            interval = max(sample.send_us, now_us - sample.prior_us)
            if interval < self.min_rtt.value:
                interval = -1
        if self.delivered >= self.app_limited:
            self.app_limited = 0
        inflight = self.inflight()
        self.rows.append(
            (
                now_us,
                ca_rtt_us if ca_rtt_us >= 0 else -1,
                newly,
                lost,
                inflight,
                self._cwnd(),
                self.ssthresh,
                self.rtt.srtt_us,
                self.rtt.rttvar_us,
                self.min_rtt.value,
                self.delivered & 0xFFFFFFFF,
                sample.prior_delivered & 0xFFFFFFFF,
                min(interval, 0x7FFFFFFF),
                int(sample.app_limited),
                self.state,
            )
        )
        self.cause_rows.append(cause)
        if sample.end >= 0 and sample.prior_delivered >= self.peak_mark:
            self._leave_slow_start()
            self.last_peak, self.peak = self.peak, inflight
            self.peak_mark = self.delivered

    def begin_with(self, now_us: int, rtt_us: int) -> None:
        """Put the end of the handshake before the first row: the kernel module starts there."""
        rtt = (rtt_us, rtt_us // 2, rtt_us)
        self.rows.insert(0, (now_us, rtt_us, 0, 0, 0, 1, INITIAL_SSTHRESH, *rtt, 0, 0, -1, 0, OPEN))
        self.cause_rows.insert(0, 0)
        self.rwnd_rows.insert(0, False)
        self.rtt_rows.insert(0, rtt_us)

    def _leave_slow_start(self) -> None:
        """Without loss, slow start is over once three rounds brought less than a quarter more."""
        if self.ssthresh != INITIAL_SSTHRESH:
            return
        if self.peak * 4 >= self.full_peak * 5:
            self.full_peak, self.flat_rounds = self.peak, 0
            return
        self.flat_rounds += 1
        if self.flat_rounds == 3:
            self.ssthresh = LEFT_SLOW_START

    def _compact(self) -> None:
        if self.head > 4096:
            del self.packets[: self.head]
            del self.starts[: self.head]
            self.head = 0

    def records(self) -> AckArray:
        """[n] per-ACK records; `now_us` starts at 0."""
        rows = np.array(self.rows, dtype=ACK_DTYPE)
        if len(rows):
            rows["now_us"] -= rows["now_us"][0]
        return rows
