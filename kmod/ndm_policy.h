/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The decision at the end of a round: which rule sets the window of the next round.
 *
 *  new flow, restart                  pipe full, queue, mark,
 *  after a silence   +------------+   losses by overflow      +---------+
 *  ----------------->| SLOW_START |-------------------------->| NETWORK |<------+
 *                    +------------+                           +---------+       |
 *                     ^     ^                                  |   |   |        |
 *          next round |     |         random loss, room and    |   |   |        |
 *              +---------+  |         a credit of three        |   |   |        |
 *              | GOES_ON |<-|----------------------------------+   |   |        |
 *              +---------+  |                                      |   |        |
 *                           |         queue stands,     +-------+  |   |        |
 *                           |         16 rounds later   | DRAIN |<-+   |        |
 *                           |                           +-------+------|------->+
 *                           |                            two rounds    |        |
 *                           |                        +----------+      |        |
 *                           +------------------------| RECOVERY |<-----+        |
 *                            over, window below      +----------+ mark, timeout |
 *                            the threshold                +-------------------->+
 *                                                          over
 *
 *  NETWORK -- the network starves or floods the path --> WATCHDOG -- 32 rounds --> NETWORK
 *  NETWORK -- a round without RTT, rate or window --> BLIND -- next round --> NETWORK
 *
 * ndm_mode() derives the mode of each round from what the round showed and from the flow's
 * state; it changes nothing. The event ndm_tcp_round reports it as `why`:
 *
 *   SLOW_START	the window grows with ACKs; the network only learns. The first
 *		one goes on through losses, in a recovery too, unless a queue grows.
 *   NETWORK	the control law with the network's gain; in a recovery from losses as well.
 *   GOES_ON	slow start returns: no threshold from here on.
 *   DRAIN	a quarter of the window for a round, then the window before it if that
 *		emptied the queue or showed a longer path, else half of it.
 *   WATCHDOG	without the network: one packet per round, as Reno grows.
 *   BLIND	without inputs: the same.
 *   RECOVERY	CWR, Loss, and Recovery behind a mark, without inputs or under the watchdog:
 *		ndm_recovery.h has set the threshold, and the target is not used.
 */
#ifndef _NDM_POLICY_H
#define _NDM_POLICY_H

#include "ndm_explore.h"
#include "ndm_flow.h"
#include "ndm_pacing.h"
#include "ndm_recovery.h"
#include "ndm_rivals.h"
#include "ndm_round.h"
#include "ndm_slow_start.h"

/* A round that has ended, as the policy sees it. */
struct ndm_facts {
	s16 x[NDM_N_DENSE];	/* inputs, Q12; all zero unless valid */
	s32 out[NDM_N_OUTPUTS];	/* outputs, Q16; likewise */
	u32 lost;		/* packets, in this round */
	u32 window;		/* packets; see ndm_window_of() */
	u32 flags;		/* of enum ndm_law_flags */
	u32 min_rtt_us;
	bool valid;		/* the round has inputs */
	bool app_limited;
	bool limited;		/* the window was full: the round's rate describes the pipe */
	bool used;		/* the window may grow */
	bool recovery;		/* CWR, Recovery or Loss */
	bool repairs;		/* Recovery: from losses, perhaps with marks among them */
	bool spared;		/* slow start survived the losses of that recovery */
	bool marked;		/* a mark or a local drop in that recovery */
	bool slow_start;
	bool was_full;		/* the round before, in slow start, found the pipe full */
	bool took_over;		/* the watchdog did, after this round */
	enum ndm_drain_step drain_step;	/* of a valid round outside slow start and recovery */
	struct ndm_drain drain;	/* its state after that step */
};

/* Flags of the round for the control law, beside its inputs. */
static u32 ndm_law_flags(const struct sock *sk, const struct ndm_facts *r)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 srtt_us = tp->srtt_us >> 3;

	return (ndm_queue_is_long(srtt_us, r->min_rtt_us) ? NDM_LAW_QUEUE : 0) |
	       (ndm_path_scatters(srtt_us, tp->reord_seen) ? NDM_LAW_JITTER : 0) |
	       (tp->reord_seen ? NDM_LAW_REORDERS : 0) |
	       (ca->f.callers_flags & NDM_MARKED ? NDM_LAW_MARKED : 0) |
	       (r->used ? 0 : NDM_LAW_UNUSED);
}

