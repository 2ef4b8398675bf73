/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Beside competing flows that keep the queue. Such a queue never empties, so a window is a share
 * of the link. The network learns its share in some rounds and holds it: two rounds after a loss
 * its window is as large as before. Where losses come often, a flow that comes late would never
 * get a window.
 *
 * So each round there with losses of overflow takes a quarter of the window, in a recovery of
 * what that left. Any other round adds an eighth at most, the law's packet included, or the
 * quarter would be back after a round. Where losses are rare, windows are large and CUBIC's grow
 * faster; all of this would only leave the link to it.
 *
 * On fast paths with jitter RTTs stay above the baseline RTT, too, and random losses come often:
 * there a network in doubt gives up the link. But where the window is far beyond what losses as
 * frequent leave Reno or CUBIC, neither is the cause. Such an unrivalled window is cut as without
 * a queue.
 */
#ifndef _NDM_RIVALS_H
#define _NDM_RIVALS_H

#include "ndm_control.h"
#include "ndm_path.h"

/*
 * loss_rate_mean, Q12, over about 16 rounds; from here on losses come often. With steady losses
 * CUBIC has windows of about 14 packets there. A round that lost an eighth is enough, too.
 */
#define NDM_RIVALS_OFTEN	(NDM_ONE / 128)
/* The network's logit, Q16, a probability of 0.88. On drawn paths random loss had less. */
#define NDM_RIVALS_SURE		(2 << 16)
#define NDM_RIVALS_GIVE		4U	/* a quarter of the window, rounded up */
#define NDM_RIVALS_GROW		8U	/* an eighth of it, or a packet */
/*
 * Window^2 x mean loss rate. Reno's is 3/2 (Mathis et al., 1997), so this is 16 times its window:
 * losses in bursts, which count once for a rival, must not suffice. CUBIC's is smaller up to an
 * RTT of 6 s (RFC 9438, section 5.1).
 */
#define NDM_RIVALS_LOST		384U
/* loss_rate_mean, Q12: below, its rounding is more than a quarter of it. */
#define NDM_RIVALS_SEEN		(NDM_ONE / 512)

/*
 * Is the window, packets, 16 times what random losses as frequent leave Reno? Packets that are
 * late and not lost count, too; a cut for them is wrong anyway.
 */
static inline bool ndm_is_unrivalled(u32 window, const s16 *x)
{
	u32 loss = (u32)x[NDM_IN_LOSS_RATE_MEAN];

	return loss >= NDM_RIVALS_SEEN &&
	       (u64)window * window * loss > NDM_RIVALS_LOST * NDM_ONE;
}

/*
 * Do losses come often, in a standing queue? Where packets overtake others, many that count as
 * lost are late and arrive, so a flow that once saw that does not count them. flags: of enum
 * ndm_law_flags.
 */
static inline bool ndm_overflows_often(const s16 *x, u32 flags)
{
	return x[NDM_IN_LOSS_RATE_MEAN] >= NDM_RIVALS_OFTEN && ndm_queue_stands(x) &&
	       !(flags & NDM_LAW_REORDERS);
}

/*
 * Does the law's packet not count in this round? CUBIC adds 0.53 packets in a round where
 * windows are small or RTTs short (RFC 9438, section 4.3). A packet in each round would take its
 * share. Half of the probe's phases make half of the packets.
 */
static inline bool ndm_skips_packet(u32 phase, u32 min_rtt_us, const s16 *x, u32 flags)
{
	return (phase & 1) && (ndm_path_is_local(min_rtt_us) || ndm_overflows_often(x, flags));
}

/*
 * The target of a round of such a queue, packets, from the law's, whether the window was used or
 * not. congestion: the network's logit; lost: packets in this round.
 */
static inline u32 ndm_shared_target(u32 target, u32 window, const s16 *x, u32 flags,
				    s32 congestion, u32 lost)
{
	if (!ndm_overflows_often(x, flags))
		return target;
	if (lost && congestion >= NDM_RIVALS_SURE)
		return ndm_min(target,
			       window - (window + NDM_RIVALS_GIVE - 1) / NDM_RIVALS_GIVE);
	return ndm_min(target, window + ndm_max(window / NDM_RIVALS_GROW, 1U));
}

#endif /* _NDM_RIVALS_H */
