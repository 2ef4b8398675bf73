/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit directly, auto-generated from: */
/*	the checkpoint named below, by ndm export */
/* contract e72388f9d30b4773 */
/*
 * network: 18-8-8-2 tanh, s16 weights, Q16 outputs
 * checkpoint: sha256 ea63a26b6226c0133296d8fb02af0e3fe63948d0feec8d52f7029a5a0173055d
 * dataset: sha256 9c628f70c2d8d2caee58798c441be499cb9b78f63a6863414e21ec70f2e87499
 * onnx: sha256 ba434b7e7770bf60b5c9fe5d4954b976dc157ac723679edf70261331fc5217e8
 * objective: target_step, seed 2, split by path
 * Proved for every input in the box (ndm_certificate.json):
 * cwnd_gain: |fixed - real| <= 0.000784; clamped: reached
 * congestion: |fixed - real| <= 0.00378; clamped: reached
 * cwnd_gain within [-1.0, 1.0]
 */

#ifndef _NDM_MODEL_H
#define _NDM_MODEL_H

#include "../ndm_infer.h"

#define NDM_MODEL_HASH	"dd1fafb5823aa2de"
#define NDM_MODEL_TRACE	18	/* pre-activations of all layers */

static_assert(NDM_CONTRACT_ID == 0xe72388f9d30b4773ULL,
	      "this model was made for another contract: run ndm export");

/*
 * Layer 0, [out / 2][in], two rows each: inputs Q12, weights Q13 to Q14 by row, largest row norm 147283.
 * Accumulators within [-501715852, 609997978] for every input in the box.
 */
static const u64 ndm_weight0[4 * 18] = {
	NDM_PAIR(5731, -812), NDM_PAIR(-13376, 7450), NDM_PAIR(-4941, -3100),
	NDM_PAIR(-14939, -207), NDM_PAIR(-6495, 7727), NDM_PAIR(-1542, -1081),
	NDM_PAIR(8840, 3718), NDM_PAIR(-6275, 6460), NDM_PAIR(600, -1107),
	NDM_PAIR(-11599, -168), NDM_PAIR(4348, -2562), NDM_PAIR(-22961, 5070),
	NDM_PAIR(1499, -1523), NDM_PAIR(-480, -3477), NDM_PAIR(4795, 4294),
	NDM_PAIR(25979, 26391), NDM_PAIR(-700, 1054), NDM_PAIR(-12183, -2203),
	NDM_PAIR(-480, -6365), NDM_PAIR(-3236, 27166), NDM_PAIR(-1138, -144),
	NDM_PAIR(-2181, -1797), NDM_PAIR(1234, 1589), NDM_PAIR(-1125, 3346),
	NDM_PAIR(3261, 20765), NDM_PAIR(1466, -4922), NDM_PAIR(773, -731),
	NDM_PAIR(-1285, 1412), NDM_PAIR(4410, -3351), NDM_PAIR(-6986, 20102),
	NDM_PAIR(734, 1083), NDM_PAIR(-9016, -108), NDM_PAIR(22701, 21223),
	NDM_PAIR(-2315, 1188), NDM_PAIR(2405, -2428), NDM_PAIR(7851, 1366),
	NDM_PAIR(-2432, -1745), NDM_PAIR(-9745, 3565), NDM_PAIR(-7241, 2017),
	NDM_PAIR(3910, 762), NDM_PAIR(-3318, -610), NDM_PAIR(753, -145), NDM_PAIR(21892, 7332),
	NDM_PAIR(-8226, -6604), NDM_PAIR(857, -2027), NDM_PAIR(-2861, -590),
	NDM_PAIR(-4045, -1733), NDM_PAIR(-4963, -8415), NDM_PAIR(-8176, -1518),
	NDM_PAIR(5134, -2490), NDM_PAIR(5706, 10571), NDM_PAIR(31791, -17117),
	NDM_PAIR(4114, -1531), NDM_PAIR(-4428, 1912), NDM_PAIR(-6630, 555),
	NDM_PAIR(467, 1379), NDM_PAIR(2695, -3874), NDM_PAIR(867, -505), NDM_PAIR(4164, -3633),
	NDM_PAIR(-3893, -3277), NDM_PAIR(-11385, -5928), NDM_PAIR(5714, -3227),
	NDM_PAIR(1517, 431), NDM_PAIR(5789, 2956), NDM_PAIR(-2002, -2170),
	NDM_PAIR(-14597, 1399), NDM_PAIR(4001, 2716), NDM_PAIR(-5933, -3971),
	NDM_PAIR(-6881, -15347), NDM_PAIR(-21682, 19185), NDM_PAIR(-3775, 3317),
	NDM_PAIR(4806, 3826),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias0[4] = {
	NDM_PAIR(16064116, 2193963), NDM_PAIR(16933554, 6932122), NDM_PAIR(8177377, 4548297),
	NDM_PAIR(7664142, 1872260),
};

static const u8 ndm_shift0[8] = {
	10, 9, 10, 10, 10, 9, 10, 10,
};

/*
 * Layer 1, [out / 2][in], two rows each: inputs Q15, weights Q12 to Q14 by row, largest row norm 61462.
 * Accumulators within [-1990371412, 2007115022] for every input in the box.
 */
static const u64 ndm_weight1[4 * 8] = {
	NDM_PAIR(-4650, -4066), NDM_PAIR(1175, 2563), NDM_PAIR(1352, 1514),
	NDM_PAIR(6694, -10289), NDM_PAIR(-10421, 912), NDM_PAIR(-2749, 5850),
	NDM_PAIR(3615, -4243), NDM_PAIR(12821, -4151), NDM_PAIR(-4101, 2184),
	NDM_PAIR(234, -6403), NDM_PAIR(-5645, 2330), NDM_PAIR(6059, 15792),
	NDM_PAIR(3864, -8719), NDM_PAIR(-2538, 864), NDM_PAIR(-10358, 8313),
	NDM_PAIR(-8227, -12203), NDM_PAIR(-14936, 9157), NDM_PAIR(442, 4498),
	NDM_PAIR(1, -1187), NDM_PAIR(-5326, 4786), NDM_PAIR(26464, 12772),
	NDM_PAIR(7921, -2812), NDM_PAIR(5058, -3221), NDM_PAIR(1314, 20799),
	NDM_PAIR(-13400, -2327), NDM_PAIR(-1924, 122), NDM_PAIR(1552, -27532),
	NDM_PAIR(-9383, -4986), NDM_PAIR(-10586, 1062), NDM_PAIR(6086, 526),
	NDM_PAIR(170, -377), NDM_PAIR(-15674, -286),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias1[4] = {
	NDM_PAIR(-22188630, 48739644), NDM_PAIR(-48225400, -29703994),
	NDM_PAIR(23494420, 863829), NDM_PAIR(13516042, -25869480),
};

static const u8 ndm_shift1[8] = {
	12, 12, 12, 13, 13, 13, 13, 11,
};

/*
 * Layer 2, [out / 2][in], two rows each: inputs Q15, weights Q11 to Q13 by row, largest row norm 42037.
 * Accumulators within [-1388260928, 1363676259] for every input in the box.
 */
static const u64 ndm_weight2[1 * 8] = {
	NDM_PAIR(-7060, 4952), NDM_PAIR(-3447, -13267), NDM_PAIR(-6827, -244),
	NDM_PAIR(10519, 3657), NDM_PAIR(3629, -4044), NDM_PAIR(-4472, 1442),
	NDM_PAIR(3646, -3177), NDM_PAIR(2437, -6166),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias2[1] = {
	NDM_PAIR(-12330396, -20917442),
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
