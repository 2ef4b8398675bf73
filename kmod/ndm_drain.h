/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When a flow sends so little for a round that a queue which never empties by
 * itself can empty.
 *
 * Who comes to a path with such a queue takes an RTT with the queue for the lowest
 * one, and too much of the path with it; and flows of which each takes the queue
 * for a rival's keep it for ever. BBR's flows see the lowest RTT by draining all at
 * once, every ten seconds. Here too whoever drains shows the others a shorter queue
 * than they have seen for long; they count the rounds up to their own turn from
 * there, and so it becomes the same round. A flow that sees no sign of others drains
 * less and less: the queue is its own, and the network's to judge.
 */
#ifndef _NDM_DRAIN_H
#define _NDM_DRAIN_H

#include "ndm_types.h"

#define NDM_DRAIN_UNIT		32	/* of queues, in the lowest RTT */
#define NDM_DRAIN_QUEUE		16	/* one longer than this does not empty by itself */
#define NDM_DRAIN_EMPTY		4	/* one up to this is empty */
#define NDM_DRAIN_ROUNDS	16	/* from one drain to the next, at least */
#define NDM_DRAIN_ALONE		3	/* after so many it drains most seldom */
#define NDM_DRAIN_SHIFT		2	/* down to a quarter of the window */
#define NDM_DRAINING		31

struct ndm_drain {
	u8 shortest;	/* the queue since the newest drain, 1/32 of the lowest RTT */
	u8 rounds;	/* since then, some not counted; or NDM_DRAINING */
	u8 alone;	/* drains since there was a sign of others, up to NDM_DRAIN_ALONE */
};

/*
 * The shortest queue of some rounds, 1/32 of the lowest RTT, at most 255, from the lowest
 * RTTs of those rounds and of all; 0: unknown.
 */
static inline u8 ndm_drain_queue(u32 lowest_of_some_us, u32 lowest_us)
{
	u64 queue;

	if (!lowest_us || lowest_of_some_us <= lowest_us)
		return 0;
	queue = ndm_div((u64)(lowest_of_some_us - lowest_us) * NDM_DRAIN_UNIT, lowest_us);
	return queue < 255 ? (u8)queue : 255;
}

enum ndm_drain_step {
	NDM_DRAIN_NOT,
	NDM_DRAIN_BEGINS,	/* the next round is to be sent with a small window */
	NDM_DRAIN_EMPTIED,	/* that round is over, and so is the queue */
	NDM_DRAIN_LINGERS,	/* that round is over; others keep the queue */
};

/*
 * A round of the network ended, the phase-th of the probe's eight. may: the window
 * is used, and large enough to be cut.
 */
static inline enum ndm_drain_step ndm_drain(struct ndm_drain *d, u8 queue, u32 phase, bool may)
{
	/* Which rounds count: all, all, every second, every eighth. */
	static const u8 skipped[NDM_DRAIN_ALONE + 1] = { 0, 0, 1, 7 };

	if (d->rounds == NDM_DRAINING) {
		d->alone += d->alone < NDM_DRAIN_ALONE;
		d->shortest = queue;
		d->rounds = 0;
		return queue <= NDM_DRAIN_EMPTY ? NDM_DRAIN_EMPTIED : NDM_DRAIN_LINGERS;
	}
	if (queue < d->shortest) {
		d->shortest = queue;
		/* Not of its own making any more: others let it shrink. */
		if (d->rounds > 1) {
			d->alone = 0;
			d->rounds = 0;
		}
	} else if (d->rounds < NDM_DRAIN_ROUNDS && !(phase & skipped[d->alone])) {
		d->rounds++;
	}
	if (d->rounds < NDM_DRAIN_ROUNDS || queue <= NDM_DRAIN_QUEUE || !may)
		return NDM_DRAIN_NOT;
	d->rounds = NDM_DRAINING;
	return NDM_DRAIN_BEGINS;
}

#endif /* _NDM_DRAIN_H */
