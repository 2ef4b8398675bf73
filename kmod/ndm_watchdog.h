/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The watchdog: it takes the window from a network that starves or floods a path.
 *
 * - Starving: the window limits the flow, the queue is short, and yet the best rate of
 *   the last five to ten rounds is below a quarter of the rate that the path once
 *   carried. The network keeps the window too small. Ten rounds in a row decide, the
 *   memory of the highest rate.
 * - Flooding: the path loses a fifth of all packets, averaged over some thirty rounds.
 *   Such a path must not get more, whatever the losses are. Rounds with RTTs that the
 *   path scatters count as lossless: most packets that look lost there are only late.
 *
 * Then the flow does as Reno for 32 rounds: one packet more in a round, half of the window
 * after a loss. That ends starving and flooding if the network caused them, and costs
 * little if the path did.
 */
#ifndef _NDM_WATCHDOG_H
#define _NDM_WATCHDOG_H

#include "ndm_control.h"
#include "ndm_path.h"

/* Rounds of starving in a row: as many as max_rate remembers. */
#define NDM_WATCHDOG_PATIENCE	(2 * NDM_MAX_RATE_HALF_ROUNDS)
/* Rounds without the network. */
#define NDM_WATCHDOG_ROUNDS	32
/* Mean loss_rate, Q12, of a flood. A round counts 1/32 of the mean. */
#define NDM_WATCHDOG_LOSS	(NDM_ONE / 5)
#define NDM_WATCHDOG_SMOOTH	5
/* The best rate fades by 1/128 in a round: the path may have become slower. */
#define NDM_WATCHDOG_FORGET	7

struct ndm_watchdog {
	union {			/* Q24 packets/us; 0: none yet */
		u32 grown_rate;	/* in slow start: the rate at its last growth */
		u32 best_rate;	/* after it: the highest rate, fading; begins with that one */
	};
	u32 loss:13,		/* share of lost packets, smoothed, Q12 */
	    starved:4,		/* rounds of starving in a row */
	    left:6,		/* rounds without the network still to come */
	    explore_step:4,	/* the caller's own, as those below: see ndm_explore.h */
	    explore_rounds:2,
	    probing_mtu:1,	/* see ndm_note_mtu_probe() */
	    draining:1,		/* see struct ndm_drain */
	    paces_evenly:1;	/* a ceiling holds, and bursts overflow the queue */
};

/* limited: the window limited the flow. */
static inline bool ndm_starves(const struct ndm_watchdog *w, const s16 *x, u32 max_rate,
			       bool limited)
{
	return limited && ndm_rate_collapsed(max_rate, w->best_rate) && ndm_queue_is_short(x);
}

static inline bool ndm_watchdog_is_due(const struct ndm_watchdog *w)
{
	return w->starved >= NDM_WATCHDOG_PATIENCE || w->loss >= NDM_WATCHDOG_LOSS;
}

/* Count a round that the network decided. flags: of enum ndm_law_flags. */
static inline void ndm_watchdog_count(struct ndm_watchdog *w, const s16 *x, u32 max_rate,
				      bool limited, u32 flags)
{
	s16 loss = ndm_scatters(x, flags & NDM_LAW_JITTER) ? 0 : x[NDM_IN_LOSS_RATE];

	w->loss += (u32)(loss >> NDM_WATCHDOG_SMOOTH) - (w->loss >> NDM_WATCHDOG_SMOOTH);
	w->starved = ndm_starves(w, x, max_rate, limited) ? w->starved + 1 : 0;
}

/*
 * A valid round outside slow start ended. True if the watchdog takes over now, for this
 * round and the next NDM_WATCHDOG_ROUNDS.
 */
static inline bool ndm_watchdog_step(struct ndm_watchdog *w, const s16 *x, u32 max_rate,
				     bool limited, u32 flags)
{
	w->best_rate = ndm_max(w->best_rate - (w->best_rate >> NDM_WATCHDOG_FORGET), max_rate);
	if (w->left) {
		w->left--;
		return false;
	}
	ndm_watchdog_count(w, x, max_rate, limited, flags);
	if (!ndm_watchdog_is_due(w))
		return false;
	w->loss = 0;
	w->starved = 0;
	w->left = NDM_WATCHDOG_ROUNDS;
	return true;
}

/* After a timeout or a silence: the path may be another one. */
static inline void ndm_watchdog_forget(struct ndm_watchdog *w)
{
	w->best_rate = 0;
	w->loss = 0;
	w->starved = 0;
}

#endif /* _NDM_WATCHDOG_H */
