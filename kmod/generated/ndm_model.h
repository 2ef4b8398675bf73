/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit directly, auto-generated from: */
/*	the checkpoint named below, by ndm export */
/* contract e72388f9d30b4773 */
/*
 * network: 18-8-8-2 tanh, s16 weights, Q16 outputs
 * checkpoint: sha256 d96c576f1842c4eafbceadd552d6718992933d81ff36ca1e382d6ea4dc17ed91
 * dataset: sha256 5ebf9c8fa5eb0946fd6ebf24efae96abbf929cd564301cbc135c4825ccdc94f9
 * onnx: sha256 abc27f26ced3f9ff2a21def9aa75187f1fd007928263b44cc885e3006ab5bba8
 * objective: target_step, seed 4, split by path
 * Proved for every input in the box (ndm_certificate.json):
 * cwnd_gain: |fixed - real| <= 0.000666; clamped: reached
 * congestion: |fixed - real| <= 0.00349; clamped: reached
 * cwnd_gain within [-1.0, 1.0]
 */

#ifndef _NDM_MODEL_H
#define _NDM_MODEL_H

#include "../ndm_infer.h"

#define NDM_MODEL_HASH	"78f69b843f4787c1"
#define NDM_MODEL_TRACE	18	/* pre-activations of all layers */

static_assert(NDM_CONTRACT_ID == 0xe72388f9d30b4773ULL,
	      "this model was made for another contract: run ndm export");

/*
 * Layer 0, [out / 2][in], two rows each: inputs Q12, weights Q13 to Q15 by row, largest row norm 233273.
 * Accumulators within [-653943027, 636441375] for every input in the box.
 */
