/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The path as the measurements show it: queue, scatter, full pipe, pausing hosts.
 *
 * Each definition stands here once. The functions are pure: they take values or const
 * pointers and change nothing. x: a round's inputs, Q12 (docs/contract.md).
 *
 * Queue			true when			decides
 *   ndm_queue_grows		srtt rose by > 1/4 in a round,	slow start ends
 *				rttvar < srtt / 8
 *   ndm_queue_stands		baseline RTT <= 4/5 srtt,	slow start does not return, and few
 *				rttvar < srtt / 8		losses end it; ndm_rivals.h
 *   ndm_queue_delays		srtt > 5/4 min RTT		ndm_fills_a_queue(); over the
 *								baseline RTT: the cut
 *   ndm_srtt_rose		srtt rose by > 1/32 since	ndm_fills_a_queue()
 *				the round began
 *   ndm_lan_is_steady		srtt <= 16 ms,			with ndm_queue_delays: slow
 *				rttvar < srtt / 8		start takes a quarter per ACK
 *   ndm_queue_is_long		srtt > 2 min RTT		ndm_fills_a_queue(), the guard
 *								(NDM_LAW_QUEUE)
 *   ndm_queue_is_short		baseline RTT > 1/2 srtt		ceiling, watchdog
 *   ndm_bursts_overflow	baseline RTT > 2/3 srtt, and	pacing under a ceiling
 *				packets were lost lately
 *   ndm_queue_shows		baseline RTT < 15/16 srtt	ceiling of an unfilled window
 *   ndm_queue_empties		queue_floor < 1/4		ceiling; else ndm_rivals.h
 *   ndm_queue_persists		shortest queue > 1/2 baseline	a drain begins
 *   ndm_queue_is_drained	shortest queue <= 1/8 baseline	a drain succeeded
 *   ndm_path_is_longer		a drain took <= 1/16 of the	min RTT rises
 *				lowest RTT
 *
 * Scatter (jitter, or packets that overtake others)
 *   ndm_rtt_is_steady		rttvar < srtt / 8		the queue tests of slow start
 *   ndm_nothing_overtakes	rttvar < srtt / 16		ceiling
 *   ndm_losses_are_real	rttvar < srtt / 4		ceiling of an unfilled window
 *   ndm_path_scatters		srtt > 16 ms, or reordering	the guard (NDM_LAW_JITTER)
 *   ndm_scatters		rttvar >= srtt / 4 with jitter,	the guard; in ndm_control.h,
 *				>= srtt / 16 with reordering	see below
 *
 * Full pipe
 *   ndm_pipe_is_full		BDP < 3/8 window		twice in a row: slow start ends
 *   ndm_rtt_rises		srtt rose by > 1/8 in a round	once is enough
 *   ndm_pipe_has_room		BDP >= 3/4 of what arrived	slow start returns
 *   ndm_rate_grew		rate >= 5/4 of the last growth,	slow start goes on
 *				7/4 while a queue grows
 *   ndm_rate_collapsed		rate < 1/4 of the best		watchdog
 *
 * Pausing hosts
 *   ndm_hosts_pause		baseline RTT > 5/4 min RTT	pacing and window by the rate
 *								while a ceiling holds
 *   ndm_pauses_are_long	baseline RTT > 5/2 min RTT	the same at all times
 *   ndm_pauses_overflow	loss_rate >= 1/32		31 rounds without probes
 *
 * The numbers differ because the costs of a wrong answer differ; each constant has its
 * reason. ndm_scatters() and ndm_floods() belong to the control law of ndm_control.h: the
 * network's certificate covers that file, so they stay there.
 */
#ifndef _NDM_PATH_H
#define _NDM_PATH_H

#include "generated/ndm_contract.h"

/*
 * Baseline RTT, us: up to this length it is min RTT and the pauses of the hosts. A path
 * of at most twice that is local: on a longer one srtt scatters by the path's doing and not
 * by the hosts'.
 */
#define NDM_BASELINE_US		8000
#define NDM_LOCAL_US		(2 * NDM_BASELINE_US)

/* (srtt - srtt of the round before) / that, Q12 in [-1, 1]: a doubling window shows as more. */
#define NDM_QUEUE_GRADIENT	(NDM_ONE / 4)
#define NDM_RTT_RISE		(NDM_ONE / 8)	/* half of that: the pipe is full by another sign */

/* Part of srtt. Within a round, where no input exists; more would let more overflows pass. */
#define NDM_SRTT_RISE		32

/*
 * Baseline RTT / srtt, Q12 in [0, 1]. 4/5: a quarter of a RTT is what a doubling of slow
 * start adds. 1/2: the network sees a queue of one baseline RTT or more and shares it.
 * 2/3: a queue of half a baseline RTT takes a burst. 15/16: when the round of a burst is
 * over, srtt still shows a fifteenth of its queue.
 */
