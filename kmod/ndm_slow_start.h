/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Slow start: how it grows, ends and returns, and the restart after a silence.
 *
 * The first slow start survives losses unless a queue grows. Once the network has seen them, it
 * ends slow start if it predicts overflow loss. Slow start that losses ended returns if
 * the network predicts random loss and the pipe has room; three credits pay for that.
 */
#ifndef _NDM_SLOW_START_H
#define _NDM_SLOW_START_H

#include "ndm_flow.h"
#include "ndm_measure.h"

/* Rounds in which a slow start that losses ended may return. */
static const u32 ndm_start_credits = 3;

/*
 * loss_rate, Q12: from here on it ends a slow start whose window is not used. Such losses
 * are bursts, and a larger window would bring nothing.
 */
static const s16 ndm_unused_loss = NDM_ONE / 16;

/*
 * Packets that slow start adds with an ACK. A quarter behind a queue, as in RFC 9406: one
 * more doubling before the round is over would be lost.
 */
static u32 ndm_growth(struct sock *sk, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!tcp_is_cwnd_limited(sk))
		return 0;
	if (!ndm_lan_is_steady(tp->srtt_us, tp->mdev_us) ||
	    !ndm_queue_delays(tp->srtt_us >> 3, ndm_update_min_rtt(sk)))
		return acked;
	return (acked + (tp->delivered & 3)) >> 2;
}

/* An ACK in slow start delivered packets. */
static void ndm_grow(struct sock *sk, u32 acked)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	acked = ndm_growth(sk, acked);
	if (acked || cwnd != ca->target)
		ndm_jump(sk, min(cwnd + acked, tp->snd_ssthresh));
	/* In a recovery: after an undo or a timeout, this is the window. */
	if (ca->spared)
		ndm_set_prior_cwnd(tp, max(ndm_prior_cwnd(tp), tcp_snd_cwnd(tp)));
}

/* The rate grew in a round of slow start: that renews the credits. */
static void ndm_note_growth(struct ndm *ca)
{
	if (ca->starting)
		ca->starting = ndm_start_credits;
	ca->watchdog.grown_rate = ndm_max_rate(ca);
}

/* A round ended in which slow start could return. */
static void ndm_spend_credit(struct ndm *ca)
{
	if (ca->starting)
		ca->starting--;
}

/*
 * Leave slow start with half of the window, which drains the queue that the last doubling
 * built. No lower: with jitter, min RTT may be a small part of the usual RTT, and the BDP
 * look small.
 */
static void ndm_leave_slow_start(struct sock *sk, bool lossless)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 half = max(tcp_snd_cwnd(tp) >> 1, ndm_min_cwnd);

	ndm_set_target(ca, half);
	WRITE_ONCE(tp->snd_ssthresh, half);
	/* An undo must not start it again, nor restore its window. */
	ndm_set_prior_ssthresh(tp, min(ndm_prior_ssthresh(tp), half));
	ndm_set_prior_cwnd(tp, min(ndm_prior_cwnd(tp), half));
	/* Rates with losses are less certain: slow start may return, for a credit. */
	if (lossless)
		ca->starting = 0;
	else
		ndm_spend_credit(ca);
}

/*
 * As for the guard, a few lost packets are no flood; but behind a queue that stands they are an
 * overflow. Jitter makes every queue show.
 */
static bool ndm_loses_a_fifth(const s16 *x, u32 lost)
{
	return x[NDM_IN_LOSS_RATE] >= NDM_WATCHDOG_LOSS &&
	       (lost >= NDM_FLOOD_LOST || ndm_queue_stands(x));
}

/*
 * Were the losses that slow start survived too many? What an application sends at a time is a
 * burst, however small; all_sent: it has no more. A flow that has may leave its window unfilled
 * in a recovery, for a round so short that one lost packet is a tenth of it.
 */
static bool ndm_start_floods(const s16 *x, u32 lost, bool limited, bool all_sent)
{
	if (limited)
		return ndm_loses_a_fifth(x, lost);
	return x[NDM_IN_LOSS_RATE] >= ndm_unused_loss && (all_sent || lost >= NDM_FLOOD_LOST);
}

/*
 * Were they overflow losses? The network predicts overflow for random losses of slow start too,
 * since most of slow start's are; but while the rate grows the pipe was not full.
 */
static bool ndm_start_overflowed(const struct ndm *ca, const s16 *x, bool grew)
{
	return x[NDM_IN_LOSS_RATE] && ca->congestion >= 0 && !grew;
}

/*
 * Does slow start return? Losses ended it, perhaps in a window of a few packets. The
 * network predicts random loss, and the packets that arrived left room and no queue. A
 * full pipe may seem to have room: so each round without a return costs a credit, a return
 * another, and only a higher rate renews them.
 */
static bool ndm_slow_start_returns(const struct ndm *ca, const s16 *x)
{
	return ca->starting && ca->congestion < 0 && x[NDM_IN_LOSS_RATE] < NDM_WATCHDOG_LOSS &&
	       !ndm_queue_stands(x) && ndm_pipe_has_room(x);
}

/* Return to slow start, in a recovery too: no reduction limits the window any more. */
static void ndm_return_to_slow_start(struct sock *sk, u32 window)
{
	struct ndm *ca = inet_csk_ca(sk);

	ca->reducing = 0;
	ca->spared = ndm_ca_state(sk) == TCP_CA_Recovery;
	ca->watchdog.grown_rate = ndm_max_rate(ca);
	WRITE_ONCE(tcp_sk(sk)->snd_ssthresh, TCP_INFINITE_SSTHRESH);
	ndm_jump(sk, window);
}

/* The initial window of this route, packets. */
static u32 ndm_initial_window(struct sock *sk)
{
	u32 packets = ndm_route_initcwnd(sk);

	return packets ? packets : TCP_INIT_CWND;
}

/*
 * The flow sends again after a silence, in which the path may have changed. Halve the
 * window for every RTO of silence, at most down to the initial window, and slow-start from
 * there; RFC 2861, with the sysctl of all other senders.
 */
static void ndm_restart(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 floor = min_t(u32, cwnd, ndm_initial_window(sk));
	s32 idle = tcp_jiffies32 - tp->lsndtime;
	s32 rto = inet_csk(sk)->icsk_rto;

	if (!ndm_slow_starts_after_idle(sk) ||
	    tp->packets_out || idle <= rto)
		return;
	WRITE_ONCE(tp->snd_ssthresh, tcp_current_ssthresh(sk));
	ndm_watchdog_forget(&ca->watchdog);
	ca->tail_lost = 0;
	/* A mark's, which the next ACK would end by raising the window to the threshold. */
	ca->reducing = 0;
	ca->f.callers_flags &= ~NDM_WAS_FULL;
	ca->starting = 0;
	for (; idle > rto && cwnd > floor; idle -= rto)
		cwnd >>= 1;
	ndm_jump(sk, max(cwnd, floor));
}

#endif /* _NDM_SLOW_START_H */
