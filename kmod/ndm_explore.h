/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Excursions for recordings: NDM_EXPLORE=y (Kbuild) builds a module that explores.
 *
 * A controller that always does the same in a state never records the effect of another
 * action, and a recording cannot separate its actions from the path's changes. So one
 * round in sixteen begins an excursion: for one to four rounds the gain is off by a random
 * amount in [-0.75, 0.75]. Without the flag ndm_explore() is the constant 0.
 */
#ifndef _NDM_EXPLORE_H
#define _NDM_EXPLORE_H

#include "ndm_watchdog.h"

#ifdef NDM_EXPLORE

#include <linux/random.h>

/* Q16: fifteen of these are 0.75, two of them one of the sixteen steps. */
#define NDM_EXPLORE_STEP	3277
/* One round in sixteen, as a mask of random bits. */
#define NDM_EXPLORE_SELDOM	15

/* Added to the gain of this round, Q16. */
static s32 ndm_explore(struct ndm_watchdog *w)
{
	u32 random = get_random_u32();

	if (w->explore_rounds) {
		w->explore_rounds--;
	} else {
		if (random & NDM_EXPLORE_SELDOM)
			return 0;
		w->explore_step = random >> 4 & 15;
		w->explore_rounds = random >> 8 & 3;
	}
	return ((s32)w->explore_step * 2 - 15) * NDM_EXPLORE_STEP;
}

#else

static inline s32 ndm_explore(struct ndm_watchdog *w)
{
	return 0;
}

#endif

#endif /* _NDM_EXPLORE_H */