/* The shortest queue of the last rounds, 1/32 of the baseline RTT. */
static u8 ndm_queue_of(const struct ndm *ca)
{
	return ndm_shortest_queue(ndm_lowest_us(&ca->f), ndm_baseline_of(ca));
}

/* The step of the drain and its state, should the network decide this round. */
static void ndm_fill_drain(const struct ndm *ca, struct ndm_facts *r)
{
	r->drain = (struct ndm_drain){
		.shortest	= ca->f.callers,
		.rounds		= ca->drain_rounds,
		.alone		= ca->drain_alone,
		.draining	= ca->watchdog.draining,
	};
	r->drain_step = ndm_drain(&r->drain, ndm_queue_of(ca), ca->phase,
				  r->limited && r->window >= 2 * ndm_min_cwnd);
}

/* Complete the facts with those that the socket knows. */
static void ndm_fill_facts(const struct sock *sk, struct ndm_facts *r)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u8 state = ndm_ca_state(sk);

	r->recovery = state > TCP_CA_Disorder;
	r->repairs = state == TCP_CA_Recovery;
	/* That recovery may be over before the round is. */
	r->spared = ca->spared && tcp_in_initial_slowstart(tp);
	/* Zero: the core ruled out an undo; see ndm_ssthresh(). */
	r->marked = (r->repairs || r->spared) && !ndm_prior_ssthresh(tp);
	r->slow_start = tcp_in_slow_start(tp) && (!r->recovery || (r->repairs && r->spared));
	r->was_full = ca->f.callers_flags & NDM_WAS_FULL;
	r->used = ndm_window_is_used(sk, r->window);
	/*
	 * The rate of an unfilled window is the application's, not the pipe's. The window
	 * must have been full, not half full as tcp_is_cwnd_limited() accepts in slow start.
	 */
	r->limited = r->valid && ndm_was_cwnd_limited(tp) && !r->app_limited;
	r->flags = ndm_law_flags(sk, r);
	if (r->valid && !r->recovery && !r->slow_start)
		ndm_fill_drain(ca, r);
}

/* The round counts for the drain: the network decided it. */
static void ndm_keep_drain(struct ndm *ca, const struct ndm_drain *drain)
{
	ca->f.callers = drain->shortest;
	ca->drain_rounds = drain->rounds;
	ca->drain_alone = drain->alone;
	ca->watchdog.draining = drain->draining;
}

/* The mode of the next round, once the watchdog has counted this one. */
static enum ndm_mode ndm_mode(const struct sock *sk, const struct ndm_facts *r)
{
	const struct ndm *ca = inet_csk_ca(sk);

	if (r->slow_start)
		return NDM_MODE_SLOW_START;
	/*
	 * The network judges losses only. On a path where they never end, the recovery does
	 * not either, and a flow that waited for its end would stand still.
	 */
	if (r->recovery && (r->marked || !r->repairs || !r->valid || ca->watchdog.left))
		return NDM_MODE_RECOVERY;
	if (ca->watchdog.left)
		return NDM_MODE_WATCHDOG;
	if (!r->valid)
		return NDM_MODE_BLIND;
	if (r->used && ndm_slow_start_returns(ca, r->x))
		return NDM_MODE_GOES_ON;
	if (r->drain_step != NDM_DRAIN_NOT)
		return NDM_MODE_DRAIN;
	return NDM_MODE_NETWORK;
}

/*
 * SLOW_START: go on while the rate grows. On a path that jitters one round with a full pipe is
 * no proof, unless its RTT rises.
 */
static void ndm_judge_slow_start(struct sock *sk, const struct ndm_facts *r)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	bool grew = r->limited && ndm_rate_grew(ndm_max_rate(ca), ca->watchdog.grown_rate, r->x);
	bool stood = r->limited && !grew;	/* the rate did */
	bool full = stood && ndm_pipe_is_full(r->x);
	bool all_sent = tp->write_seq == tp->snd_nxt;

	if (full)
		ca->f.callers_flags |= NDM_WAS_FULL;
	if (grew)
		ndm_note_growth(ca);
	if (stood &&
	    (ndm_queue_grows(r->x) || (full && (r->was_full || ndm_rtt_rises(r->x))) ||
	     (ndm_lan_is_steady(tp->srtt_us, tp->mdev_us) &&
	      ndm_queue_delays(tp->srtt_us >> 3, r->min_rtt_us))))
		ndm_leave_slow_start(sk, !r->x[NDM_IN_LOSS_RATE]);
	else if (r->marked ||
		 (r->spared && (ndm_start_floods(r->x, r->lost, r->limited, all_sent) ||
				ndm_start_overflowed(ca, r->x, grew))))
		ndm_leave_slow_start(sk, false);
}

