/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Losses, marks and timeouts: how deep the window falls, how a recovery gets there, and
 * what an undo restores.
 */
#ifndef _NDM_RECOVERY_H
#define _NDM_RECOVERY_H

#include "ndm_flow.h"
#include "ndm_measure.h"

/*
 * The window during CWR and Recovery: proportional rate reduction, RFC 6937.
 * While more is in flight than ssthresh allows, send ssthresh packets for every prior_cwnd
 * that arrive: that spreads the cut over the round. When losses took more than that, send
 * as many packets as arrive, and one more if this ACK made progress (SND.UNA advanced and
 * no loss is new), up to ssthresh. delivered: packets that arrived in this recovery, with
 * acked. The core counts prr_out.
 */
static u32 ndm_reduce(struct tcp_sock *tp, u32 acked, u32 delivered, bool forward)
{
	u32 in_flight = tcp_packets_in_flight(tp);
	s32 budget;

	if (in_flight > tp->snd_ssthresh) {
		u32 prior = max(ndm_prior_cwnd(tp), 1U);
		u64 due = (u64)tp->snd_ssthresh * delivered + prior - 1;

		budget = (s32)((u32)div_u64(due, prior) - tp->prr_out);
	} else {
		budget = max_t(s32, delivered - tp->prr_out, acked) + forward;
		budget = min_t(s32, budget, tp->snd_ssthresh - in_flight);
	}
	/* The first ACK must let the fast retransmission go. */
	budget = max(budget, tp->prr_out ? 0 : 1);
	return max(in_flight + budget, 1U);
}

/*
 * The window after a mark or a drop in this host's own queue, packets: 4/5, as RFC 8511
 * has it for Reno. A queue that marks is short; half would leave the link empty. In slow
 * start half, as RFC 3168 demands. Marks and drops prove overflow, so the network has no part
 * in it. One round follows that grows no faster than Reno's, and a ceiling (ndm_ceiling.h),
 * but none after slow start: a doubling window leaves in bursts, and what arrived does not
 * measure the path.
 */
static u32 ndm_cut_for_mark(struct ndm *ca, u32 window, bool slow_start)
{
	ca->f.callers_flags |= NDM_MARKED;
	ca->ceiling_rounds = slow_start ? 0 : NDM_CEILING_ROUNDS;
	/* Rounded up, so that a mark always takes a packet. */
	return window - (slow_start ? (window + 1) / 2 : (window + 4) / 5);
}

/*
 * Does the core call ssthresh() because a tail loss probe repaired a loss? Nothing is
 * missing then. Not detected behind a mark, nor if the packets that follow are lost
 * themselves; that costs one more probe.
 */
static bool ndm_tail_was_lost(const struct tcp_sock *tp)
{
	return ndm_tlp_retransmitted(tp) && ndm_prior_ssthresh(tp) && !tp->lost_out &&
	       !tp->sacked_out;
}

/*
 * Packets marked lost when the core calls ssthresh(): from here on slow start overflowed. Its
 * window doubles, so that every second packet is lost once the queue is full.
 */
static const u32 ndm_overflow_lost = 3;

/*
 * Does slow start fill a queue that its losses may come from? Jitter, too, keeps RTTs above min
 * RTT, but a doubling window makes its queue within the round. Fewer lost packets are an
 * overflow only behind a long queue. An overflow at the very start of a round waits for its end.
 */
static bool ndm_fills_a_queue(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct ndm *ca = inet_csk_ca(sk);
	u32 srtt_us = tp->srtt_us >> 3;
	u32 min_rtt_us = ndm_update_min_rtt(sk);

	if (!ndm_srtt_rose(srtt_us, ca->f.srtt_us))
		return false;
	return tp->lost_out < ndm_overflow_lost ? ndm_queue_is_long(srtt_us, min_rtt_us) :
						  ndm_queue_delays(srtt_us, min_rtt_us);
}

/*
 * The window to fall to. The core calls this for a loss, an ECN mark, a drop in this host's
 * own queue and a loss that a tail loss probe repaired; it has noted the present window in
 * prior_cwnd.
 *
 * prior_ssthresh is zero when the core rules out an undo, that is for ECN and for local
 * drops. (A tail loss probe leaves it as it was, and may look like a mark.) The network
 * sets the depth for all other losses, less of it without a queue or a rival; half without an
 * output, under the watchdog and when a retransmission timed out in a recovery from a timeout.
 */
static u32 ndm_ssthresh(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 window = cwnd >> 1;

	if (ndm_tail_was_lost(tp))
		ca->tail_lost = 1;
	/*
	 * A mark ends slow start. A loss without a growing queue does not: the network judges
	 * it after the round in which it sees it.
	 */
	if (!ndm_prior_ssthresh(tp)) {
		ca->starting = 0;
		window = ndm_cut_for_mark(ca, cwnd, tcp_in_slow_start(tp));
	} else if (tcp_in_initial_slowstart(tp) && !ndm_fills_a_queue(sk)) {
		ca->spared = 1;
		return tp->snd_ssthresh;
	}
	if (ca->has_output && !ca->watchdog.left && ndm_prior_ssthresh(tp) &&
	    ndm_ca_state(sk) != TCP_CA_Loss)
		window = !ca->unrivalled &&
			 ndm_queue_delays(tp->srtt_us >> 3, ndm_baseline_of(ca)) ?
			 ndm_cut(cwnd, ca->congestion) :
			 ndm_cut_without_queue(cwnd, ca->congestion);
	ca->reducing = 1;
	return max(window, ndm_min_ssthresh);
}

/*
 * The reduction was unnecessary: restore the window before it. The features keep the loss
 * that they saw, because the contract's record of ACKs has no undo either.
 */
static u32 ndm_undo_cwnd(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	ca->reducing = 0;
	ca->spared = 0;
	ndm_set_target(ca, max_t(u32, ca->target, ndm_prior_cwnd(tp)));
	ndm_undone(sk);
	return max(tcp_snd_cwnd(tp), ndm_prior_cwnd(tp));
}

/*
 * A retransmission timed out: half of the window before the loss, whatever the network
 * predicted. ssthresh() cannot distinguish a timeout from losses, and the core does not
 * call it when a recovery ends in a timeout.
 */
static void ndm_enter_loss(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	ca->reducing = 0;
	ca->starting = 0;
	ca->spared = 0;
	ndm_watchdog_forget(&ca->watchdog);
	/*
	 * Without undo_marker it is a smaller MTU, after which nothing was lost; but a mark
	 * clears it, too.
	 */
	if (tp->undo_marker || ndm_ca_state(sk) == TCP_CA_CWR)
		ndm_set_ssthresh(tp, ndm_prior_cwnd(tp) >> 1);
}

/* The core calls this before icsk_ca_state changes. */
static void ndm_set_state(struct sock *sk, u8 new_state)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	switch (new_state) {
	case TCP_CA_Loss:
		ndm_enter_loss(sk);
		break;
	case TCP_CA_Recovery:
		/*
		 * RACK's timer retransmits right after this, without an ACK that would
		 * reduce the window: room for one packet, not for all that was lost. On
		 * an ACK ndm_reduce() follows.
		 */
		if (ca->reducing)
			ndm_set_cwnd(sk, tcp_packets_in_flight(tp) + 1);
		break;
	case TCP_CA_Open:
	case TCP_CA_Disorder:
		/* The recovery is over: the rest of the reduction at one stroke. */
		if (ca->reducing)
			ndm_jump(sk, tp->snd_ssthresh);
		ca->reducing = 0;
		break;
	}
}

#endif /* _NDM_RECOVERY_H */
