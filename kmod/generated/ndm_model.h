/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit directly, auto-generated from: */
/*	the checkpoint named below, by ndm export */
/* contract e72388f9d30b4773 */
/*
 * network: 18-8-8-2 tanh, s16 weights, Q16 outputs
 * checkpoint: sha256 f29e7607fc13f9890e891580d092c827fc0bf0f2344f9e192b4c1d6cdb92287c
 * dataset: sha256 5ebf9c8fa5eb0946fd6ebf24efae96abbf929cd564301cbc135c4825ccdc94f9
 * onnx: sha256 b11efbae5a9c48f0700ab81480169c11d1ed8a11d0c1abca1667b71b60f6f1ba
 * objective: target_step, seed 2, split by path
 * Proved for every input in the box (ndm_certificate.json):
 * cwnd_gain: |fixed - real| <= 0.000756; clamped: reached
 * congestion: |fixed - real| <= 0.00369; clamped: reached
 * cwnd_gain within [-1.0, 1.0]
 */

#ifndef _NDM_MODEL_H
#define _NDM_MODEL_H

#include "../ndm_infer.h"

#define NDM_MODEL_HASH	"94a5c04bbf1ae226"
#define NDM_MODEL_TRACE	18	/* pre-activations of all layers */

static_assert(NDM_CONTRACT_ID == 0xe72388f9d30b4773ULL,
	      "this model was made for another contract: run ndm export");

/*
 * Layer 0, [out / 2][in], two rows each: inputs Q12, weights Q13 to Q15 by row, largest row norm 161330.
 * Accumulators within [-714698291, 660961818] for every input in the box.
 */
