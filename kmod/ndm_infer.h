/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The integer network: s16 weights with a power-of-two scale per row, s16
 * activations, accumulators that the exporter proves to fit s32, one
 * rounding rule, tanh from a table or saturation. No division, no floating point.
 * src/ndm_tcp/fixedpoint.py specifies every bit of it.
 *
 * A kernel has no vector registers, but a multiplication of 64 bits is one instruction
 * too: two rows share it, one in each half.
 */
#ifndef _NDM_INFER_H
#define _NDM_INFER_H

#include "generated/ndm_contract.h"
#include "generated/ndm_tables.h"

/* Weights of two rows for one input; the carry of a negative one is undone at the end. */
#define NDM_PAIR(even, odd)	((u64)(even) + ((u64)(odd) << 32))

/* An odd n_out has a last row of zeros beside it: all sizes but n_out count it. */
struct ndm_layer {
	const u64 *weight;	/* [(n_out + 1) / 2][n_in], pairs of rows */
	const u64 *bias;	/* likewise, and the half by which the shift rounds */
	const u8 *shift;	/* [n_out + n_out % 2], accumulator to Q16, 1 .. 31 */
	u8 n_in;
	u8 n_out;
	u8 n_clamped;		/* the last of n_out, which saturate instead of tanh */
};

struct ndm_model {
	const struct ndm_layer *layer;
	u8 n_layers;		/* the last one is linear */
};

static_assert(NDM_MAX_WIDTH % 2 == 0, "rows come in pairs");

/* Round half up; n is 1 .. 31, and acc leaves room for the half. */
static NDM_COMMON s32 ndm_round_shift(s32 acc, u32 n)
{
	return (acc + (1 << (n - 1))) >> n;
}

#define NDM_TANH_LIMIT	(1U << (NDM_Q_PRE + NDM_TANH_RANGE_LOG2))
#define NDM_TANH_BITS	(NDM_Q_PRE + NDM_TANH_RANGE_LOG2 - NDM_TANH_STEPS_LOG2)

/* Q16 to Q15, odd-symmetric, linear interpolation between the entries. */
static NDM_COMMON s16 ndm_tanh(s32 pre)
{
	u32 magnitude = pre < 0 ? 0U - (u32)pre : (u32)pre;
	const s16 *at;
	s32 value;

	NDM_HIDE(magnitude);
	if (magnitude >= NDM_TANH_LIMIT) {
		value = ndm_tanh_table[1 << NDM_TANH_STEPS_LOG2];
	} else {
		at = &ndm_tanh_table[magnitude >> NDM_TANH_BITS];
		value = (at[1] - at[0]) * (s32)(magnitude & ((1U << NDM_TANH_BITS) - 1));
		value = at[0] + ndm_round_shift(value, NDM_TANH_BITS);
	}
	return (s16)(pre < 0 ? -value : value);
}

static NDM_COMMON u64 ndm_dot2_2(u64 sum, const u64 *w, const u64 *in)
{
	sum = ndm_so_far(sum + w[0] * in[0]);
	return ndm_so_far(sum + w[1] * in[1]);
}

static NDM_COMMON u64 ndm_dot2_4(u64 sum, const u64 *w, const u64 *in)
{
	sum = ndm_dot2_2(sum, w, in);
	return ndm_dot2_2(sum, w + 2, in + 2);
}

static NDM_COMMON u64 ndm_dot2_8(u64 sum, const u64 *w, const u64 *in)
{
	sum = ndm_dot2_4(sum, w, in);
	return ndm_dot2_4(sum, w + 4, in + 4);
}

static NDM_COMMON u64 ndm_dot2_16(u64 sum, const u64 *w, const u64 *in)
{
	sum = ndm_dot2_8(sum, w, in);
	return ndm_dot2_8(sum, w + 8, in + 8);
}

/*
 * sum + weight . in of two rows, modulo 2^64: products of s16 fit s32, and the exporter
 * proves that with the bias the sums do too, for every input in the box. A foreign or
 * damaged model wraps around, which in unsigned numbers is no undefined behaviour.
 * By the digits of n, or counting would cost as much as multiplying.
 */
