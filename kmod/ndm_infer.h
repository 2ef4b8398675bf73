/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The integer network: s16 weights with a power-of-two scale per row, s16
 * activations, accumulators that the exporter proves to fit s32, one
 * rounding rule, tanh from a table or saturation. No division, no floating point.
 * src/ndm_tcp/fixedpoint.py specifies every bit of it.
 */
#ifndef _NDM_INFER_H
#define _NDM_INFER_H

#include "generated/ndm_contract.h"
#include "generated/ndm_tables.h"

struct ndm_layer {
	const s16 *weight;	/* [n_out][n_in] */
	const s32 *bias;	/* [n_out], in the scale of the accumulator */
	const u8 *shift;	/* [n_out], accumulator to Q16, 1 .. 31 */
	u8 n_in;
	u8 n_out;
	u8 n_clamped;		/* how many of n_out, the last ones, saturate instead of tanh */
};

struct ndm_model {
	const struct ndm_layer *layer;
	u8 n_layers;		/* the last one is linear */
};

/* Round half up; n is 1 .. 31. */
static inline s64 ndm_round_shift(s64 acc, u32 n)
{
	return (acc + ((s64)1 << (n - 1))) >> n;
}

#define NDM_TANH_LIMIT	(1U << (NDM_Q_PRE + NDM_TANH_RANGE_LOG2))
#define NDM_TANH_BITS	(NDM_Q_PRE + NDM_TANH_RANGE_LOG2 - NDM_TANH_STEPS_LOG2)

/* Q16 to Q15, odd-symmetric, linear interpolation between the entries. */
static inline s16 ndm_tanh(s32 pre)
{
	u32 magnitude = pre < 0 ? 0U - (u32)pre : (u32)pre;
	s32 low, high, value;
	u32 index;

	if (magnitude >= NDM_TANH_LIMIT) {
		value = ndm_tanh_table[1 << NDM_TANH_STEPS_LOG2];
	} else {
		index = magnitude >> NDM_TANH_BITS;
		low = ndm_tanh_table[index];
		high = ndm_tanh_table[index + 1];
		value = (high - low) * (s32)(magnitude & ((1U << NDM_TANH_BITS) - 1));
		value = low + (s32)ndm_round_shift(value, NDM_TANH_BITS);
	}
	return (s16)(pre < 0 ? -value : value);
}

/*
 * weight . in, modulo 2^32: products of s16 fit s32, and the exporter proves that
 * with the bias the sum does too, for every input in the box. A foreign or damaged
 * model wraps around, which in unsigned numbers is no undefined behaviour. Eight at
 * a time, or counting would cost as much as multiplying.
 */
static inline u32 ndm_dot(const s16 *weight, const s32 *in, u32 n)
{
	u32 sum = 0;

	for (; n >= 8; n -= 8, weight += 8, in += 8)
		sum += (u32)(weight[0] * in[0]) + (u32)(weight[1] * in[1]) +
		       (u32)(weight[2] * in[2]) + (u32)(weight[3] * in[3]) +
		       (u32)(weight[4] * in[4]) + (u32)(weight[5] * in[5]) +
		       (u32)(weight[6] * in[6]) + (u32)(weight[7] * in[7]);
	while (n--)
		sum += (u32)(*weight++ * *in++);
	return sum;
}

/* One linear layer: pre[r] = (weight[r] . in + bias[r]) >> shift[r], Q16. */
static inline void ndm_layer_forward(const struct ndm_layer *layer, const s32 *in, s32 *pre)
{
	const s16 *weight = layer->weight;
	u32 row;

	for (row = 0; row < layer->n_out; row++, weight += layer->n_in) {
		s32 acc = (s32)(ndm_dot(weight, in, layer->n_in) + (u32)layer->bias[row]);

		pre[row] = (s32)ndm_round_shift(acc, layer->shift[row]);
	}
}

static inline s32 ndm_clamp(s32 value, s32 lo, s32 hi)
{
	return value < lo ? lo : value > hi ? hi : value;
}

/* Q16 to Q15, clamped to [-1, 1): what ReLU and Clip become, scaled by the exporter. */
static inline s16 ndm_saturate(s32 pre)
{
	return (s16)ndm_clamp((s32)ndm_round_shift(pre, NDM_Q_PRE - NDM_Q_ACT), -32768, 32767);
}

static inline void ndm_activate(const struct ndm_layer *layer, const s32 *pre, s32 *out)
{
	const u32 n_tanh = layer->n_out - layer->n_clamped;
	u32 i;

	for (i = 0; i < n_tanh; i++)
		out[i] = ndm_tanh(pre[i]);
	for (; i < layer->n_out; i++)
		out[i] = ndm_saturate(pre[i]);
}

/*
 * x: the inputs, Q12, inside the contract's box. out: the two outputs, Q16.
 * trace: NULL, or room for every layer's pre-activations one after the other.
 */
static inline void ndm_infer(const struct ndm_model *model, const s16 x[NDM_N_INPUTS],
			     s32 out[NDM_N_OUTPUTS], s32 *trace)
{
	s32 in[NDM_MAX_WIDTH];	/* s16, widened once for all rows */
	s32 pre[NDM_MAX_WIDTH];
	u32 i, l;

	for (i = 0; i < NDM_N_INPUTS; i++)
		in[i] = x[i];
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
