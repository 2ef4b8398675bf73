/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Beside other flows that keep the queue. Such a queue never empties, so a window is a share of
 * the link. The network learns its share in some rounds and holds it: two rounds after a loss
 * its window is as large as before, and a flow that comes late would never get one.
 *
 * So an overflow takes a quarter of the window. Where CUBIC grows as Reno does, the flow grows
 * as CUBIC there: half a packet in a round. What the network adds to that is an eighth of the
 * window at most, or the quarter would be back after a round. Where CUBIC grows faster, slow
 * growth would leave the link to it.
 */
#ifndef _NDM_RIVALS_H
#define _NDM_RIVALS_H

#include "ndm_path.h"

/*
 * window^2 x RTT^3, packets^2 ms^3. After a cut to 7/10 CUBIC needs 0.3 window / 0.53 rounds for
 * the rest as Reno does, and cbrt(0.75 window) seconds by its cubic function (RFC 9438, 4.2 and
 * 4.3). Up to 4 packets^2 s^3 the rounds are shorter. A twentieth of it, because flows on one
 * path have windows of several sizes: only the large ones would grow freely.
 */
#define NDM_RENO_REGION		200000000ULL
/* Packets x ms, and ms: more is beyond that region, and the product fits u64. */
#define NDM_RENO_MOST		0x1000000ULL
#define NDM_RENO_MOST_MS	4095U
/* The network's logit, Q16, a probability of 0.88: from here on losses are an overflow's. */
#define NDM_RIVALS_OVERFLOW	(2 << 16)
#define NDM_RIVALS_GIVE		2	/* a quarter of the window */
#define NDM_RIVALS_GROW		3	/* an eighth of it, or a packet */

/* Would CUBIC grow as Reno does? window: packets. */
static inline bool ndm_cubic_is_reno(u32 window, u32 srtt_us)
{
	u64 ms = ndm_min(srtt_us / 1000 + 1, NDM_RENO_MOST_MS);
	u64 product = (u64)window * ms;

	return product < NDM_RENO_MOST && product * product * ms <= NDM_RENO_REGION;
}

/*
 * The target of a round beside flows that keep the queue, packets. congestion: the network's
 * logit; lost: packets in this round; skips: in every second round the law's packet does not
 * count.
 */
static inline u32 ndm_shared_target(u32 target, u32 window, u32 srtt_us, const s16 *x,
				    s32 congestion, u32 lost, bool skips)
{
	bool slow = ndm_cubic_is_reno(window, srtt_us);
	u32 most = window + ndm_max(window >> NDM_RIVALS_GROW, 1U);

	target -= target && skips && slow;
	if (!ndm_rtt_is_steady(x))
		return target;
	if (lost && congestion >= NDM_RIVALS_OVERFLOW)
		return ndm_min(target, window - ((window + 3) >> NDM_RIVALS_GIVE));
	return slow ? ndm_min(target, most) : target;
}

#endif /* _NDM_RIVALS_H */
