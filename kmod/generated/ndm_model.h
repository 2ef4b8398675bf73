/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit directly, auto-generated from: */
/*	the checkpoint named below, by ndm export */
/* contract e72388f9d30b4773 */
/*
 * network: 18-8-8-2 tanh, s16 weights, Q16 outputs
 * checkpoint: sha256 40120d48a9b12ac3d448d444e1a0379d58ed4911ab619054a59223b1a76cfc8c
 * dataset: sha256 afff69e37f0e1f3e91c3ca72530542f2e2dc995d0f6e22c390b64a1d7a768169
 * onnx: sha256 b4c0d1b4602fd582230f5c801e9d60b9e18271bfb8c3ee26ea19e2b28b9452c8
 * objective: target_step, seed 2, split by path
 * Proved for every input in the box (ndm_certificate.json):
 * cwnd_gain: |fixed - real| <= 0.000784; clamped: reached
 * congestion: |fixed - real| <= 0.00378; clamped: reached
 * cwnd_gain within [-1.0, 1.0]
 */

#ifndef _NDM_MODEL_H
#define _NDM_MODEL_H

#include "../ndm_infer.h"

#define NDM_MODEL_HASH	"cfb61817d90dd9d9"
#define NDM_MODEL_TRACE	18	/* pre-activations of all layers */

static_assert(NDM_CONTRACT_ID == 0xe72388f9d30b4773ULL,
	      "this model was made for another contract: run ndm export");

/*
 * Layer 0, [out / 2][in], two rows each: inputs Q12, weights Q13 to Q14 by row, largest row norm 147286.
 * Accumulators within [-501725941, 610022921] for every input in the box.
 */
