/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pacing: a percentage of window per smoothed RTT, and where hosts hold ACKs back at most
 * a little more than the rate that the path has delivered.
 */
#ifndef _NDM_PACING_H
#define _NDM_PACING_H

#include "ndm_flow.h"
#include "ndm_measure.h"

/*
 * Percent of cwnd / srtt, the rate at which packets leave.
 * start: in slow start the window doubles in a round, so the rate must, too.
 * 120: enough above the rate of the ACKs for the window, not the pacing, to limit the flow.
 * even: the window of a ceiling is all that path and short queue hold. Not in a recovery: with
 * random losses less than a window would arrive, and it would shrink.
 * empty: with nothing in flight, the next data, perhaps an object of a web page, has no ACKs
 * to follow, and arrives as late as its last packet leaves.
 */
static const u32 ndm_pacing_start_percent = 200;
static const u32 ndm_pacing_percent = 120;
static const u32 ndm_pacing_even_percent = 105;
static const u32 ndm_pacing_empty_percent = 1600;

/*
 * TCP hands packets down in bursts, of the data of a millisecond (2^-10 s). A switch's queue
 * may be no longer, and overflows with the second burst: so those of 2^-12 s. Where a driver
 * has set its own, it stays.
 */
static const u8 ndm_core_burst_shift = 10;
static const u8 ndm_burst_shift = 12;

/*
 * Percent of the path's rate, where hosts hold ACKs back; see ndm_path_rate().
 * held: under a ceiling, a little less, for that rate is the highest of scattered samples.
 * open: else; above 100, or a small flow's own low rate would keep it small.
 */
static const u32 ndm_paused_held_percent = 95;
static const u32 ndm_paused_open_percent = 106;

/*
 * log2 of acknowledged / lost: from 1/128 on bursts may cause the losses. In bytes, for the
 * packets of a lifetime wrap.
 */
static const u32 ndm_burst_loss_shift = 7;

/*
 * A flow makes no bursts once the last packet of a flight was lost: an object slightly too
 * large for the queue would wait for the timer of a tail loss probe every time. Nor while
 * it is open whether a probe repaired a loss, until the next ACK for data.
 */
static bool ndm_may_burst(const struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	return !ca->tail_lost && !(tp->tlp_high_seq && ndm_tlp_retransmitted(tp)) &&
	       (u64)tp->lost * tp->mss_cache <= tp->bytes_acked >> ndm_burst_loss_shift;
}

static NDM_COMMON u32 ndm_pace(const struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!tp->packets_out && ndm_may_burst(sk))
		return ndm_pacing_empty_percent;
	if (tcp_in_slow_start(tp))
		return ndm_pacing_start_percent;
	if (ca->watchdog.paces_evenly && ndm_ca_state(sk) != TCP_CA_Recovery)
		return ndm_pacing_even_percent;
	return ndm_pacing_percent;
}

/*
 * Do pauses bound this flow's rate? A window that outlasts a pause is more than path and
 * queue hold: only pacing keeps it out of the queue.
 */
static bool ndm_paces_by_rate(const struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);

	return ndm_rate_bounds(ca) && ndm_max_rate(ca) && !tcp_in_initial_slowstart(tcp_sk(sk));
}

/*
 * The rate that the path has delivered, bytes/s. The probe's phase varies it, unless the path
 * lost packets lately. The product of Q24 packets/us and mss fits 48 bits; twelve of its
 * fraction are dropped before it becomes a second's.
 */
static NDM_RARE u64 ndm_path_rate(const struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);
	u64 rate = ((u64)ndm_max_rate(ca) * tcp_sk(sk)->mss_cache) >> 12;
	u32 percent = ca->ceiling_rounds ? ndm_paused_held_percent : ndm_paused_open_percent;

	rate = (rate * (USEC_PER_SEC / 100 * percent)) >> (NDM_RATE_SHIFT - 12);
	return ca->ceiling_rounds ? rate : (rate * ndm_exp2(ndm_probe(ca->phase - 1U))) >> 16;
}

/*
 * The window up to which a round where hosts hold ACKs back may grow, packets: its rate x
 * baseline RTT, an eighth more unless the path lost packets lately, and half a millisecond,
 * because TCP hands over a millisecond's data at once. The baseline RTT contains the longest
 * pause: a queue shorter than that does not show in the RTT, and a larger window could only
 * fill it. The rate is this round's: after a pause a token bucket or a host passes a burst at
 * many times the path's rate, and max_rate keeps that rate for ten rounds.
 *
 * Its sample holds more of a pause than of what arrived. A flow that it bounds would stay small
 * for ever, so as long as nothing was lost lately the rate is window / srtt, too.
 */
static u32 ndm_paused_window(const struct sock *sk, u32 window, const s16 *x)
{
	const struct ndm *ca = inet_csk_ca(sk);
	u32 rate = (u32)(((u64)ndm_max_rate(ca) * x[NDM_IN_DELIVERY_RATIO]) >> NDM_Q_INPUT);
	u32 paused_us = ndm_paused_us(&ca->f, (u32)ca->f.callers_us);
	u32 us = ndm_baseline_of(ca), arrive;

	if (ca->ceiling_rounds)
		return (u32)(((u64)rate * (us + 500)) >> NDM_RATE_SHIFT);
	arrive = (u32)(((u64)rate * (us + (us >> 3) + 500)) >> NDM_RATE_SHIFT);
	paused_us += paused_us >> 3;
	return max_t(u32, arrive,
		     div_u64((u64)window * paused_us, max(tcp_sk(sk)->srtt_us >> 3, 1U)));
}

/*
 * packets_out counts packets that a reduction has not drained yet: paced by the small
 * window of a recovery, its retransmissions would trickle. It counts those too that have
 * arrived behind a loss: where a burst overflows the queue they would double the rate.
 *
 * srtt_us is in 1/8 us, hence the 8. The product fits u64: mss * window is at
 * most 2^31, the sequence space, and 2^31 * 1600 * 80000 < 2^58.
 */
static NDM_COMMON void ndm_update_pacing(struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 out = tp->packets_out - (ca->watchdog.paces_evenly ? tp->sacked_out : 0);
	u64 rate = (u64)tp->mss_cache * max(tcp_snd_cwnd(tp), out);

	/* Without an RTT there is no rate; the initial window bounds the burst. */
	if (!tp->srtt_us)
		return;
	rate = div_u64(rate * ndm_pace(sk) * (USEC_PER_SEC / 100 * 8), tp->srtt_us);
	if (ndm_paces_by_rate(sk))
		rate = min(rate, ndm_path_rate(sk));
	/* sch_fq reads the rate without the socket's lock. */
	WRITE_ONCE(sk->sk_pacing_rate, min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate)));
}

static void ndm_set_burst(struct sock *sk, u8 from, u8 to)
{
	if (READ_ONCE(sk->sk_pacing_shift) == from)
		sk_pacing_shift_update(sk, to);
}

#endif /* _NDM_PACING_H */