static const u64 ndm_weight0[4 * 18] = {
	NDM_PAIR(-3651, 9370), NDM_PAIR(-892, -25070), NDM_PAIR(-4388, -7325),
	NDM_PAIR(-826, -4356), NDM_PAIR(1862, 10574), NDM_PAIR(-11085, 5259),
	NDM_PAIR(-24276, -8501), NDM_PAIR(5173, 14460), NDM_PAIR(3922, 2992),
	NDM_PAIR(11970, -3774), NDM_PAIR(-4532, 17370), NDM_PAIR(-2847, -31610),
	NDM_PAIR(12184, -10926), NDM_PAIR(-14206, -10411), NDM_PAIR(-25564, 20993),
	NDM_PAIR(10114, 13632), NDM_PAIR(-85, 8489), NDM_PAIR(16380, 28161),
	NDM_PAIR(-810, -2667), NDM_PAIR(-2208, -1490), NDM_PAIR(2445, -885),
	NDM_PAIR(471, 564), NDM_PAIR(652, 261), NDM_PAIR(1349, 2356), NDM_PAIR(-3016, 16051),
	NDM_PAIR(-990, -4251), NDM_PAIR(442, -2498), NDM_PAIR(1652, -1879),
	NDM_PAIR(886, -1145), NDM_PAIR(-783, -18380), NDM_PAIR(-592, -8678),
	NDM_PAIR(1443, -12837), NDM_PAIR(1921, 27566), NDM_PAIR(-19125, -9281),
	NDM_PAIR(-1465, -764), NDM_PAIR(1821, 10089), NDM_PAIR(1753, -1631),
	NDM_PAIR(-1137, -5855), NDM_PAIR(-3481, 4327), NDM_PAIR(679, 94), NDM_PAIR(-568, 6508),
	NDM_PAIR(884, 235), NDM_PAIR(6250, -767), NDM_PAIR(53, 6369), NDM_PAIR(506, 1598),
	NDM_PAIR(-2442, -838), NDM_PAIR(-1522, 430), NDM_PAIR(-48, -13573), NDM_PAIR(-4350, 3),
	NDM_PAIR(2785, -902), NDM_PAIR(-1472, 8141), NDM_PAIR(21218, -22976),
	NDM_PAIR(2618, -3419), NDM_PAIR(-3297, 3594), NDM_PAIR(-3409, -4595),
	NDM_PAIR(15390, 22166), NDM_PAIR(4096, -178), NDM_PAIR(8561, -4246),
	NDM_PAIR(7076, 600), NDM_PAIR(5471, 1575), NDM_PAIR(-4083, 17767),
	NDM_PAIR(6372, -2260), NDM_PAIR(-216, 153), NDM_PAIR(10141, -320),
	NDM_PAIR(-2863, -1934), NDM_PAIR(17324, 9636), NDM_PAIR(-1213, 1754),
	NDM_PAIR(-707, -2230), NDM_PAIR(-400, 19796), NDM_PAIR(-12467, -3015),
	NDM_PAIR(1202, -1882), NDM_PAIR(16248, 1400),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias0[4] = {
	NDM_PAIR(9065229, 12650271), NDM_PAIR(-2281852, 4964723), NDM_PAIR(662337, 3818729),
	NDM_PAIR(-22968288, 12851839),
};

static const u8 ndm_shift0[8] = {
	11, 11, 9, 10, 9, 10, 10, 10,
};

/*
 * Layer 1, [out / 2][in], two rows each: inputs Q15, weights Q13 to Q15 by row, largest row norm 59676.
 * Accumulators within [-1837024670, 1990091386] for every input in the box.
 */
static const u64 ndm_weight1[4 * 8] = {
	NDM_PAIR(-2396, 8541), NDM_PAIR(46, 8252), NDM_PAIR(1618, -4572),
	NDM_PAIR(-692, -8268), NDM_PAIR(-8218, 1609), NDM_PAIR(4123, -4485),
	NDM_PAIR(-2780, -6247), NDM_PAIR(28808, 5615), NDM_PAIR(-7560, 5044),
	NDM_PAIR(-8096, 1804), NDM_PAIR(1910, -13514), NDM_PAIR(8631, 2468),
	NDM_PAIR(9317, 10951), NDM_PAIR(1120, -11396), NDM_PAIR(6641, -2956),
	NDM_PAIR(-13436, -11543), NDM_PAIR(-15985, -10154), NDM_PAIR(496, -9901),
	NDM_PAIR(-213, 1728), NDM_PAIR(-105, 9360), NDM_PAIR(10288, -701),
	NDM_PAIR(-7877, 3010), NDM_PAIR(7922, 6028), NDM_PAIR(-5248, -13431),
	NDM_PAIR(6908, 7672), NDM_PAIR(1104, 2480), NDM_PAIR(-9724, -1169),
	NDM_PAIR(2913, -1359), NDM_PAIR(15004, -14407), NDM_PAIR(-8562, -760),
	NDM_PAIR(-1578, 2740), NDM_PAIR(1835, 2016),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias1[4] = {
	NDM_PAIR(28487560, -47267368), NDM_PAIR(34552028, 118066184),
	NDM_PAIR(-53669204, 111665656), NDM_PAIR(-3835062, -49051144),
};

static const u8 ndm_shift1[8] = {
	12, 13, 13, 14, 12, 13, 12, 12,
};

/*
 * Layer 2, [out / 2][in], two rows each: inputs Q15, weights Q11 to Q13 by row, largest row norm 41864.
 * Accumulators within [-1381189968, 1352927829] for every input in the box.
 */
static const u64 ndm_weight2[1 * 8] = {
	NDM_PAIR(1516, 6370), NDM_PAIR(-4992, 8518), NDM_PAIR(2772, -9877),
	NDM_PAIR(-5085, -388), NDM_PAIR(-7590, -335), NDM_PAIR(1821, -12458),
	NDM_PAIR(-5236, 549), NDM_PAIR(-7036, 3369),
};

/* Biases, and the half by which a shift rounds. */
static const u64 ndm_bias2[1] = {
	NDM_PAIR(-17019410, -13470032),
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
