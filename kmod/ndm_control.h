/* SPDX-License-Identifier: GPL-2.0-only */
/* From the two outputs of the network to a congestion window: pure functions. */
#ifndef _NDM_CONTROL_H
#define _NDM_CONTROL_H

#include "ndm_infer.h"

#define NDM_EXP2_BITS	(16 - NDM_EXP2_STEPS_LOG2)

/* 2^gain, Q16; gain in [-1, 1], Q16. */
static inline u32 ndm_exp2(s32 gain)
{
	u32 fraction = (u32)gain & 0xffff;
	u32 index = fraction >> NDM_EXP2_BITS;
	u32 low = ndm_exp2_table[index];
	u32 high = ndm_exp2_table[ndm_min(index + 1, 1 << NDM_EXP2_STEPS_LOG2)];
	s64 rest = (s64)(high - low) * (fraction & ((1U << NDM_EXP2_BITS) - 1));
	u32 value = low + (u32)ndm_round_shift(rest, NDM_EXP2_BITS);

	return gain < 0 ? (value + 1) >> 1 : gain < 65536 ? value : value << 1;
}

/*
 * cwnd times 2^gain and one packet more, in packets. The packet keeps a small
 * window from standing still, and makes flows that share a path alike: where
 * the network takes away a share per round, whoever has more loses more.
 */
static inline u32 ndm_apply_gain(u32 cwnd, s32 gain)
{
	u64 target = (((u64)cwnd * ndm_exp2(gain)) >> 16) + 1;

	return (u32)(target < 0xffffffffU ? target : 0xffffffffU);
}

#define NDM_PROBE		12288	/* 3/16: 2^(3/16) = 1.14 */
#define NDM_PROBE_ROUNDS	8

/*
 * What is added to the gain in a round of the eight of a probe: two rounds with
 * an eighth more than the network asked for, and two with as much less. Else a
 * flow that holds still would never learn that a path has become faster, nor
 * whether a queue is its own and empties when it sends less.
 */
static inline s32 ndm_probe(u32 phase)
{
	static const s16 step[NDM_PROBE_ROUNDS] = { 1, 0, -1, -1, 0, 1, 0, 0 };

	return step[phase % NDM_PROBE_ROUNDS] * NDM_PROBE;
}

/* The gain that is applied: the network's and the probe's, in [-1, 1], Q16. */
static inline s32 ndm_probed_gain(s32 gain, u32 phase)
{
	gain += ndm_probe(phase);
	return gain > 65536 ? 65536 : gain < -65536 ? -65536 : gain;
}

/*
 * A network is not to be trusted with a path that it floods. A round that lost a fifth of its
 * packets behind a queue did so by overflow, whatever its outputs are: the window does not grow,
 * and no more is sent than what arrived. Not where the path lets RTTs scatter: there srtt is
 * above the lowest RTT without a queue, and where packets overtake others most of what looks lost
 * is only late. A few packets are no flood: of a small window random losses take a fifth too.
 */
#define NDM_FLOOD_LOSS		(NDM_ONE / 5)	/* loss_rate; from here on */
#define NDM_FLOOD_LOST		8		/* packets; from here on */
#define NDM_FLOOD_SCATTER	(NDM_ONE / 4)	/* rttvar / srtt; from here on RTTs scatter, */
#define NDM_FLOOD_OVERTAKEN	(NDM_ONE / 16)	/* and where packets overtake others from here */

enum ndm_law_flags {
	NDM_LAW_QUEUE		= 1 << 0,	/* srtt is above twice the lowest RTT */
	NDM_LAW_JITTER		= 1 << 1,	/* RTTs that scatter are the path's doing */
	NDM_LAW_REORDERS	= 1 << 2,	/* packets have overtaken others */
	NDM_LAW_MARKED		= 1 << 3,	/* a mark or a local drop since the last round */
	NDM_LAW_UNUSED		= 1 << 4,	/* the flow did not fill its window */
};

/* May what looks lost be late, or the RTT long without a queue? */
static inline bool ndm_scatters(const s16 *x, u32 flags)
{
	return x[NDM_IN_RTT_VARIATION] >= (flags & NDM_LAW_REORDERS ? NDM_FLOOD_OVERTAKEN :
					   flags & NDM_LAW_JITTER ? NDM_FLOOD_SCATTER :
					   2 * NDM_ONE + 1);
}

/* lost: packets in this round. */
static inline bool ndm_floods(const s16 *x, u32 flags, u32 lost)
{
	return x[NDM_IN_LOSS_RATE] >= NDM_FLOOD_LOSS && lost >= NDM_FLOOD_LOST &&
	       (flags & NDM_LAW_QUEUE) && !ndm_scatters(x, flags);
}

/* What arrived of a window, packets; loss in [0, 1], Q12. */
static inline u32 ndm_arrived(u32 window, s32 loss)
{
	return (u32)(((u64)window * (u32)(NDM_ONE - loss)) >> NDM_Q_INPUT);
}

/*
 * The control law: the window of the next round, packets, from the network's gain, the phase of
 * the probe, a ceiling in packets and what else is known of the round.
 */
static inline u32 ndm_law(u32 window, s32 gain, u32 phase, const s16 *x, u32 lost, u32 flags,
			  u32 ceiling)
{
	u32 target = ndm_apply_gain(window, ndm_probed_gain(gain, phase));

	/* RFC 3168: no growth beyond Reno's after a reduction that a mark asked for. */
	if (flags & NDM_LAW_MARKED)
		target = ndm_min(target, window + 1);
	if (flags & NDM_LAW_UNUSED)
		target = ndm_min(target, window);
	target = ndm_min(target, ceiling);
	if (ndm_floods(x, flags, lost))
		target = ndm_min(target, ndm_arrived(window, x[NDM_IN_LOSS_RATE]));
	return target;
}

/* sigmoid(logit) = (1 + tanh(logit / 2)) / 2, Q16, in [0, 65535]. */
static inline u32 ndm_sigmoid(s32 logit)
{
	return (u32)(32768 + ndm_tanh(logit / 2));
}

/* The window after a loss: cut by half the probability that it is congestion. */
static inline u32 ndm_cut(u32 cwnd, s32 congestion)
{
	return cwnd - (u32)(((u64)cwnd * ndm_sigmoid(congestion)) >> 17);
}

#endif /* _NDM_CONTROL_H */
