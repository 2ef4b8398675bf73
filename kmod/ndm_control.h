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
