/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit directly, auto-generated from: */
/*	the checkpoint named below, by ndm export */
/* contract e72388f9d30b4773 */
/*
 * network: 18-8-8-2 tanh, s16 weights, Q16 outputs
 * checkpoint: sha256 9f76731237e10165be4bfa6e402b69c61b9d830fe384e6e3505898bea7ea2449
 * dataset: sha256 a28d5da04b0350e68adaef756920a946caca2e96ddae2699450f7e4a49539038
 * onnx: sha256 47053898602041215bd96ba7b9f3f3ad677e2ff8fdcc4bf9dd9330f01caa1139
 * objective: target_step, seed 8, split by path
 * Proved for every input in the box (ndm_certificate.json):
 * cwnd_gain: |fixed - real| <= 0.000654; clamped: reached
 * congestion: |fixed - real| <= 0.00376; clamped: reached
 * cwnd_gain within [-1.0, 1.0]
 */

#ifndef _NDM_MODEL_H
#define _NDM_MODEL_H

#include "../ndm_infer.h"

#define NDM_MODEL_HASH	"55e22fcd6810cf8d"
#define NDM_MODEL_TRACE	18	/* pre-activations of all layers */

static_assert(NDM_CONTRACT_ID == 0xe72388f9d30b4773ULL,
	      "this model was made for another contract: run ndm export");

/*
 * Layer 0, [out / 2][in], two rows each: inputs Q12, weights Q13 to Q15 by row, largest row norm 197949.
 * Accumulators within [-647915106, 541219230] for every input in the box.
 */
