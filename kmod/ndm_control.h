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
 * the network takes away a share per round, the larger flow loses more.
 */
static inline u32 ndm_apply_gain(u32 cwnd, s32 gain)
{
	u64 target = (((u64)cwnd * ndm_exp2(gain)) >> 16) + 1;

	return (u32)(target < 0xffffffffU ? target : 0xffffffffU);
}

#define NDM_PROBE		12288	/* 3/16: 2^(3/16) = 1.14 */
#define NDM_PROBE_ROUNDS	8
/* One cycle in eight has a round more, as a mask of random bits. */
#define NDM_PROBE_SLIP		7

/*
 * What a round of the eight of a probe adds to the gain: two rounds have an
 * eighth more than the network's output, two as much less. A flow with a
 * constant window would never learn that a path has become faster, nor
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
 * The law does not trust a network with a path that it floods. A round that lost a fifth of its
 * packets behind a queue had overflow loss, whatever the network's outputs are: the window does
 * not grow, and the flow sends no more than arrived. This does not hold where jitter scatters
 * RTTs: srtt is above min RTT without a queue there, and most reordered packets count as lost
 * although they arrive late. Of a small window random loss takes a fifth, too: a few lost packets
 * are no flood.
 */
#define NDM_FLOOD_LOSS		(NDM_ONE / 5)	/* loss_rate; from here on */
#define NDM_FLOOD_LOST		8		/* packets; from here on */
#define NDM_FLOOD_SCATTER	(NDM_ONE / 4)	/* rttvar / srtt; from here on RTTs scatter */
#define NDM_FLOOD_OVERTAKEN	(NDM_ONE / 16)	/* the same where the path reorders packets */

enum ndm_law_flags {
	NDM_LAW_QUEUE		= 1 << 0,	/* srtt is above twice min RTT */
	NDM_LAW_JITTER		= 1 << 1,	/* the path's jitter scatters the RTTs */
	NDM_LAW_REORDERS	= 1 << 2,	/* the path has reordered packets */
	NDM_LAW_MARKED		= 1 << 3,	/* a mark or a local drop since the last round */
	NDM_LAW_UNUSED		= 1 << 4,	/* the flow did not fill its window */
};

/* Can reordered packets count as lost, or the RTT be long without a queue? */
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

/* The part of a window that arrived, packets; loss in [0, 1], Q12. */
static inline u32 ndm_arrived(u32 window, s32 loss)
{
	return (u32)(((u64)window * (u32)(NDM_ONE - loss)) >> NDM_Q_INPUT);
}

/*
 * The control law: the window of the next round, packets, from the network's gain, the phase of
 * the probe, a ceiling in packets, and the round's inputs, losses and flags.
 */
static inline u32 ndm_law(u32 window, s32 gain, u32 phase, const s16 *x, u32 lost, u32 flags,
			  u32 ceiling)
{
	u32 target = ndm_apply_gain(window, ndm_probed_gain(gain, phase));

	/* RFC 3168: after the reduction for a mark the window grows no faster than Reno's. */
	if (flags & NDM_LAW_MARKED)
		target = ndm_min(target, window + 1);
	if (flags & NDM_LAW_UNUSED)
		target = ndm_min(target, window);
	target = ndm_min(target, ceiling);
	if (ndm_floods(x, flags, lost))
		target = ndm_min(target, ndm_arrived(window, x[NDM_IN_LOSS_RATE]));
	return target;
}

/*
 * sigmoid(logit) = (1 + tanh(logit / 2)) / 2, Q16, in [0, 65535]. The half is rounded towards
 * zero, as by a division; BPF has no signed one.
 */
static inline u32 ndm_sigmoid(s32 logit)
{
	return (u32)(32768 + ndm_tanh((logit + (logit < 0)) >> 1));
}

/* The window after a loss: cut by half the probability of an overflow loss. */
static inline u32 ndm_cut(u32 cwnd, s32 congestion)
{
	return cwnd - (u32)(((u64)cwnd * ndm_sigmoid(congestion)) >> 17);
}

/*
 * The same without a queue or a rival: (2p - 1) / 2 for a probability p of overflow, nothing up
 * to 1/2. Where losses never end, one recovery follows another and each takes a cut: a network
 * in doubt would keep the window small.
 */
static inline u32 ndm_cut_without_queue(u32 cwnd, s32 congestion)
{
	u32 twice = 2 * ndm_sigmoid(congestion);

	return twice <= 65536 ? cwnd : cwnd - (u32)(((u64)cwnd * (twice - 65536)) >> 17);
}

#endif /* _NDM_CONTROL_H */