/*
 * RECOVERY. A mark, or a drop of this host's own, among losses: reduce the window before the
 * recovery as for a mark outside, once; the core enters no CWR and does not call
 * ssthresh(). Under the watchdog: the network judged the loss too mild and the window it
 * left floods the path, so halve it, and again in each round that loses a fifth; through
 * the target too, should the reduction be over.
 */
static void ndm_steer_recovery(struct sock *sk, const struct ndm_facts *r)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (r->marked && r->repairs) {
		ndm_set_ssthresh(tp, min(r->window,
					 ndm_cut_for_mark(ca, ndm_prior_cwnd(tp), false)));
		ndm_set_target(ca, tp->snd_ssthresh);
		ca->reducing = 1;
	} else if (r->took_over || (ca->watchdog.left && r->valid &&
				    r->x[NDM_IN_LOSS_RATE] >= NDM_WATCHDOG_LOSS)) {
		ndm_set_ssthresh(tp, min(tp->snd_ssthresh, r->window) >> 1);
		ndm_set_target(ca, tp->snd_ssthresh);
	}
}

/*
 * DRAIN. An empty queue, or a path that has become longer and has none, has room for all of
 * the window before, paced. Where other flows keep the queue, those that drain a little later
 * must find this flow still small.
 */
static void ndm_steer_drain(struct sock *sk, const struct ndm_facts *r)
{
	struct ndm *ca = inet_csk_ca(sk);

	if (r->drain_step == NDM_DRAIN_IN_VAIN)
		ca->f.callers_us = ndm_lowest_us(&ca->f);
	if (r->drain_step == NDM_DRAIN_BEGINS) {
		ndm_aim(sk, r->window >> NDM_DRAIN_SHIFT, false);
	} else if (r->drain_step != NDM_DRAIN_LINGERS && ca->target > ndm_min_cwnd) {
		ndm_aim(sk, ca->target << NDM_DRAIN_SHIFT, false);
		ndm_set_cwnd(sk, ca->target);
	} else {
		/* The smallest target may be more than a quarter. */
		ndm_aim(sk, r->window << 1, false);
	}
	/* After the new target, which ends a drain. */
	ndm_keep_drain(ca, &r->drain);
}

/* Where hosts pause, srtt is no measure: ndm_paused_window() is the ceiling. */
static void ndm_update_ceiling(struct ndm *ca, const struct ndm_facts *r)
{
	ca->ceiling_rounds = ndm_ceiling_rounds(ca->ceiling_rounds, r->x, ca->congestion,
						r->lost, r->used);
	if (ca->f.paused && ndm_pauses_overflow(r->x) && r->lost >= NDM_CEILING_LOST &&
	    ca->congestion >= 0)
		ca->ceiling_rounds = NDM_CEILING_ROUNDS;
}

/*
 * Flows on one path have rounds of one length, so their probes would keep step for good. Each
 * would take what the other's does to the queue for an answer to its own, and one of them
 * could stay small. A round more now and then lets them drift.
 */
static void ndm_next_phase(struct ndm *ca)
{
	if (ca->phase != NDM_PROBE_ROUNDS - 1 || get_random_u32() & NDM_PROBE_SLIP)
		ca->phase++;
}

/*
 * NETWORK: the target of the control law, below the ceiling. Where hosts pause, a round with
 * a low rate stops the growth and does not shrink the window: the pause may be the cause.
 */
static u32 ndm_network_target(struct sock *sk, const struct ndm_facts *r)
{
	struct ndm *ca = inet_csk_ca(sk);
	u32 bound = ndm_rate_bounds(ca) ?
		    max(r->window, ndm_paused_window(sk, r->window, r->x)) : ~0U;
	s32 gain = r->out[NDM_OUT_CWND_GAIN] + ndm_explore(&ca->watchdog);
	u32 target = ndm_law(r->window, gain, ca->phase, r->x, r->lost, r->flags, bound);
	bool held;

	if (!ndm_queue_empties(r->x)) {
		target -= target > ndm_min_cwnd && r->used &&
			  ndm_skips_packet(ca->phase, r->min_rtt_us, r->x, r->flags);
		target = ndm_shared_target(target, r->window, r->x, r->flags, ca->congestion,
					   r->lost);
	}
	ndm_next_phase(ca);
	ndm_update_ceiling(ca, r);
	held = ca->ceiling_rounds && !ca->f.paused && (r->limited || ndm_queue_shows(r->x));
	ca->watchdog.paces_evenly = held && ndm_bursts_overflow(r->x);
	if (held)
		target = min(target, ndm_ceiling(r->window, r->x, ca->ceiling_rounds));
	return target;
}