static NDM_COMMON u64 ndm_dot2(u64 sum, const u64 *w, const u64 *in, u32 n)
{
	for (; n >= 16; n -= 16, w += 16, in += 16)
		sum = ndm_dot2_16(sum, w, in);
	if (n & 8) {
		sum = ndm_dot2_8(sum, w, in);
		w += 8;
		in += 8;
	}
	if (n & 4) {
		sum = ndm_dot2_4(sum, w, in);
		w += 4;
		in += 4;
	}
	if (n & 2) {
		sum = ndm_dot2_2(sum, w, in);
		w += 2;
		in += 2;
	}
	return n & 1 ? ndm_so_far(sum + *w * *in) : sum;
}

static NDM_COMMON void ndm_rows(const struct ndm_layer *layer, const u64 *in, s32 *pre, u32 n_in)
{
	const u64 *weight = layer->weight, *bias = layer->bias;
	const u8 *shift = layer->shift;
	u32 pairs;

	for (pairs = (layer->n_out + 1U) / 2; pairs; pairs--, weight += n_in) {
		u64 sum = ndm_dot2(*bias++, weight, in, n_in);
		s32 even = (s32)sum;

		*pre++ = even >> *shift++;
		*pre++ = (s32)((sum - (u64)even) >> 32) >> *shift++;
	}
}

/*
 * One linear layer: pre[r] = (weight[r] . in + bias[r]) >> shift[r], Q16, rounded half up.
 * Of the first one the compiler knows the number of products.
 */
static NDM_COMMON void ndm_layer_forward(const struct ndm_layer *layer, const u64 *in, s32 *pre)
{
	if (layer->n_in == NDM_N_DENSE)
		ndm_rows(layer, in, pre, NDM_N_DENSE);
	else
		ndm_rows(layer, in, pre, layer->n_in);
}

static NDM_COMMON s32 ndm_clamp(s32 value, s32 lo, s32 hi)
{
	return value < lo ? lo : value > hi ? hi : value;
}

/* Q16 to Q15, clamped to [-1, 1): ReLU and Clip, scaled by the exporter. */
static NDM_COMMON s16 ndm_saturate(s32 pre)
{
	return (s16)ndm_clamp(ndm_round_shift(pre, NDM_Q_PRE - NDM_Q_ACT), -32768, 32767);
}

static NDM_COMMON void ndm_activate(const struct ndm_layer *layer, const s32 *pre, u64 *out)
{
	const u32 n_tanh = layer->n_out - layer->n_clamped;
	u32 i;

	for (i = 0; i < n_tanh; i++)
		out[i] = (u64)ndm_tanh(pre[i]);
	for (; i < layer->n_out; i++)
		out[i] = (u64)ndm_saturate(pre[i]);
}

/*
 * x: the inputs, Q12, inside the contract's box. out: the two outputs, Q16.
 * trace: NULL, or room for every layer's pre-activations one after the other.
 */
static inline void ndm_infer(const struct ndm_model *model, const s16 x[NDM_N_DENSE],
			     s32 out[NDM_N_OUTPUTS], s32 *trace)
{
	u64 in[NDM_MAX_WIDTH] NDM_SCRATCH;	/* s16, widened once for all rows */
	s32 pre[NDM_MAX_WIDTH] NDM_SCRATCH;
	u32 i, l;

	for (i = 0; i < NDM_N_DENSE; i++)
		in[i] = (u64)x[i];
	for (l = 0; l < model->n_layers; l++) {
		const struct ndm_layer *layer = &model->layer[l];

		ndm_layer_forward(layer, in, pre);
		if (trace) {
			memcpy(trace, pre, layer->n_out * sizeof(*pre));
			trace += layer->n_out;
		}
		if (l + 1 == model->n_layers)
			break;
		ndm_activate(layer, pre, in);
	}
	out[NDM_OUT_CWND_GAIN] = ndm_clamp(pre[NDM_OUT_CWND_GAIN], NDM_OUT_CWND_GAIN_LO,
					   NDM_OUT_CWND_GAIN_HI);
	out[NDM_OUT_CONGESTION] = ndm_clamp(pre[NDM_OUT_CONGESTION], NDM_OUT_CONGESTION_LO,
					    NDM_OUT_CONGESTION_HI);
}

#endif /* _NDM_INFER_H */