#define NDM_QUEUE_STANDING	(NDM_ONE * 4 / 5)
#define NDM_QUEUE_LONG		(NDM_ONE / 2)
#define NDM_QUEUE_TIGHT		(NDM_ONE * 2 / 3)
#define NDM_QUEUE_SHOWN		(NDM_ONE * 15 / 16)

/*
 * Quarters of min RTT, for srtt between rounds, where no input exists. 5: as
 * NDM_QUEUE_STANDING, 4/5 = 1 / (5/4). 8: as NDM_QUEUE_LONG. Compared with min RTT, which
 * holds none of the hosts' pauses; for the cut with the baseline RTT, which does.
 */
#define NDM_DELAYED_QUARTERS	5
#define NDM_LONG_QUARTERS	8

/*
 * queue_floor, Q12 in [0, 1]. From a quarter on other flows keep the queue: a ceiling would
 * leave them more, not empty it.
 */
#define NDM_QUEUE_KEPT		(NDM_ONE / 4)

/*
 * Shortest queue of the last four to eight rounds, 1/32 of the baseline RTT, in [0, 255].
 * One above 16, half of the baseline RTT, does not empty by itself. One up to 4, an eighth,
 * counts as empty. A queue that the flow fills alone is three quarters shorter after a drain;
 * other flows fill all of one that takes less than a sixteenth of the RTT with it. 255: unknown.
 */
#define NDM_DRAIN_UNIT		32
#define NDM_DRAIN_QUEUE		16
#define NDM_DRAIN_EMPTY		4
#define NDM_DRAIN_FELL		16	/* of the RTT, at least, if there was a queue */
#define NDM_DRAIN_MOST		255

/*
 * rttvar / srtt, Q12 in [0, 2]. 1/8: from here on jitter moves srtt by as much as a
 * queue does. 1/16: below, no packet overtakes another, and a missing
 * one is lost. 1/4: above, even a lost eighth of a round may only be late.
 */
#define NDM_STEADY		(NDM_ONE / 8)
#define NDM_ORDERED		(NDM_ONE / 16)
#define NDM_LATE		(NDM_ONE / 4)

/*
 * BDP / window, Q12 in [0, 2]. A rate sample describes packets sent one round ago, so the
 * ratio is 1/2 while the pipe fills; 3/8 leaves a quarter for jitter. It is no proof alone:
 * with jitter, RTTs well above the minimum make the BDP look small from the first round, and
 * one rate sample may be low. In a full pipe, a doubling window makes the RTT rise.
 */
#define NDM_FULL_PIPE		(NDM_ONE * 3 / 8)

/* BDP / what arrived of the window, Q12: from 3/4 on the path had room for all of it. */
#define NDM_ROOM		(NDM_ONE * 3 / 4)

/*
 * Quarters of the rate at its last growth. In slow start the rate should double: less than
 * a quarter more is no growth. While a queue grows the rate must rise by three quarters:
 * that round filled the pipe, and the next would double the queue.
 */
#define NDM_GREW_QUARTERS	5
#define NDM_GREW_QUEUED		7

/* loss_rate, Q12: from here on a path with pausing hosts overflowed. */
#define NDM_PAUSED_LOSS		(NDM_ONE / 32)

static inline bool ndm_rtt_is_steady(const s16 *x)
{
	return x[NDM_IN_RTT_VARIATION] < NDM_STEADY;
}

static inline bool ndm_nothing_overtakes(const s16 *x)
{
	return x[NDM_IN_RTT_VARIATION] < NDM_ORDERED;
}

static inline bool ndm_losses_are_real(const s16 *x)
{
	return x[NDM_IN_RTT_VARIATION] < NDM_LATE;
}

static inline bool ndm_path_is_local(u32 srtt_us)
{
	return srtt_us <= NDM_LOCAL_US;
}

/* Does the path scatter RTTs, not its hosts? */
static inline bool ndm_path_scatters(u32 srtt_us, bool reordered)
{
	return !ndm_path_is_local(srtt_us) || reordered;
}

static inline bool ndm_queue_grows(const s16 *x)
{
	return x[NDM_IN_RTT_GRADIENT] > NDM_QUEUE_GRADIENT && ndm_rtt_is_steady(x);
}

static inline bool ndm_queue_stands(const s16 *x)
{
	return x[NDM_IN_RTT_RATIO] <= NDM_QUEUE_STANDING && ndm_rtt_is_steady(x);
}

static inline bool ndm_queue_is_short(const s16 *x)
{
	return x[NDM_IN_RTT_RATIO] > NDM_QUEUE_LONG;
}

/* A queue that marks in place of drops takes bursts, too. */
static inline bool ndm_bursts_overflow(const s16 *x)
{
	return x[NDM_IN_RTT_RATIO] > NDM_QUEUE_TIGHT && x[NDM_IN_LOSS_RATE_MEAN];
}