/* NETWORK, WATCHDOG, BLIND: the new target ends the round without growth after a mark. */
static void ndm_steer(struct sock *sk, const struct ndm_facts *r, u32 target)
{
	struct ndm *ca = inet_csk_ca(sk);

	ca->f.callers_flags &= ~NDM_MARKED;
	ndm_aim(sk, r->used ? target : min(target, r->window), r->recovery);
}

/* Did the guard of ndm_law() or of ndm_end_reduction() hold the window? */
static bool ndm_was_guarded(const struct ndm_facts *r, enum ndm_mode mode)
{
	return (mode == NDM_MODE_NETWORK || mode == NDM_MODE_RECOVERY) && r->valid &&
	       ndm_floods(r->x, r->flags, r->lost);
}

/*
 * Once no more is in flight than the threshold allows, the cut is made, or losses took more, and
 * the window may fill up to it. Packets conserved for longer leave one fewer in flight with each
 * loss, and where losses never end, one recovery follows another.
 */
static void ndm_end_reduction(struct sock *sk, const struct ndm_facts *r)
{
	struct ndm *ca = inet_csk_ca(sk);

	if (!r->recovery || !ca->reducing || ndm_floods(r->x, r->flags, r->lost) ||
	    tcp_packets_in_flight(tcp_sk(sk)) > ca->target)
		return;
	ca->reducing = 0;
	ndm_set_cwnd(sk, ca->target);
}

/* Act on the mode. */
static void ndm_enact(struct sock *sk, const struct ndm_facts *r, enum ndm_mode mode)
{
	struct ndm *ca = inet_csk_ca(sk);

	switch (mode) {
	case NDM_MODE_SLOW_START:
		ndm_judge_slow_start(sk, r);
		break;
	case NDM_MODE_RECOVERY:
		ndm_steer_recovery(sk, r);
		break;
	case NDM_MODE_WATCHDOG:
	case NDM_MODE_BLIND:
		/* One packet per round, as Reno grows. */
		ndm_steer(sk, r, r->window + 1);
		break;
	case NDM_MODE_GOES_ON:
		ndm_spend_credit(ca);
		ndm_return_to_slow_start(sk, r->window);
		break;
	case NDM_MODE_DRAIN:
		if (r->used)
			ndm_spend_credit(ca);
		ndm_steer_drain(sk, r);
		break;
	case NDM_MODE_NETWORK:
		if (r->used)
			ndm_spend_credit(ca);
		if (!r->recovery)
			ndm_keep_drain(ca, &r->drain);
		ndm_steer(sk, r, ndm_network_target(sk, r));
		ndm_end_reduction(sk, r);
		break;
	}
}

/*
 * Decide: set the window and the target of the next round. The caller fills x, out, lost,
 * window, min_rtt_us, valid and app_limited; out is the network's if the round is valid.
 */
static enum ndm_mode ndm_decide(struct sock *sk, struct ndm_facts *r)
{
	struct ndm *ca = inet_csk_ca(sk);
	enum ndm_mode mode;

	ndm_fill_facts(sk, r);
	if (r->valid)
		ca->unrivalled = r->limited && ndm_is_unrivalled(r->window, r->x);
	if (r->marked)
		ca->starting = 0;
	if (!r->repairs)
		ca->spared = 0;
	ca->f.callers_flags &= ~NDM_WAS_FULL;
	if (r->valid && !r->slow_start)
		r->took_over = ndm_watchdog_step(&ca->watchdog, r->x, ndm_max_rate(ca),
						 r->limited, r->flags);
	if (r->took_over)
		ca->starting = 0;
	mode = ndm_mode(sk, r);
	ndm_enact(sk, r, mode);
	return mode;
}

#endif /* _NDM_POLICY_H */
