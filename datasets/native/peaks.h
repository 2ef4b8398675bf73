/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The window of a sender of which only packets are known: the most of them in flight in the last
 * two rounds. Its threshold: none in slow start, then one that no window is below. Replays of
 * captures need it, and the simulator for BBR, whose own window is only a cap (lab/sim/record.c).
 */
#ifndef _NDM_PEAKS_H
#define _NDM_PEAKS_H

#include <stdint.h>

#define INITIAL_SSTHRESH	0x7FFFFFFF
#define LEFT_SLOW_START		2	/* the window is estimated, so only "above it" is known */

struct ndm_peaks {
	int64_t ssthresh, now, last, full;	/* packets; full: when slow start last grew */
	int64_t mark;		/* delivered when this round began */
	int64_t flat_rounds;
};

static inline void ndm_peaks_begin(struct ndm_peaks *p)
{
	*p = (struct ndm_peaks){ .ssthresh = INITIAL_SSTHRESH };
}

static inline int64_t ndm_peaks_cwnd(const struct ndm_peaks *p)
{
	int64_t most = p->now > p->last ? p->now : p->last;

	return most > 1 ? most : 1;
}

/* Packets left: so many are in flight. */
static inline void ndm_peaks_sent(struct ndm_peaks *p, int64_t inflight)
{
	p->now = p->now > inflight ? p->now : inflight;
}

/* A recovery begins. */
static inline void ndm_peaks_recovery(struct ndm_peaks *p)
{
	p->ssthresh = LEFT_SLOW_START;
}

/* A retransmission timed out. */
static inline void ndm_peaks_timeout(struct ndm_peaks *p)
{
	p->ssthresh = ndm_peaks_cwnd(p) / 2 > 2 ? ndm_peaks_cwnd(p) / 2 : 2;
	p->now = p->last = 1;
}

/* Without loss, slow start is over once three rounds brought less than a quarter more. */
static inline void ndm_peaks_grow(struct ndm_peaks *p)
{
	if (p->ssthresh != INITIAL_SSTHRESH)
		return;
	if (p->now * 4 >= p->full * 5) {
		p->full = p->now;
		p->flat_rounds = 0;
	} else if (++p->flat_rounds == 3) {
		p->ssthresh = LEFT_SLOW_START;
	}
}

/* A rate sample: a round ends with the first packet that was sent after it began. */
static inline void ndm_peaks_sample(struct ndm_peaks *p, int64_t prior_delivered,
				    int64_t delivered, int64_t inflight)
{
	if (prior_delivered < p->mark)
		return;
	ndm_peaks_grow(p);
	p->last = p->now;
	p->now = inflight;
	p->mark = delivered;
}

#endif /* _NDM_PEAKS_H */
