/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When not to listen to the network any more. Two things must not go on, whatever
 * it was trained to think of them:
 *
 * - starving: the window limits the flow, no queue shows in the RTT, and yet not
 *   even the best of the last five to ten rounds brought a quarter of the rate
 *   that the path once carried. The window is too small and the network keeps it.
 *   Believed after ten rounds in a row, as many as the highest rate is remembered.
 * - flooding: a fifth of all packets is lost, on average over some
 *   thirty rounds. Noise or not, such a path is not to be sent more. Rounds whose
 *   RTTs the path lets scatter do not count: where packets overtake others, most
 *   of what looks lost is only late.
 *
 * Then the flow does what Reno does for 32 rounds: one packet more in a round,
 * half the window after a loss. That ends starving and flooding alike, if they
 * were the network's doing, and costs little if they were the path's.
 */
#ifndef _NDM_WATCHDOG_H
#define _NDM_WATCHDOG_H

#include "ndm_control.h"

#define NDM_WATCHDOG_PATIENCE	(2 * NDM_MAX_RATE_HALF_ROUNDS)
#define NDM_WATCHDOG_ROUNDS	32
#define NDM_WATCHDOG_LOSS	(NDM_ONE / 5)
#define NDM_WATCHDOG_SMOOTH	5	/* a round is 1/32 of the mean loss */
#define NDM_WATCHDOG_FORGET	7	/* the best rate fades by 1/128 in a round */

struct ndm_watchdog {
	u32 best_rate;		/* the highest there was, fading; Q24 packets/us. In */
				/* slow start: when that last grew it, not fading */
	u32 loss:13,		/* share of lost packets, smoothed, Q12 */
	    starved:4,		/* rounds in a row in which it starved */
	    left:6,		/* rounds for which the network is not listened to */
	    unused:4,		/* room for a module that explores, lab/guest/explore.py */
	    room:2,		/* for that module too */
	    probing_mtu:1;	/* the module's own */
};

/*
 * A valid round ended, not one of slow start. limited: the window limited the
 * flow; flags: of enum ndm_law_flags. True if the flow falls back now, for this
 * round and those to come.
 */
static inline bool ndm_watchdog_bites(struct ndm_watchdog *w, const s16 *x, u32 max_rate,
				      bool limited, u32 flags)
{
	s16 loss = ndm_scatters(x, flags & NDM_LAW_JITTER) ? 0 : x[NDM_IN_LOSS_RATE];
	bool starving;

	w->best_rate = ndm_max(w->best_rate - (w->best_rate >> NDM_WATCHDOG_FORGET), max_rate);
	if (w->left) {
		w->left--;
		return false;
	}
	w->loss += (u32)(loss >> NDM_WATCHDOG_SMOOTH) - (w->loss >> NDM_WATCHDOG_SMOOTH);
	starving = limited && max_rate < w->best_rate / 4 && x[NDM_IN_RTT_RATIO] > NDM_ONE / 2;
	w->starved = starving ? w->starved + 1 : 0;
	if (w->starved < NDM_WATCHDOG_PATIENCE && w->loss < NDM_WATCHDOG_LOSS)
		return false;
	w->loss = 0;
	w->starved = 0;
	w->left = NDM_WATCHDOG_ROUNDS;
	return true;
}

/* The path may be another one: after a timeout or a silence. */
static inline void ndm_watchdog_forget(struct ndm_watchdog *w)
{
	w->best_rate = 0;
	w->loss = 0;
	w->starved = 0;
}

#endif /* _NDM_WATCHDOG_H */
