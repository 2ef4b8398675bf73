/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A ceiling for the window where the queue is too short to be seen.
 *
 * A queue much shorter than min RTT hardly changes the RTT. Only its loss shows, and the
 * network takes loss without a queue for random. But overflow loss ends when the window
 * shrinks. So a round with more than twice the usual loss sets a ceiling, if the network
 * too predicts overflow: the packets that arrive in one RTT at the highest rate of the
 * last rounds, the queue included. If more than the usual loss continues under the
 * ceiling, the window was not the cause, and the ceiling goes away. The network sees a
 * queue of one min RTT or more and shares it. Other flows keep a queue whose floor stays
 * above a quarter of its peak; a ceiling would only leave them more.
 *
 * A flow that does not fill its window sends all that the application has at once. The
 * round of that loss ends when the queue is almost gone, and only srtt still shows it:
 * the network predicts random loss. So for such a flow the loss of an eighth is enough.
 *
 * Where packets overtake others, RTTs show no queue, and many packets that count as lost are
 * late and arrive. Of a window that overflowed, less arrives in an RTT than was sent.
 */
#ifndef _NDM_CEILING_H
#define _NDM_CEILING_H

#include "ndm_path.h"

/* Rounds, at most: after that the flow tries the path again. */
#define NDM_CEILING_ROUNDS	31
/* Rounds, of these: they may still carry losses of the larger window. */
#define NDM_CEILING_SETTLES	2
/* Rounds, of these: flows that overflowed a queue together make room for one another. */
#define NDM_CEILING_SHRINKS	8
/* Packets lost in a round of an unfilled window, or where hosts pause: fewer are no burst. */
#define NDM_CEILING_LOST	4
/* loss_rate, Q12, of an unfilled window, and where packets overtake others. */
#define NDM_CEILING_BURST	(NDM_ONE / 8)

/*
 * Does less than three quarters of the window arrive in an RTT, at the highest rate of the last
 * rounds, and not just late?
 */
static inline bool ndm_less_arrives(const s16 *x, u32 lost)
{
	return lost >= 2 * NDM_CEILING_LOST && x[NDM_IN_LOSS_RATE] >= NDM_CEILING_BURST &&
	       4 * x[NDM_IN_BDP_RATIO] < 3 * x[NDM_IN_RTT_RATIO];
}

/*
 * Did the window that sent this round's packets overflow a short queue? congestion: the
 * network's logit; lost: packets in this round; used: the flow filled the window.
 */
static inline bool ndm_overflowed(const s16 *x, s32 congestion, u32 lost, bool used)
{
	if (used && !ndm_nothing_overtakes(x) && ndm_less_arrives(x, lost))
		return congestion >= 0;
	if (x[NDM_IN_LOSS_RATE] <= 2 * x[NDM_IN_LOSS_RATE_MEAN] || !ndm_queue_is_short(x) ||
	    !ndm_queue_empties(x))
		return false;
	if (!used)
		return lost >= NDM_CEILING_LOST && x[NDM_IN_LOSS_RATE] >= NDM_CEILING_BURST &&
		       ndm_queue_shows(x) && ndm_losses_are_real(x);
	return congestion >= 0 && ndm_nothing_overtakes(x);
}

/* The rounds for which the ceiling still holds after a round of the network; 0: no ceiling. */
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
 * max_rate x srtt in packets, from max_rate x baseline RTT / window and baseline RTT / srtt.
 * While nothing is lost this is about the window itself. After its first rounds the ceiling
 * does not shrink it then: where rates scatter, each of them would take a little.
 * left: rounds for which it holds.
 */
static inline u32 ndm_ceiling(u32 window, const s16 *x, u32 left)
{
	u64 packets = ndm_div((u64)window * x[NDM_IN_BDP_RATIO],
			      ndm_max(x[NDM_IN_RTT_RATIO], 1));
	u32 ceiling = packets < 0xffffffffU ? (u32)packets : 0xffffffffU;

	if (x[NDM_IN_LOSS_RATE] || left > NDM_CEILING_ROUNDS - NDM_CEILING_SHRINKS)
		return ceiling;
	return ndm_max(ceiling, window);
}

#endif /* _NDM_CEILING_H */
