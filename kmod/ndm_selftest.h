/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The golden vectors: what the exporter computed in Python integers must come
 * out of this compiler, for this machine, bit by bit. The module runs them
 * before it registers; user space and other architectures compile the same
 * file. Not reentrant: the scratch space is static, to keep it off the stack.
 */
#ifndef _NDM_SELFTEST_H
#define _NDM_SELFTEST_H

/* NDM_SELFTEST_STAYS: not to be freed after loading. */
#if defined(__KERNEL__) && !defined(NDM_SELFTEST_STAYS)
#include <linux/init.h>
#define NDM_INIT	__init
#define NDM_INITDATA	__initdata
#define NDM_INITCONST	__section(".init.rodata")	/* what __initconst is */
#else
#define NDM_INIT
#define NDM_INITDATA
#define NDM_INITCONST
#endif

#include "ndm_features.h"
#include "ndm_infer.h"
#include "generated/ndm_model.h"
#include "generated/ndm_vectors.h"
#include "generated/ndm_stream.h"

/* Where the first mismatch is; set only when ndm_selftest() fails. */
struct ndm_selftest_result {
	u32 index;	/* which vector, or which round of the stream */
	u32 element;	/* which number of it */
	s32 want;
	s32 got;
};

static bool NDM_INIT ndm_selftest_same(struct ndm_selftest_result *r, u32 index,
				       u32 element, s32 want, s32 got)
{
	if (want == got)
		return true;
	*r = (struct ndm_selftest_result){ index, element, want, got };
	return false;
}

static const char *NDM_INIT ndm_selftest_vectors(struct ndm_selftest_result *r)
{
	static s32 trace[NDM_MODEL_TRACE] NDM_INITDATA;
	s32 out[NDM_N_OUTPUTS];
	u32 v, i;

	for (v = 0; v < NDM_VECTORS; v++) {
		memset(trace, 0, sizeof(trace));
		ndm_infer(&ndm_model, ndm_vector_x[v], out, trace);
		for (i = 0; i < NDM_MODEL_TRACE; i++)
			if (!ndm_selftest_same(r, v, i, ndm_vector_pre[v][i], trace[i]))
				return "vector: pre-activation differs";
		for (i = 0; i < NDM_N_OUTPUTS; i++)
			if (!ndm_selftest_same(r, v, i, ndm_vector_out[v][i], out[i]))
				return "vector: output differs";
	}
	return NULL;
}

/* All ACKs to one fresh struct: the inputs of every valid round, in order. */
static const char *NDM_INIT ndm_selftest_stream(struct ndm_selftest_result *r)
{
	static struct ndm_features features NDM_INITDATA;
	s16 x[NDM_N_INPUTS];
	u32 round = 0, a, i;

	memset(&features, 0, sizeof(features));
	for (a = 0; a < NDM_STREAM_ACKS; a++) {
		if (ndm_features_ack(&features, &ndm_stream_ack[a], x) != NDM_ROUND_VALID)
			continue;
		if (round == NDM_STREAM_ROUNDS) {
			*r = (struct ndm_selftest_result){ round, a, round, round + 1 };
			return "stream: too many rounds";
		}
		for (i = 0; i < NDM_N_INPUTS; i++)
			if (!ndm_selftest_same(r, round, i, ndm_stream_x[round][i], x[i]))
				return "stream: input differs";
		round++;
	}
	if (!ndm_selftest_same(r, round, 0, NDM_STREAM_ROUNDS, round))
		return "stream: too few rounds";
	return NULL;
}

/* NULL, or what failed, with *r saying where. */
static const char *NDM_INIT ndm_selftest(struct ndm_selftest_result *r)
{
	const char *failure = ndm_selftest_vectors(r);

	return failure ? failure : ndm_selftest_stream(r);
}

#endif /* _NDM_SELFTEST_H */
