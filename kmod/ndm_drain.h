/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A drain: for one round a flow sends so little that a standing queue can empty.
 *
 * A new flow takes an RTT with the queue for the baseline, and then too much of the path.
 * Flows that each take the queue for a rival's keep it for ever. BBR's flows see the
 * baseline because all drain at once, every ten seconds. Here a drain shows the other
 * flows a shorter queue than they have seen for long. They count the rounds to their own
 * drain from there, so in time all drain in the same round. A flow that sees no sign of
 * other flows drains less and less: the queue is its own, and the network decides.
 *
 * An RTT that does not fall while the flow sends a quarter shows a longer path and no queue: the
 * lowest RTT of these rounds becomes min RTT, which the core keeps for five minutes.
 */
#ifndef _NDM_DRAIN_H
#define _NDM_DRAIN_H

#include "ndm_path.h"

#define NDM_DRAIN_ROUNDS	16	/* from one drain to the next, at least */
#define NDM_DRAIN_ALONE		3	/* after so many lone drains the pause is longest */
#define NDM_DRAIN_SHIFT		2	/* a drain takes a quarter of the window */

struct ndm_drain {
	u8 shortest;	/* queue since the newest drain, or before this one: ndm_shortest_queue() */
	u8 rounds;	/* counted since then, up to NDM_DRAIN_ROUNDS */
	u8 alone;	/* drains since a sign of other flows, up to NDM_DRAIN_ALONE */
	bool draining;	/* this round is sent with a quarter of the window */
};

enum ndm_drain_step {
	NDM_DRAIN_NOT,
	NDM_DRAIN_BEGINS,	/* the next round gets a quarter of the window */
	NDM_DRAIN_EMPTIED,	/* that round is over, and the queue is empty */
	NDM_DRAIN_IN_VAIN,	/* that round is over, and the RTT did not fall: a longer path */
	NDM_DRAIN_LINGERS,	/* that round is over; other flows keep the queue */
};

/* The queue shrank, and not because of this flow's own drain: other flows drain. */
static inline bool ndm_others_drain(const struct ndm_drain *d, u8 queue)
{
	return queue < d->shortest && d->rounds > 1;
}

/* The rounds counted when a round has ended, the phase-th of the probe's eight. */
static inline u8 ndm_drain_counted(const struct ndm_drain *d, u8 queue, u32 phase)
{
	/* Which rounds count: all, all, every second, every eighth. */
	static const u8 skipped[NDM_DRAIN_ALONE + 1] = { 0, 0, 1, 7 };

	if (ndm_others_drain(d, queue))
		return 0;
	if (queue < d->shortest || d->rounds >= NDM_DRAIN_ROUNDS || phase & skipped[d->alone])
		return d->rounds;
	return d->rounds + 1;
}

/*
 * What the drain does after a round of the network. may: the flow fills the window, and the
 * window is large enough to be cut.
 */
static inline enum ndm_drain_step ndm_drain_step(const struct ndm_drain *d, u8 queue, u32 phase,
						 bool may)
{
	if (d->draining)
		return ndm_queue_is_drained(queue) ? NDM_DRAIN_EMPTIED :
		       ndm_path_is_longer(d->shortest, queue) ? NDM_DRAIN_IN_VAIN :
		       NDM_DRAIN_LINGERS;
	if (ndm_drain_counted(d, queue, phase) < NDM_DRAIN_ROUNDS ||
	    !ndm_queue_persists(queue) || !may)
		return NDM_DRAIN_NOT;
	return NDM_DRAIN_BEGINS;
}

/* Count the round; returns the step it led to. */
static inline enum ndm_drain_step ndm_drain(struct ndm_drain *d, u8 queue, u32 phase, bool may)
{
	enum ndm_drain_step step = ndm_drain_step(d, queue, phase, may);
	bool others;

	if (d->draining) {
		d->alone += d->alone < NDM_DRAIN_ALONE;
		/* Of the longer path: none. */
		d->shortest = step == NDM_DRAIN_IN_VAIN ? 0 : queue;
		d->rounds = 0;
		d->draining = false;
		return step;
	}
	others = ndm_others_drain(d, queue);
	d->rounds = ndm_drain_counted(d, queue, phase);
	if (others)
		d->alone = 0;
	if (queue < d->shortest)
		d->shortest = queue;
	if (step == NDM_DRAIN_BEGINS) {
		d->rounds = 0;
		d->shortest = queue;
		d->draining = true;
	}
	return step;
}

#endif /* _NDM_DRAIN_H */
