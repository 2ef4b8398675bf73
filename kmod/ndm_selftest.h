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
#include <linux/moduleparam.h>
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
#include "ndm_memory.h"
#include "generated/ndm_model.h"
#include "generated/ndm_vectors.h"
#include "generated/ndm_stream.h"
#include "generated/ndm_digests.h"

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
	static struct ndm_memory memory NDM_INITDATA;
	s16 x[NDM_N_DENSE];
	u32 round = 0, a, i;

	memset(&features, 0, sizeof(features));
	memset(&memory, 0, sizeof(memory));
	for (a = 0; a < NDM_STREAM_ACKS; a++) {
		if (ndm_features_ack(&features, &ndm_stream_ack[a], x) != NDM_ROUND_VALID)
			continue;
		ndm_remember(&memory, x);
		if (round == NDM_STREAM_ROUNDS) {
			*r = (struct ndm_selftest_result){ round, a, round, round + 1 };
			return "stream: too many rounds";
		}
		for (i = 0; i < NDM_N_DENSE; i++)
			if (!ndm_selftest_same(r, round, i, ndm_stream_x[round][i], x[i]))
				return "stream: input differs";
		round++;
	}
	if (!ndm_selftest_same(r, round, 0, NDM_STREAM_ROUNDS, round))
		return "stream: too few rounds";
	return NULL;
}

/* SplitMix64: the n-th number, from 1, of the seed. */
static u64 NDM_INIT ndm_selftest_random(u64 n)
{
	u64 z = NDM_ALL_SEED + n * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

/*
 * Of the box of inputs a fraction of the corners: the first inputs in every combination, each
 * of the others the parity of three of them.
 */
enum { NDM_ALL_CORNERS = 1U << NDM_ALL_CORNER_BITS };

/* Is input i of this corner at its upper end? */
static bool NDM_INIT ndm_selftest_end(u32 corner, u32 i)
{
	const u32 third = NDM_ALL_CORNER_BITS / 3, last = NDM_ALL_CORNER_BITS - 1;

	if (i <= last)
		return corner >> (last - i) & 1;
	i -= NDM_ALL_CORNER_BITS;
	return (corner >> (last - i) ^ corner >> (last - i - third) ^
		corner >> (last - i - 2 * third)) & 1;
}

#define NDM_ALL_FACES	(4U * NDM_N_DENSE)
#define NDM_ALL		(NDM_ALL_RANDOM + NDM_ALL_CORNERS + NDM_ALL_FACES + 1 + NDM_ALL_EDGES)

/*
 * The inputs of vector v: random ones, corners of the box, one step around each
 * face, zero, then what the exporter chose for this network.
 */
static void NDM_INIT ndm_selftest_input(u32 v, s16 x[NDM_N_DENSE])
{
	const u32 zero = NDM_ALL_RANDOM + NDM_ALL_CORNERS + NDM_ALL_FACES;
	const u32 face = v - NDM_ALL_RANDOM - NDM_ALL_CORNERS;
	u32 i;

	for (i = 0; i < NDM_N_DENSE; i++) {
		const s32 lo = ndm_all_box[i][0], hi = ndm_all_box[i][1];
		const s32 near_face[4] = { lo, lo + 1, hi - 1, hi };
		s32 value;

		if (v < NDM_ALL_RANDOM)
			value = lo + (s32)(((ndm_selftest_random(v * NDM_N_DENSE + i + 1) >> 32) *
					    (u32)(hi - lo + 1)) >> 32);
		else if (v < NDM_ALL_RANDOM + NDM_ALL_CORNERS)
			value = ndm_selftest_end(v - NDM_ALL_RANDOM, i) ? hi : lo;
		else if (v < zero)
			value = face / 4 == i ? near_face[face % 4] : (lo + hi) >> 1;
		else
			value = v == zero ? 0 : ndm_all_edge[v - zero - 1][i];
		x[i] = (s16)value;
	}
}

static u64 NDM_INIT ndm_selftest_digest(u64 state, u32 word)
{
	return (state ^ word) * 0x100000001b3ULL;
}

/*
 * Every golden vector, of which the module carries only digests. Each step of a digest
 * maps its state one to one: a single wrong integer cannot go unnoticed.
 */
static const char *NDM_INIT ndm_selftest_all(struct ndm_selftest_result *r)
{
	static s32 trace[NDM_MODEL_TRACE] NDM_INITDATA;
	s32 out[NDM_N_OUTPUTS];
	s16 x[NDM_N_DENSE];
	u64 state = 0;
	u32 v, i;

	for (v = 0; v < NDM_ALL; v++) {
		if (v % NDM_ALL_BLOCK == 0)
			state = 0xcbf29ce484222325ULL;
		ndm_selftest_input(v, x);
		ndm_infer(&ndm_model, x, out, trace);
		for (i = 0; i < NDM_N_DENSE; i++)
			state = ndm_selftest_digest(state, (u32)(s32)x[i]);
		for (i = 0; i < NDM_MODEL_TRACE; i++)
			state = ndm_selftest_digest(state, (u32)trace[i]);
		for (i = 0; i < NDM_N_OUTPUTS; i++)
			state = ndm_selftest_digest(state, (u32)out[i]);
		if ((v + 1) % NDM_ALL_BLOCK && v + 1 < NDM_ALL)
			continue;
		if (state != ndm_all_digest[v / NDM_ALL_BLOCK]) {
			*r = (struct ndm_selftest_result){
				v / NDM_ALL_BLOCK * NDM_ALL_BLOCK, v,
				(s32)ndm_all_digest[v / NDM_ALL_BLOCK], (s32)state,
			};
			return "vectors from index to element: digest differs";
		}
	}
	return NULL;
}

#if defined(__KERNEL__) && !defined(NDM_SELFTEST_STAYS)
static bool ndm_selftest_full NDM_INITDATA;
module_param_named(selftest_full, ndm_selftest_full, bool, 0);
MODULE_PARM_DESC(selftest_full, "check all golden vectors when loaded, not only some (default N)");
#else
static const bool ndm_selftest_full = true;
#endif

/* NULL, or what failed, with *r saying where. */
static const char *NDM_INIT ndm_selftest(struct ndm_selftest_result *r)
{
	const char *failure = ndm_selftest_vectors(r);

	if (!failure && ndm_selftest_full)
		failure = ndm_selftest_all(r);
	return failure ? failure : ndm_selftest_stream(r);
}

#endif /* _NDM_SELFTEST_H */
