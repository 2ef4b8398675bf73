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
 * cwnd times 2^gain, in packets. Rounded up when it grows and down when it
 * shrinks: at four packets a gain of 0.1 would otherwise never move it.
 */
static inline u32 ndm_apply_gain(u32 cwnd, s32 gain)
{
	u64 scaled = (u64)cwnd * ndm_exp2(gain) + (gain > 0 ? 65535 : 0);

	return (u32)(scaled >> 16 < 0xffffffffU ? scaled >> 16 : 0xffffffffU);
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