static const u64 ndm_weight0[4 * 18] = {
	NDM_PAIR(3535, -618), NDM_PAIR(-5633, 7630), NDM_PAIR(-3355, -3556),
	NDM_PAIR(-7851, 130), NDM_PAIR(-4185, 7470), NDM_PAIR(-1073, -1174),
	NDM_PAIR(2747, 3273), NDM_PAIR(-3717, 7596), NDM_PAIR(379, -1070),
	NDM_PAIR(-6171, -188), NDM_PAIR(1993, -2292), NDM_PAIR(-12599, 3757),
	NDM_PAIR(200, -1571), NDM_PAIR(90, -2892), NDM_PAIR(-1991, 2861),
	NDM_PAIR(20529, 27597), NDM_PAIR(59, 1171), NDM_PAIR(-5745, -1789),
	NDM_PAIR(-336, -6726), NDM_PAIR(-4493, 27476), NDM_PAIR(-1291, -1),
	NDM_PAIR(-1769, -1863), NDM_PAIR(1099, 2205), NDM_PAIR(-987, 3238),
	NDM_PAIR(2472, 23019), NDM_PAIR(1896, -5577), NDM_PAIR(695, -660),
	NDM_PAIR(-1191, 1409), NDM_PAIR(4639, -3438), NDM_PAIR(-7110, 19278),
	NDM_PAIR(347, 937), NDM_PAIR(-8763, -409), NDM_PAIR(21869, 23886),
	NDM_PAIR(-1675, 2825), NDM_PAIR(2758, -2490), NDM_PAIR(7677, 1577),
	NDM_PAIR(-1389, -2351), NDM_PAIR(-3588, 5776), NDM_PAIR(-3352, 4675),
	NDM_PAIR(2272, 1244), NDM_PAIR(-2002, -2626), NDM_PAIR(222, -672),
	NDM_PAIR(9339, 14813), NDM_PAIR(-3090, -17076), NDM_PAIR(-3, -3494),
	NDM_PAIR(-962, -2518), NDM_PAIR(-2090, -2236), NDM_PAIR(-2251, -17070),
	NDM_PAIR(-4086, -3431), NDM_PAIR(2437, -5300), NDM_PAIR(1614, 22034),
	NDM_PAIR(17025, -30187), NDM_PAIR(2143, -2920), NDM_PAIR(-1232, 3816),
	NDM_PAIR(-5945, 581), NDM_PAIR(-2386, 3863), NDM_PAIR(2748, -6327),
	NDM_PAIR(985, -459), NDM_PAIR(2954, -10945), NDM_PAIR(-3679, -6791),
	NDM_PAIR(-10813, -14268), NDM_PAIR(8066, -9605), NDM_PAIR(1376, 937),
	NDM_PAIR(5448, 6735), NDM_PAIR(-1761, -4294), NDM_PAIR(-18773, 4761),
	NDM_PAIR(3329, 6300), NDM_PAIR(-5534, -8181), NDM_PAIR(-3329, -31219),
	NDM_PAIR(-22741, 30597), NDM_PAIR(-4159, 6246), NDM_PAIR(5173, 9221),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias0[4] = {
	NDM_PAIR(12046505, 982390), NDM_PAIR(14506827, 8596506), NDM_PAIR(3868892, 10619425),
	NDM_PAIR(8341007, 54733),
};

static const u8 ndm_shift0[8] = {
	9, 9, 10, 10, 9, 10, 10, 11,
};

/*
 * Layer 1, [out / 2][in], two rows each: inputs Q15, weights Q12 to Q14 by row, largest row norm 55855.
 * Accumulators within [-1815708019, 1839049603] for every input in the box.
 */
static const u64 ndm_weight1[4 * 8] = {
	NDM_PAIR(-5341, -4377), NDM_PAIR(1526, 3278), NDM_PAIR(1491, 2132),
	NDM_PAIR(6161, -12320), NDM_PAIR(-9528, 4716), NDM_PAIR(-3802, 5932),
	NDM_PAIR(2736, -4229), NDM_PAIR(13742, -3139), NDM_PAIR(-4623, -1786),
	NDM_PAIR(800, -6237), NDM_PAIR(-4609, 1819), NDM_PAIR(4897, 13025),
	NDM_PAIR(4287, -9409), NDM_PAIR(-2925, 3892), NDM_PAIR(-12096, 5951),
	NDM_PAIR(-6690, -12938), NDM_PAIR(-11704, 12409), NDM_PAIR(-317, 4485),
	NDM_PAIR(-1739, -1036), NDM_PAIR(-216, 9011), NDM_PAIR(29143, 10389),
	NDM_PAIR(5725, -2138), NDM_PAIR(5588, -1779), NDM_PAIR(-1423, 14471),
	NDM_PAIR(-9972, -2285), NDM_PAIR(-634, 57), NDM_PAIR(949, -26416),
	NDM_PAIR(-7076, -6103), NDM_PAIR(-5555, 1870), NDM_PAIR(3631, 190),
	NDM_PAIR(-466, -592), NDM_PAIR(-7384, -366),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias1[4] = {
	NDM_PAIR(-32903334, 51174792), NDM_PAIR(-37359828, -26326174),
	NDM_PAIR(13927016, -4782316), NDM_PAIR(8934006, -23101710),
};

static const u8 ndm_shift1[8] = {
	12, 12, 12, 13, 13, 13, 12, 11,
};

/*
 * Layer 2, [out / 2][in], two rows each: inputs Q15, weights Q11 to Q13 by row, largest row norm 39300.
 * Accumulators within [-1301706582, 1271157158] for every input in the box.
 */
static const u64 ndm_weight2[1 * 8] = {
	NDM_PAIR(-6689, 5328), NDM_PAIR(-4999, -11246), NDM_PAIR(-6789, -138),
	NDM_PAIR(8296, 1402), NDM_PAIR(3498, -2661), NDM_PAIR(-3235, 1827),
	NDM_PAIR(3494, -4131), NDM_PAIR(2300, -6350),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias2[1] = {
	NDM_PAIR(-15290038, -19349906),
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