static const u64 ndm_weight0[4 * 18] = {
	NDM_PAIR(5731, -812), NDM_PAIR(-13375, 7451), NDM_PAIR(-4942, -3100),
	NDM_PAIR(-14939, -206), NDM_PAIR(-6495, 7728), NDM_PAIR(-1542, -1081),
	NDM_PAIR(8840, 3721), NDM_PAIR(-6275, 6456), NDM_PAIR(600, -1107),
	NDM_PAIR(-11599, -168), NDM_PAIR(4348, -2562), NDM_PAIR(-22964, 5070),
	NDM_PAIR(1499, -1524), NDM_PAIR(-480, -3478), NDM_PAIR(4796, 4297),
	NDM_PAIR(25980, 26390), NDM_PAIR(-699, 1053), NDM_PAIR(-12182, -2203),
	NDM_PAIR(-480, -6365), NDM_PAIR(-3237, 27167), NDM_PAIR(-1138, -144),
	NDM_PAIR(-2180, -1797), NDM_PAIR(1234, 1589), NDM_PAIR(-1125, 3346),
	NDM_PAIR(3260, 20766), NDM_PAIR(1466, -4923), NDM_PAIR(773, -731),
	NDM_PAIR(-1285, 1412), NDM_PAIR(4410, -3350), NDM_PAIR(-6985, 20101),
	NDM_PAIR(734, 1084), NDM_PAIR(-9015, -109), NDM_PAIR(22700, 21224),
	NDM_PAIR(-2314, 1187), NDM_PAIR(2405, -2428), NDM_PAIR(7851, 1366),
	NDM_PAIR(-2432, -1745), NDM_PAIR(-9744, 3564), NDM_PAIR(-7241, 2017),
	NDM_PAIR(3911, 763), NDM_PAIR(-3319, -610), NDM_PAIR(753, -145), NDM_PAIR(21890, 7331),
	NDM_PAIR(-8224, -6603), NDM_PAIR(857, -2026), NDM_PAIR(-2861, -590),
	NDM_PAIR(-4045, -1733), NDM_PAIR(-4960, -8416), NDM_PAIR(-8175, -1518),
	NDM_PAIR(5134, -2490), NDM_PAIR(5705, 10569), NDM_PAIR(31791, -17118),
	NDM_PAIR(4114, -1530), NDM_PAIR(-4429, 1912), NDM_PAIR(-6631, 555),
	NDM_PAIR(468, 1380), NDM_PAIR(2695, -3874), NDM_PAIR(867, -504), NDM_PAIR(4162, -3631),
	NDM_PAIR(-3893, -3277), NDM_PAIR(-11385, -5929), NDM_PAIR(5715, -3226),
	NDM_PAIR(1518, 431), NDM_PAIR(5789, 2956), NDM_PAIR(-2002, -2170),
	NDM_PAIR(-14592, 1399), NDM_PAIR(4001, 2715), NDM_PAIR(-5934, -3970),
	NDM_PAIR(-6881, -15347), NDM_PAIR(-21679, 19185), NDM_PAIR(-3774, 3317),
	NDM_PAIR(4806, 3825),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias0[4] = {
	NDM_PAIR(16066315, 2194628), NDM_PAIR(16931684, 6932489), NDM_PAIR(8177154, 4548514),
	NDM_PAIR(7664439, 1872352),
};

static const u8 ndm_shift0[8] = {
	10, 9, 10, 10, 10, 9, 10, 10,
};

/*
 * Layer 1, [out / 2][in], two rows each: inputs Q15, weights Q12 to Q14 by row, largest row norm 61456.
 * Accumulators within [-1990186206, 2006926453] for every input in the box.
 */
static const u64 ndm_weight1[4 * 8] = {
	NDM_PAIR(-4651, -4066), NDM_PAIR(1174, 2563), NDM_PAIR(1353, 1514),
	NDM_PAIR(6694, -10289), NDM_PAIR(-10422, 911), NDM_PAIR(-2749, 5850),
	NDM_PAIR(3616, -4243), NDM_PAIR(12821, -4151), NDM_PAIR(-4102, 2187),
	NDM_PAIR(235, -6405), NDM_PAIR(-5644, 2329), NDM_PAIR(6059, 15794),
	NDM_PAIR(3864, -8721), NDM_PAIR(-2539, 863), NDM_PAIR(-10359, 8313),
	NDM_PAIR(-8227, -12201), NDM_PAIR(-14936, 9157), NDM_PAIR(441, 4496),
	NDM_PAIR(0, -1187), NDM_PAIR(-5322, 4782), NDM_PAIR(26464, 12767),
	NDM_PAIR(7920, -2815), NDM_PAIR(5059, -3221), NDM_PAIR(1314, 20798),
	NDM_PAIR(-13400, -2327), NDM_PAIR(-1925, 122), NDM_PAIR(1551, -27534),
	NDM_PAIR(-9385, -4986), NDM_PAIR(-10588, 1062), NDM_PAIR(6086, 525),
	NDM_PAIR(170, -377), NDM_PAIR(-15678, -286),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias1[4] = {
	NDM_PAIR(-22189568, 48738120), NDM_PAIR(-48228516, -29717968),
	NDM_PAIR(23485584, 874223), NDM_PAIR(13510836, -25869026),
};

static const u8 ndm_shift1[8] = {
	12, 12, 12, 13, 13, 13, 13, 11,
};

/*
 * Layer 2, [out / 2][in], two rows each: inputs Q15, weights Q11 to Q13 by row, largest row norm 42036.
 * Accumulators within [-1388225329, 1363646352] for every input in the box.
 */
static const u64 ndm_weight2[1 * 8] = {
	NDM_PAIR(-7060, 4952), NDM_PAIR(-3445, -13267), NDM_PAIR(-6827, -245),
	NDM_PAIR(10518, 3659), NDM_PAIR(3629, -4043), NDM_PAIR(-4473, 1442),
	NDM_PAIR(3647, -3177), NDM_PAIR(2437, -6166),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias2[1] = {
	NDM_PAIR(-12327549, -20919264),
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