static const u64 ndm_weight0[4 * 18] = {
	NDM_PAIR(-4201, -7588), NDM_PAIR(11353, 6432), NDM_PAIR(1273, -357),
	NDM_PAIR(-5632, 1169), NDM_PAIR(-1207, 3815), NDM_PAIR(2264, -2911),
	NDM_PAIR(10732, -27435), NDM_PAIR(-1930, 6978), NDM_PAIR(492, 1943),
	NDM_PAIR(-81, 10362), NDM_PAIR(-1070, -4942), NDM_PAIR(1049, 3768),
	NDM_PAIR(6013, 2391), NDM_PAIR(-3519, -5070), NDM_PAIR(19365, -14476),
	NDM_PAIR(-25569, -25417), NDM_PAIR(-3463, -2404), NDM_PAIR(847, 15400),
	NDM_PAIR(-1674, 1391), NDM_PAIR(12565, 3362), NDM_PAIR(-191, 2188),
	NDM_PAIR(-261, 2646), NDM_PAIR(329, 8340), NDM_PAIR(2860, -3189),
	NDM_PAIR(7486, -8710), NDM_PAIR(-1488, -356), NDM_PAIR(-278, -3318),
	NDM_PAIR(48, 13205), NDM_PAIR(-2194, 836), NDM_PAIR(31871, 9409),
	NDM_PAIR(-734, 12002), NDM_PAIR(3984, -11950), NDM_PAIR(5, -17212),
	NDM_PAIR(14986, -11911), NDM_PAIR(1697, 94), NDM_PAIR(-1813, 14323),
	NDM_PAIR(12774, -351), NDM_PAIR(9913, 5396), NDM_PAIR(5545, -5711),
	NDM_PAIR(-8252, -944), NDM_PAIR(-5355, 1211), NDM_PAIR(-6639, -136),
	NDM_PAIR(-12978, 5611), NDM_PAIR(8533, -595), NDM_PAIR(1998, 544),
	NDM_PAIR(-3704, -2402), NDM_PAIR(5381, -3209), NDM_PAIR(21717, 3046),
	NDM_PAIR(20221, -1554), NDM_PAIR(9038, -724), NDM_PAIR(-31018, 1567),
	NDM_PAIR(14072, 20917), NDM_PAIR(-599, 2025), NDM_PAIR(-20212, -2170),
	NDM_PAIR(-3143, 1071), NDM_PAIR(6745, -5548), NDM_PAIR(2635, -4932),
	NDM_PAIR(1497, -3231), NDM_PAIR(-2557, -12841), NDM_PAIR(-3329, -2502),
	NDM_PAIR(-3045, 1283), NDM_PAIR(-4129, -7725), NDM_PAIR(-1276, -270),
	NDM_PAIR(2952, -1393), NDM_PAIR(-6227, 675), NDM_PAIR(13278, -6685),
	NDM_PAIR(4223, -1282), NDM_PAIR(4793, 267), NDM_PAIR(-16545, -4803),
	NDM_PAIR(-20723, 18330), NDM_PAIR(-3723, 1583), NDM_PAIR(-9677, -5193),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias0[4] = {
	NDM_PAIR(11338464, -10215773), NDM_PAIR(-7702370, -15598338),
	NDM_PAIR(-11567714, 3456822), NDM_PAIR(-4378211, 3119819),
};

static const u8 ndm_shift0[8] = {
	10, 10, 9, 11, 11, 9, 10, 10,
};

/*
 * Layer 1, [out / 2][in], two rows each: inputs Q15, weights Q12 to Q15 by row, largest row norm 58597.
 * Accumulators within [-1951436935, 1997210668] for every input in the box.
 */
static const u64 ndm_weight1[4 * 8] = {
	NDM_PAIR(543, 27349), NDM_PAIR(-9902, 1500), NDM_PAIR(-5107, -341),
	NDM_PAIR(1127, -692), NDM_PAIR(-9045, 471), NDM_PAIR(-262, 1138),
	NDM_PAIR(10062, -2139), NDM_PAIR(-5903, -478), NDM_PAIR(7288, 14135),
	NDM_PAIR(3405, 2947), NDM_PAIR(455, -16573), NDM_PAIR(21342, 4790),
	NDM_PAIR(1610, -1278), NDM_PAIR(460, -777), NDM_PAIR(-1925, 941),
	NDM_PAIR(-1546, 1256), NDM_PAIR(-6819, -9003), NDM_PAIR(5564, -7455),
	NDM_PAIR(2289, -11416), NDM_PAIR(957, 2319), NDM_PAIR(8551, 2981),
	NDM_PAIR(5695, 15019), NDM_PAIR(-8647, -4734), NDM_PAIR(6757, 3600),
	NDM_PAIR(7243, -5600), NDM_PAIR(965, 5570), NDM_PAIR(5747, 2196), NDM_PAIR(9492, 730),
	NDM_PAIR(7588, 8049), NDM_PAIR(-20091, 4724), NDM_PAIR(655, -8086),
	NDM_PAIR(-6816, 6335),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias1[4] = {
	NDM_PAIR(90387224, 24209240), NDM_PAIR(-16828162, 11566870),
	NDM_PAIR(-33354646, 153715680), NDM_PAIR(-45201256, -38650540),
};

static const u8 ndm_shift1[8] = {
	13, 11, 12, 12, 13, 14, 14, 13,
};

/*
 * Layer 2, [out / 2][in], two rows each: inputs Q15, weights Q11 to Q13 by row, largest row norm 43850.
 * Accumulators within [-1447806847, 1399112339] for every input in the box.
 */
static const u64 ndm_weight2[1 * 8] = {
	NDM_PAIR(-591, -13695), NDM_PAIR(-127, 8982), NDM_PAIR(-6363, 3314),
	NDM_PAIR(6586, -745), NDM_PAIR(-6400, 8185), NDM_PAIR(-12113, -516),
	NDM_PAIR(5037, 518), NDM_PAIR(-4742, 7895),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias2[1] = {
	NDM_PAIR(-14650305, -21226062),
};

static const u8 ndm_shift2[2] = {
	12, 10,
};

static const struct ndm_layer ndm_model_layer[] = {
	{
		.weight = ndm_weight0, .bias = ndm_bias0, .shift = ndm_shift0,
		.n_in = 18, .n_out = 8,
	},
	{
		.weight = ndm_weight1, .bias = ndm_bias1, .shift = ndm_shift1,
		.n_in = 8, .n_out = 8,
	},
	{
		.weight = ndm_weight2, .bias = ndm_bias2, .shift = ndm_shift2,
		.n_in = 8, .n_out = 2,
	},
};

static const struct ndm_model ndm_model = {
	.layer = ndm_model_layer,
	.n_layers = 3,
};

#endif /* _NDM_MODEL_H */