static inline bool ndm_queue_shows(const s16 *x)
{
	return x[NDM_IN_RTT_RATIO] < NDM_QUEUE_SHOWN;
}

static inline bool ndm_queue_empties(const s16 *x)
{
	return x[NDM_IN_QUEUE_FLOOR] < NDM_QUEUE_KEPT;
}

static inline bool ndm_rtt_exceeds(u32 rtt_us, u32 other_us, u32 quarters)
{
	return 4 * (u64)rtt_us > (u64)quarters * other_us;
}

static inline bool ndm_queue_delays(u32 srtt_us, u32 min_rtt_us)
{
	return ndm_rtt_exceeds(srtt_us, min_rtt_us, NDM_DELAYED_QUARTERS);
}

static inline bool ndm_queue_is_long(u32 srtt_us, u32 min_rtt_us)
{
	return ndm_rtt_exceeds(srtt_us, min_rtt_us, NDM_LONG_QUARTERS);
}

/* srtt within a round, and when the round began. */
static inline bool ndm_srtt_rose(u32 srtt_us, u32 before_us)
{
	return srtt_us > before_us + before_us / NDM_SRTT_RISE;
}

/*
 * A local path whose RTTs do not scatter. In the kernel's units: srtt in 1/8 us, mdev in
 * 1/4 us. On a longer path a queue may be other flows', and a flow that leaves slow start
 * to them stays small for long.
 */
static inline bool ndm_lan_is_steady(u32 srtt_eighths, u32 mdev_quarters)
{
	return ndm_path_is_local(srtt_eighths >> 3) && mdev_quarters < srtt_eighths >> 4;
}

/*
 * The shortest queue of some rounds, 1/32 of the baseline RTT, at most 255, from the lowest
 * RTT of those rounds and the baseline RTT. 0: unknown.
 */
static inline u8 ndm_shortest_queue(u32 lowest_us, u32 baseline_us)
{
	u64 queue;

	if (!baseline_us || lowest_us <= baseline_us)
		return 0;
	queue = ndm_div((u64)(lowest_us - baseline_us) * NDM_DRAIN_UNIT, baseline_us);
	return queue < NDM_DRAIN_MOST ? (u8)queue : NDM_DRAIN_MOST;
}

static inline bool ndm_queue_persists(u8 shortest)
{
	return shortest > NDM_DRAIN_QUEUE;
}

static inline bool ndm_queue_is_drained(u8 shortest)
{
	return shortest <= NDM_DRAIN_EMPTY;
}

/* Shortest queue before and after a drain: did the RTT stay as it was? */
static inline bool ndm_path_is_longer(u8 before, u8 after)
{
	return after < NDM_DRAIN_MOST &&
	       NDM_DRAIN_FELL * (before - after) <= NDM_DRAIN_UNIT + after;
}

static inline bool ndm_pipe_is_full(const s16 *x)
{
	return x[NDM_IN_BDP_RATIO] < NDM_FULL_PIPE;
}

static inline bool ndm_rtt_rises(const s16 *x)
{
	return x[NDM_IN_RTT_GRADIENT] > NDM_RTT_RISE;
}

static inline bool ndm_pipe_has_room(const s16 *x)
{
	return x[NDM_IN_BDP_RATIO] << NDM_Q_INPUT >= NDM_ROOM * (NDM_ONE - x[NDM_IN_LOSS_RATE]);
}

/* Rates in the units of the features; grown: the rate when it last grew, 0: none yet. */
static inline bool ndm_rate_grew(u32 rate, u32 grown, const s16 *x)
{
	u32 quarters = ndm_queue_grows(x) ? NDM_GREW_QUEUED : NDM_GREW_QUARTERS;

	return rate >= ((u64)grown * quarters) >> 2;
}

static inline bool ndm_rate_collapsed(u32 rate, u32 best)
{
	return rate < best / 4;
}

/* Do hosts hold ACKs back for more than a quarter of min RTT? */
static inline bool ndm_hosts_pause(u32 baseline_us, u32 min_rtt_us)
{
	return baseline_us > min_rtt_us + (min_rtt_us >> 2);
}

/*
 * Pauses of more than one and a half min RTTs are a host's. Shorter ones may be the path's
 * jitter, as on Wi-Fi. With NDM_BASELINE_US they are long only below 3.2 ms of min RTT.
 */
static inline bool ndm_pauses_are_long(u32 baseline_us, u32 min_rtt_us)
{
	return 2 * (u64)baseline_us > 5 * (u64)min_rtt_us;
}

static inline bool ndm_pauses_overflow(const s16 *x)
{
	return x[NDM_IN_LOSS_RATE] >= NDM_PAUSED_LOSS;
}

#endif /* _NDM_PATH_H */
