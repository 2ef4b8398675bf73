/* SPDX-License-Identifier: GPL-2.0-only */
/* From the socket to the records of ACKs that the features take; see docs/contract.md. */
#ifndef _NDM_MEASURE_H
#define _NDM_MEASURE_H

#include "ndm_flow.h"

/* Forget earlier rounds; module and BPF keep the network's memory in different places. */
static void ndm_clear_memory(struct sock *sk);

/*
 * The core takes the RTT of a retransmitted packet from its timestamp, which counts whole
 * milliseconds, rounded down.
 */
static bool ndm_is_rounded(const struct tcp_sock *tp, u32 rtt_us)
{
	return tp->total_retrans && rtt_us % USEC_PER_MSEC == 0;
}

/*
 * Once packets are lost, the core's min RTT may be short by up to a millisecond, for
 * minutes: RTTs without a queue then look as if one stood. So keep the lowest RTT that was
 * not rounded, us; 0: none yet.
 */
static void ndm_note_rtt(struct sock *sk, long rtt_us)
{
	struct ndm *ca = inet_csk_ca(sk);

	if (rtt_us > 0 && (u32)rtt_us - 1 < (u32)ca->f.callers_us - 1 && rtt_us < NDM_LONG_US &&
	    !ndm_is_rounded(tcp_sk(sk), (u32)rtt_us))
		ca->f.callers_us = (u32)rtt_us;
}

/*
 * Bring the kept min RTT in line with the core's, which expires after minutes, and return it,
 * us; 0: none yet. It is no lower than the core's. It is above 5/4 of that and a
 * millisecond only after a drain that showed a longer path.
 */
static u32 ndm_update_min_rtt(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 core = tcp_min_rtt(tp), lowest = ca->f.callers_us;

	if (core == ~0U)
		return 0;
	if (!lowest || !ndm_rtt_exceeds(lowest, core + (u32)USEC_PER_MSEC, NDM_DELAYED_QUARTERS))
		lowest = min(lowest ? lowest : ~0U,
			     ndm_is_rounded(tp, core) ? core + (u32)USEC_PER_MSEC : core);
	lowest = clamp(lowest, core, NDM_LONG_US);
	ca->f.callers_us = lowest;
	return lowest;
}

/* The baseline RTT with the kept min RTT, us; see ndm_path.h. */
static u32 ndm_baseline_of(const struct ndm *ca)
{
	return ndm_baseline_us(&ca->f, (u32)ca->f.callers_us);
}

static bool ndm_has_long_pauses(const struct ndm *ca)
{
	return ndm_pauses_are_long(ndm_baseline_of(ca), (u32)ca->f.callers_us);
}

/*
 * Does the flow's rate bound pacing and window, because pauses hide the queue? Where they are
 * short only while a ceiling holds, from the round after the overflow on: jitter looks like
 * them, and a flow that its own low rate bounds would never grow.
 */
static bool ndm_rate_bounds(const struct ndm *ca)
{
	return ca->f.paused && (ca->ceiling_rounds || ndm_has_long_pauses(ca));
}

/* A negative time, or one of more than half an hour, is none: -1. */
static s32 ndm_us(long us)
{
	return (unsigned long)us <= S32_MAX ? us : -1;
}

/*
 * The contract's record of this ACK, before the ACK changes the window. The kept min RTT is
 * in line with the core's since the last round.
 */
static __always_inline void ndm_fill_ack(struct sock *sk, const struct rate_sample *rs,
					 struct ndm_ack *ack)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	*ack = (struct ndm_ack){
		.now_us		= tp->tcp_mstamp,
		.rtt_us		= ndm_us(rs->rtt_us),
		.acked		= rs->acked_sacked,
		/* No rate sample holds the losses that timers mark between two ACKs. */
		.lost		= (u16)(tp->lost - (u32)ca->f.callers_lost),
		.inflight	= tcp_packets_in_flight(tp),
		.cwnd		= tcp_snd_cwnd(tp),
		.ssthresh	= tp->snd_ssthresh,
		.srtt_us	= tp->srtt_us >> 3,
		.rttvar_us	= tp->mdev_us >> 2,
		.min_rtt_us	= (u32)ca->f.callers_us,
		.delivered	= tp->delivered,
		.prior_delivered = rs->prior_delivered,
		.interval_us	= rs->delivered < 0 ? -1 : ndm_us(rs->interval_us),
		.app_limited	= rs->is_app_limited,
		.ca_state	= ndm_ca_state(sk),
	};
	/*
	 * A duplicate ACK without SACK acknowledges no packet whose sending time is known.
	 * Its prior_delivered is zero and no count: once the flow has delivered 2^31
	 * packets, that would look like the end of a round.
	 */
	if (!rs->prior_mstamp)
		ack->prior_delivered = ca->f.round_delivered - 1;
}

/*
 * Start with the handshake: without it the first round is missing, and the means begin in
 * the middle of slow start.
 */
static NDM_RARE void ndm_start_features(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 srtt_us = tp->srtt_us >> 3;
	struct ndm_ack ack = {
		.now_us		= tp->tcp_mstamp,
		.rtt_us		= srtt_us && !tp->data_segs_out ? (s32)srtt_us : -1,
		.srtt_us	= srtt_us,
		.delivered	= tp->delivered,
		.interval_us	= -1,
	};

	ca->f.callers_lost = (u16)tp->lost;
	ndm_features_take(&ca->f, &ack);
	ca->f.callers_lost = (u16)tp->lost;
	ca->opening = 1;
}

/*
 * The first ACK for data. If it acknowledges all data, and less than the window, it was a
 * request or a cookie and no round: start again after it.
 */
static NDM_RARE void ndm_open(struct sock *sk, const struct rate_sample *rs)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (rs->acked_sacked <= 0 || !tp->data_segs_out)
		return;
	if (!ndm_was_cwnd_limited(tp) && !tp->packets_out) {
		ca->f.started = 0;
		ndm_clear_memory(sk);
	}
	ca->opening = 0;
}

/*
 * The flow sent a probe for a larger MTU, or the probe has ended. If the probe arrived, the
 * core has counted the window anew, in packets of the new size; the target was in the old.
 */
static NDM_RARE void ndm_note_mtu_probe(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);

	ca->watchdog.probing_mtu = !ca->watchdog.probing_mtu;
	if (!ca->watchdog.probing_mtu)
		ndm_set_target(ca, min_t(u32, ca->target, tcp_snd_cwnd(tcp_sk(sk))));
}

#endif /* _NDM_MEASURE_H */
