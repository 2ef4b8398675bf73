/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit directly, auto-generated from: */
/*	the checkpoint named below, by ndm export */
/* contract e72388f9d30b4773 */
/*
 * network: 18-8-8-2 tanh, s16 weights, Q16 outputs
 * checkpoint: sha256 a1cf4ab0597c53aac57f6cd47fbf2e0d0b7566cc3af83b738f3e4cfa705f694d
 * dataset: sha256 1b88e6e5f5c3ddddd3be4ba48e6c8622f8bb2152952617ab2ca18facc41988b0
 * onnx: sha256 fec7ecd43ca5e859a043ee1b6906284cf03da8aa1739211fe9d32361d7ae8318
 * objective: target_step, seed 2, split by path
 * Proved for every input in the box (ndm_certificate.json):
 * cwnd_gain: |fixed - real| <= 0.000784; clamped: reached
 * congestion: |fixed - real| <= 0.00378; clamped: reached
 * cwnd_gain within [-1.0, 1.0]
 */

#ifndef _NDM_MODEL_H
#define _NDM_MODEL_H

#include "../ndm_infer.h"

#define NDM_MODEL_HASH	"b171ae1a7d56b328"
#define NDM_MODEL_TRACE	18	/* pre-activations of all layers */

static_assert(NDM_CONTRACT_ID == 0xe72388f9d30b4773ULL,
	      "this model was made for another contract: run ndm export");

/*
 * Layer 0, [out / 2][in], two rows each: inputs Q12, weights Q13 to Q14 by row, largest row norm 147188.
 * Accumulators within [-501386640, 609899594] for every input in the box.
 */
static const u64 ndm_weight0[4 * 18] = {
	NDM_PAIR(5728, -807), NDM_PAIR(-13387, 7453), NDM_PAIR(-4932, -3094),
	NDM_PAIR(-14936, -207), NDM_PAIR(-6487, 7712), NDM_PAIR(-1540, -1082),
	NDM_PAIR(8825, 3697), NDM_PAIR(-6268, 6482), NDM_PAIR(598, -1107),
	NDM_PAIR(-11595, -171), NDM_PAIR(4351, -2555), NDM_PAIR(-22929, 5074),
	NDM_PAIR(1504, -1518), NDM_PAIR(-479, -3474), NDM_PAIR(4792, 4277),
	NDM_PAIR(25931, 26399), NDM_PAIR(-705, 1056), NDM_PAIR(-12201, -2208),
	NDM_PAIR(-478, -6364), NDM_PAIR(-3234, 27167), NDM_PAIR(-1136, -145),
	NDM_PAIR(-2184, -1797), NDM_PAIR(1236, 1585), NDM_PAIR(-1124, 3347),
	NDM_PAIR(3258, 20760), NDM_PAIR(1466, -4918), NDM_PAIR(773, -731),
	NDM_PAIR(-1286, 1413), NDM_PAIR(4411, -3349), NDM_PAIR(-6996, 20102),
	NDM_PAIR(735, 1081), NDM_PAIR(-9014, -110), NDM_PAIR(22695, 21219),
	NDM_PAIR(-2321, 1187), NDM_PAIR(2405, -2430), NDM_PAIR(7848, 1370),
	NDM_PAIR(-2427, -1746), NDM_PAIR(-9759, 3572), NDM_PAIR(-7246, 2015),
	NDM_PAIR(3901, 761), NDM_PAIR(-3313, -609), NDM_PAIR(753, -145), NDM_PAIR(21915, 7334),
	NDM_PAIR(-8246, -6606), NDM_PAIR(859, -2029), NDM_PAIR(-2861, -588),
	NDM_PAIR(-4047, -1735), NDM_PAIR(-5007, -8407), NDM_PAIR(-8179, -1518),
	NDM_PAIR(5129, -2489), NDM_PAIR(5726, 10575), NDM_PAIR(31760, -17105),
	NDM_PAIR(4116, -1530), NDM_PAIR(-4426, 1911), NDM_PAIR(-6625, 553),
	NDM_PAIR(461, 1374), NDM_PAIR(2697, -3880), NDM_PAIR(863, -508), NDM_PAIR(4190, -3655),
	NDM_PAIR(-3890, -3276), NDM_PAIR(-11375, -5922), NDM_PAIR(5713, -3243),
	NDM_PAIR(1516, 433), NDM_PAIR(5784, 2961), NDM_PAIR(-1999, -2171),
	NDM_PAIR(-14660, 1398), NDM_PAIR(3999, 2718), NDM_PAIR(-5931, -3971),
	NDM_PAIR(-6860, -15347), NDM_PAIR(-21698, 19186), NDM_PAIR(-3776, 3314),
	NDM_PAIR(4803, 3832),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias0[4] = {
	NDM_PAIR(16028784, 2188350), NDM_PAIR(16926698, 6932042), NDM_PAIR(8180644, 4539334),
	NDM_PAIR(7669695, 1873070),
};

static const u8 ndm_shift0[8] = {
	10, 9, 10, 10, 10, 9, 10, 10,
};

/*
 * Layer 1, [out / 2][in], two rows each: inputs Q15, weights Q12 to Q14 by row, largest row norm 61500.
 * Accumulators within [-1991565727, 2008043757] for every input in the box.
 */
static const u64 ndm_weight1[4 * 8] = {
	NDM_PAIR(-4641, -4063), NDM_PAIR(1178, 2563), NDM_PAIR(1351, 1511),
	NDM_PAIR(6698, -10289), NDM_PAIR(-10420, 910), NDM_PAIR(-2744, 5846),
	NDM_PAIR(3611, -4243), NDM_PAIR(12820, -4151), NDM_PAIR(-4102, 2167),
	NDM_PAIR(236, -6396), NDM_PAIR(-5647, 2333), NDM_PAIR(6060, 15799),
	NDM_PAIR(3854, -8701), NDM_PAIR(-2535, 874), NDM_PAIR(-10363, 8305),
	NDM_PAIR(-8222, -12212), NDM_PAIR(-14940, 9168), NDM_PAIR(445, 4523),
	NDM_PAIR(9, -1184), NDM_PAIR(-5388, 4837), NDM_PAIR(26435, 12859),
	NDM_PAIR(7940, -2797), NDM_PAIR(5047, -3221), NDM_PAIR(1296, 20824),
	NDM_PAIR(-13382, -2322), NDM_PAIR(-1916, 121), NDM_PAIR(1549, -27539),
	NDM_PAIR(-9349, -4985), NDM_PAIR(-10561, 1055), NDM_PAIR(6087, 527),
	NDM_PAIR(168, -378), NDM_PAIR(-15622, -285),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias1[4] = {
	NDM_PAIR(-22141128, 48768300), NDM_PAIR(-48206284, -29561382),
	NDM_PAIR(23524800, 760264), NDM_PAIR(13563642, -25862284),
};

static const u8 ndm_shift1[8] = {
	12, 12, 12, 13, 13, 13, 13, 11,
};

/*
 * Layer 2, [out / 2][in], two rows each: inputs Q15, weights Q11 to Q13 by row, largest row norm 42049.
 * Accumulators within [-1388668056, 1364050820] for every input in the box.
 */
static const u64 ndm_weight2[1 * 8] = {
	NDM_PAIR(-7061, 4952), NDM_PAIR(-3462, -13267), NDM_PAIR(-6828, -245),
	NDM_PAIR(10522, 3643), NDM_PAIR(3628, -4059), NDM_PAIR(-4475, 1443),
	NDM_PAIR(3637, -3178), NDM_PAIR(2436, -6166),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias2[1] = {
	NDM_PAIR(-12354142, -20902156),
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
