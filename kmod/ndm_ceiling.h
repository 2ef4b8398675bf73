/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How large a window may be where the queue is too short to be seen.
 *
 * A queue much shorter than the lowest RTT hardly changes the RTT. All that shows of it
 * is loss, which the network takes for noise where no queue is. What tells the two apart
 * is that the one ends with the window that made it. So a loss of twice what is usual
 * here, if the network too holds it for congestion, sets a ceiling: what arrives in an
 * RTT at the highest rate of the last rounds, the queue included. If more than usual is
 * lost under the ceiling too, the window was not why, and the ceiling is gone. A queue
 * of the lowest RTT or more is seen, and the network knows how to share it. One whose
 * lowest stays above a quarter of its highest others keep, and a ceiling would only
 * leave them more.
 *
 * A window that is not used lets all that the application has leave at once. The network
 * sees the loss of that when it is over and the queue all but gone, which only srtt still
 * shows, and takes it for noise: so of such a window the loss of an eighth is enough.
 */
#ifndef _NDM_CEILING_H
#define _NDM_CEILING_H

#include "generated/ndm_contract.h"

#define NDM_CEILING_ROUNDS	31	/* how long it holds, then the path is tried again */
#define NDM_CEILING_SETTLES	2	/* of them, still with losses of the larger window */
#define NDM_CEILING_STEADY	(NDM_ONE / 16)	/* rttvar / srtt; below, nothing overtakes, */
						/* and what is missing is lost */
#define NDM_CEILING_SHORT	(NDM_ONE / 2)	/* min_rtt / srtt; above, the queue is short */
#define NDM_CEILING_QUEUE	(NDM_ONE * 15 / 16)	/* min_rtt / srtt; below, one shows */
#define NDM_CEILING_LOST	4	/* packets, of a window that is not used */
#define NDM_CEILING_BURST	(NDM_ONE / 8)	/* loss_rate of a window that is not used */
#define NDM_CEILING_SCATTER	(NDM_ONE / 4)	/* rttvar / srtt; above, even that may be late */
#define NDM_CEILING_EMPTIES	(NDM_ONE / 4)	/* queue_floor; below, the queue empties */

/*
 * Did the window that this round's packets were sent with overflow a short queue? lost:
 * packets in this round; used: the flow filled the window.
 */
static inline bool ndm_overflowed(const s16 *x, s32 congestion, u32 lost, bool used)
{
	if (x[NDM_IN_LOSS_RATE] <= 2 * x[NDM_IN_LOSS_RATE_MEAN] ||
	    x[NDM_IN_RTT_RATIO] <= NDM_CEILING_SHORT ||
	    x[NDM_IN_QUEUE_FLOOR] >= NDM_CEILING_EMPTIES)
		return false;
	if (!used)
		return lost >= NDM_CEILING_LOST && x[NDM_IN_LOSS_RATE] >= NDM_CEILING_BURST &&
		       x[NDM_IN_RTT_RATIO] < NDM_CEILING_QUEUE &&
		       x[NDM_IN_RTT_VARIATION] < NDM_CEILING_SCATTER;
	return congestion >= 0 && x[NDM_IN_RTT_VARIATION] < NDM_CEILING_STEADY;
}

/* A round of the network ended: rounds for which the ceiling still holds, 0: there is none. */
static inline u32 ndm_ceiling_rounds(u32 left, const s16 *x, s32 congestion, u32 lost,
				     bool used)
{
	if (left && left <= NDM_CEILING_ROUNDS - NDM_CEILING_SETTLES &&
	    x[NDM_IN_LOSS_RATE] > x[NDM_IN_LOSS_RATE_MEAN])
		return 0;
	if (ndm_overflowed(x, congestion, lost, used))
		return NDM_CEILING_ROUNDS;
	return left ? left - 1 : 0;
}

/*
 * max_rate x srtt in packets, from max_rate x min_rtt / window and min_rtt / srtt. About
 * the window itself as long as nothing is lost: it does not draw the window down.
 */
static inline u32 ndm_ceiling(u32 window, const s16 *x)
{
	u64 packets = ndm_div((u64)window * x[NDM_IN_BDP_RATIO],
			      ndm_max(x[NDM_IN_RTT_RATIO], 1));

	return packets < 0xffffffffU ? (u32)packets : 0xffffffffU;
}

#endif /* _NDM_CEILING_H */
