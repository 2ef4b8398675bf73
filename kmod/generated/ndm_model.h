/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit directly, auto-generated from: */
/*	the checkpoint named below, by ndm export */
/* contract e72388f9d30b4773 */
/*
 * network: 18-8-8-2 tanh, s16 weights, Q16 outputs
 * checkpoint: sha256 76490fb34dd07e7cdcf80b5e3c1dc959320887abb2327ce6791f18aa6d86957e
 * dataset: sha256 7845a49e7f0af661d4f36b4547c9fb01e5b849aad378b12bfad7b73e570a1b66
 * onnx: sha256 1c5b65ffeb036f606dbf9960367a8732939dce1a1502dab18a03b89d237f26af
 * objective: target_step, seed 8, split by path
 * Proved for every input in the box (ndm_certificate.json):
 * cwnd_gain: |fixed - real| <= 0.000656; clamped: reached
 * congestion: |fixed - real| <= 0.0033; clamped: reached
 * cwnd_gain within [-1.0, 1.0]
 */

#ifndef _NDM_MODEL_H
#define _NDM_MODEL_H

#include "../ndm_infer.h"

#define NDM_MODEL_HASH	"1d32123ce5a19b7f"
#define NDM_MODEL_TRACE	18	/* pre-activations of all layers */

static_assert(NDM_CONTRACT_ID == 0xe72388f9d30b4773ULL,
	      "this model was made for another contract: run ndm export");

/*
 * Layer 0, [out / 2][in], two rows each: inputs Q12, weights Q12 to Q15 by row, largest row norm 184431.
 * Accumulators within [-586711167, 719904865] for every input in the box.
 */
static const u64 ndm_weight0[4 * 18] = {
	NDM_PAIR(-5127, -8090), NDM_PAIR(30645, -2465), NDM_PAIR(2382, 1649),
	NDM_PAIR(-4582, -2358), NDM_PAIR(269, -556), NDM_PAIR(3438, -2058),
	NDM_PAIR(21860, -18650), NDM_PAIR(-2946, 3135), NDM_PAIR(-388, 1727),
	NDM_PAIR(-745, 8270), NDM_PAIR(-1138, -3186), NDM_PAIR(11912, 3554),
	NDM_PAIR(4753, 4175), NDM_PAIR(-2369, -3882), NDM_PAIR(27872, -11535),
	NDM_PAIR(-9917, -30009), NDM_PAIR(-3031, -4626), NDM_PAIR(-1474, 11351),
	NDM_PAIR(-57, -214), NDM_PAIR(2596, 6444), NDM_PAIR(139, -899), NDM_PAIR(499, 2741),
	NDM_PAIR(137, 6984), NDM_PAIR(555, -3692), NDM_PAIR(2028, -23924),
	NDM_PAIR(-992, 1746), NDM_PAIR(-166, -2490), NDM_PAIR(203, 13049), NDM_PAIR(-1109, 70),
	NDM_PAIR(16914, 11539), NDM_PAIR(-492, 10260), NDM_PAIR(1614, -13227),
	NDM_PAIR(-1601, -25727), NDM_PAIR(7742, -18159), NDM_PAIR(901, 262),
	NDM_PAIR(-350, 15516), NDM_PAIR(5054, 70), NDM_PAIR(1069, 3779), NDM_PAIR(-854, -5296),
	NDM_PAIR(-2964, -921), NDM_PAIR(-1176, -3474), NDM_PAIR(-2469, -848),
	NDM_PAIR(-10428, 5511), NDM_PAIR(8035, -1), NDM_PAIR(3260, 213), NDM_PAIR(788, -1405),
	NDM_PAIR(1829, -2611), NDM_PAIR(12550, 3951), NDM_PAIR(8565, -1615),
	NDM_PAIR(8315, -1833), NDM_PAIR(-22481, 1220), NDM_PAIR(23246, 28258),
	NDM_PAIR(1062, 2102), NDM_PAIR(-8708, -1737), NDM_PAIR(-5737, 662),
	NDM_PAIR(18308, -7633), NDM_PAIR(5955, -6157), NDM_PAIR(4363, -6421),
	NDM_PAIR(-4352, -10951), NDM_PAIR(-5700, -1107), NDM_PAIR(-3676, 768),
	NDM_PAIR(-8439, -8427), NDM_PAIR(-2845, -253), NDM_PAIR(5343, -6540),
	NDM_PAIR(-12324, 1105), NDM_PAIR(23755, -9477), NDM_PAIR(8631, -626),
	NDM_PAIR(10391, 1066), NDM_PAIR(-23686, -6099), NDM_PAIR(-14163, 16985),
	NDM_PAIR(-7218, 666), NDM_PAIR(-19545, -7420),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias0[4] = {
	NDM_PAIR(11866721, -6827041), NDM_PAIR(-4708823, -10697855),
	NDM_PAIR(-3996251, 1769671), NDM_PAIR(-8459866, 5591442),
};

static const u8 ndm_shift0[8] = {
	10, 10, 8, 11, 10, 9, 11, 10,
};

/*
 * Layer 1, [out / 2][in], two rows each: inputs Q15, weights Q13 to Q15 by row, largest row norm 55012.
 * Accumulators within [-1831826757, 1875784471] for every input in the box.
 */
static const u64 ndm_weight1[4 * 8] = {
	NDM_PAIR(-15304, 10535), NDM_PAIR(-10824, 1493), NDM_PAIR(-1685, -5833),
	NDM_PAIR(-2424, 861), NDM_PAIR(-8548, -1317), NDM_PAIR(3612, 432),
	NDM_PAIR(4962, -17721), NDM_PAIR(-7653, 1642), NDM_PAIR(5882, 2737),
	NDM_PAIR(2701, 3099), NDM_PAIR(1613, -20077), NDM_PAIR(19717, 8752),
	NDM_PAIR(1973, -1186), NDM_PAIR(523, -1605), NDM_PAIR(-1809, 933),
	NDM_PAIR(-1530, 1952), NDM_PAIR(4719, -4575), NDM_PAIR(543, -8860),
	NDM_PAIR(-1809, -5583), NDM_PAIR(3348, 2987), NDM_PAIR(6775, 3999),
	NDM_PAIR(6010, 13168), NDM_PAIR(-4322, -1782), NDM_PAIR(7257, 4491),
	NDM_PAIR(17539, 11708), NDM_PAIR(2937, 6806), NDM_PAIR(2778, -104),
	NDM_PAIR(-2715, 4253), NDM_PAIR(-369, 10057), NDM_PAIR(-6053, 2506),
	NDM_PAIR(1601, -8831), NDM_PAIR(-1292, 10143),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias1[4] = {
	NDM_PAIR(102507032, 3808988), NDM_PAIR(-21569640, 17504632),
	NDM_PAIR(-10016615, 88494960), NDM_PAIR(-15398130, -71785168),
};

static const u8 ndm_shift1[8] = {
	13, 12, 12, 12, 13, 14, 13, 13,
};

/*
 * Layer 2, [out / 2][in], two rows each: inputs Q15, weights Q11 to Q13 by row, largest row norm 44234.
 * Accumulators within [-1409697198, 1385946393] for every input in the box.
 */
static const u64 ndm_weight2[1 * 8] = {
	NDM_PAIR(-5031, -15186), NDM_PAIR(-903, 6120), NDM_PAIR(-6189, 4043),
	NDM_PAIR(6762, -319), NDM_PAIR(-6788, 4421), NDM_PAIR(-10002, -466),
	NDM_PAIR(5189, 1538), NDM_PAIR(-3370, 9934),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias2[1] = {
	NDM_PAIR(-6552796, -17955634),
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
