/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A network in a file, for a kernel that runs: parser and self-test. docs/export.md has the
 * format. All numbers are little-endian; every length is checked before it is read.
 *
 * ndm_blob_read() accepts only a network of the compiled one's contract and dimensions whose
 * accumulators it proves to fit s32 for every input, as the exporter does. ndm_blob_verify()
 * computes the file's golden vectors with it.
 */
#ifndef _NDM_BLOB_H
#define _NDM_BLOB_H

#include "ndm_infer.h"
#include "ndm_weights.h"

#define NDM_BLOB_MAGIC		0x424d444e	/* "NDMB" */
#define NDM_BLOB_VERSION	1
#define NDM_BLOB_HEAD		36	/* bytes before the shapes of the layers */
#define NDM_BLOB_SHAPE		4	/* bytes of a shape: n_in, n_out, n_clamped, 0 */
#define NDM_BLOB_VECTOR		(2 * NDM_N_DENSE + 4 * NDM_N_OUTPUTS)
#define NDM_BLOB_CHECKSUM	8
#define NDM_BLOB_FEWEST		64	/* golden vectors */
#define NDM_BLOB_MOST		4096

/* 67 KB: not for a stack. */
struct ndm_blob {
	struct ndm_model model;
	struct ndm_layer layer[NDM_MAX_LAYERS];
	struct ndm_weights weights;
	const u8 *vectors;	/* in the file */
	u32 n_vectors;
};

/* Why a file is refused, and where. */
struct ndm_blob_fault {
	const char *what;
	u32 index;	/* layer or vector */
	u32 element;	/* row of the layer; number of the input or output */
};

struct ndm_blob_reader {
	const u8 *at;
	u32 left;
};

/* The next n bytes; NULL if there are fewer. */
static inline const u8 *ndm_blob_take(struct ndm_blob_reader *r, u32 n)
{
	const u8 *at = r->at;

	if (n > r->left)
		return NULL;
	r->at += n;
	r->left -= n;
	return at;
}

static inline u16 ndm_blob_u16(const u8 *at)
{
	return (u16)(at[0] | at[1] << 8);
}

static inline u32 ndm_blob_u32(const u8 *at)
{
	return ndm_blob_u16(at) | (u32)ndm_blob_u16(at + 2) << 16;
}

static inline u64 ndm_blob_u64(const u8 *at)
{
	return ndm_blob_u32(at) | (u64)ndm_blob_u32(at + 4) << 32;
}

static inline bool ndm_blob_refuse(struct ndm_blob_fault *fault, const char *what, u32 index,
				   u32 element)
{
	*fault = (struct ndm_blob_fault){ what, index, element };
	return false;
}

/* FNV-1a: each step maps the state one to one, so one wrong byte always shows. */
static inline u64 ndm_blob_checksum(const u8 *data, u32 n)
{
	u64 state = 0xcbf29ce484222325ULL;

	while (n--)
		state = (state ^ *data++) * 0x100000001b3ULL;
	return state;
}

static_assert(NDM_N_DENSE == 18, "ndm_blob_box() has the ranges of these inputs");

/* The contract's range of an input, Q12. */
static inline void ndm_blob_box(u32 input, s32 *lo, s32 *hi)
{
	bool wide = input == NDM_IN_BDP_RATIO || input == NDM_IN_BDP_RATIO_MEAN ||
		    input == NDM_IN_RTT_VARIATION || input == NDM_IN_RTT_VARIATION_MEAN;
	bool sign = input == NDM_IN_RTT_GRADIENT || input == NDM_IN_RTT_GRADIENT_MEAN;

	*lo = sign ? -NDM_ONE : 0;
	*hi = wide ? 2 * NDM_ONE : NDM_ONE;
}

/* May a row of weights, s16, and its bias be used with this shift? */
static inline bool ndm_blob_row(const u8 *weight, s32 bias, u32 shift, u32 n_in, bool first)
{
	s64 low = bias < 0 ? bias : 0, high = bias > 0 ? bias : 0;
	s32 lo = -32768, hi = 32767;
	u32 i;

	/* Every partial sum, in any order; later layers take any s16. */
	for (i = 0; i < n_in; i++, weight += 2) {
		s64 w = (s16)ndm_blob_u16(weight);

		if (first)
			ndm_blob_box(i, &lo, &hi);
		low += w < 0 ? w * (hi > 0 ? hi : 0) : w * (lo < 0 ? lo : 0);
		high += w < 0 ? w * (lo < 0 ? lo : 0) : w * (hi > 0 ? hi : 0);
	}
	/* With room for the half by which a shift rounds. */
	return -low <= 0x7fffffff && high + (1LL << (shift - 1)) <= 0x7fffffff;
}

/* The shifts that weights of NDM_WEIGHT_SHIFT_MIN .. _MAX fractional bits give. */
static inline bool ndm_blob_shift_fits(u32 shift, bool first)
{
	u32 q_in = first ? NDM_Q_INPUT : NDM_Q_ACT;

	return shift >= 1 && shift + NDM_Q_PRE >= NDM_WEIGHT_SHIFT_MIN + q_in &&
	       shift + NDM_Q_PRE <= NDM_WEIGHT_SHIFT_MAX + q_in;
}

/* Layer l from the file to pairs of rows, from pair[] and shift[] on. */
static inline bool ndm_blob_layer(struct ndm_blob_reader *r, const struct ndm_layer *like, u32 l,
				  u64 *pair, u8 *shift, struct ndm_blob_fault *fault)
{
	const u8 *weight = ndm_blob_take(r, 2U * like->n_in * like->n_out);
	const u8 *biases = ndm_blob_take(r, 4U * like->n_out);
	const u8 *shifts = ndm_blob_take(r, like->n_out);
	u64 *bias = pair + (like->n_out + 1U) / 2 * like->n_in;
	u32 row, i;

	if (!weight || !biases || !shifts)
		return ndm_blob_refuse(fault, "too short for its layers", l, 0);
	for (row = 0; row < like->n_out; row++, weight += 2U * like->n_in) {
		s32 b = (s32)ndm_blob_u32(biases + 4 * row);
		u32 lane = row % 2 * 32;

		if (!ndm_blob_shift_fits(shifts[row], !l))
			return ndm_blob_refuse(fault, "shift out of range", l, row);
		if (!ndm_blob_row(weight, b, shifts[row], like->n_in, !l))
			return ndm_blob_refuse(fault, "accumulator may leave s32", l, row);
		for (i = 0; i < like->n_in; i++)
			pair[row / 2 * like->n_in + i] +=
				(u64)(s16)ndm_blob_u16(weight + 2 * i) << lane;
		/* With the half by which the shift rounds. */
		bias[row / 2] += ((u64)b + (1U << (shifts[row] - 1))) << lane;
		shift[row] = shifts[row];
	}
	/* The row of zeros beside an odd one. */
	if (row % 2)
		shift[row] = 1;
	return true;
}

/* Header and shapes; leaves the reader at the first layer. */
static inline bool ndm_blob_head(struct ndm_blob_reader *r, const struct ndm_model *like,
				 struct ndm_blob *blob, struct ndm_blob_fault *fault)
{
	u32 n = r->left, l;
	const u8 *head = ndm_blob_take(r, NDM_BLOB_HEAD);

	if (!head)
		return ndm_blob_refuse(fault, "too short for a header", 0, 0);
	if (ndm_blob_u32(head) != NDM_BLOB_MAGIC)
		return ndm_blob_refuse(fault, "no network: another magic", 0, 0);
	if (ndm_blob_u32(head + 4) != NDM_BLOB_VERSION)
		return ndm_blob_refuse(fault, "another version of the format", 0, 0);
	if (ndm_blob_u32(head + 8) != n || n < NDM_BLOB_HEAD + NDM_BLOB_CHECKSUM)
		return ndm_blob_refuse(fault, "length differs from the header's", 0, 0);
	if (ndm_blob_u64(head + n - NDM_BLOB_CHECKSUM) !=
	    ndm_blob_checksum(head, n - NDM_BLOB_CHECKSUM))
		return ndm_blob_refuse(fault, "damaged: checksum differs", 0, 0);
	r->left -= NDM_BLOB_CHECKSUM;
	if (ndm_blob_u64(head + 16) != NDM_CONTRACT_ID)
		return ndm_blob_refuse(fault, "made for another contract", 0, 0);
	blob->n_vectors = ndm_blob_u32(head + 12);
	blob->weights.model = ndm_blob_u64(head + 24);
	if (ndm_blob_u32(head + 32) != like->n_layers)
		return ndm_blob_refuse(fault, "another number of layers", 0, 0);
	for (l = 0; l < like->n_layers; l++) {
		const u8 *shape = ndm_blob_take(r, NDM_BLOB_SHAPE);

		if (!shape)
			return ndm_blob_refuse(fault, "too short for its shapes", l, 0);
		if (shape[0] != like->layer[l].n_in || shape[1] != like->layer[l].n_out ||
		    shape[2] != like->layer[l].n_clamped || shape[3])
			return ndm_blob_refuse(fault, "other dimensions", l, 0);
	}
	return true;
}

/*
 * data: n bytes, which must stay until ndm_blob_verify(). like: the compiled network.
 * False: *fault has the reason, and blob must not be used.
 */
static inline bool ndm_blob_read(struct ndm_blob *blob, const struct ndm_model *like,
				 const u8 *data, u32 n, struct ndm_blob_fault *fault)
{
	struct ndm_blob_reader r = { data, n };
	u64 *pair = blob->weights.pair;
	u8 *shift = blob->weights.shift;
	u32 l;

	memset(blob, 0, sizeof(*blob));
	if (!ndm_blob_head(&r, like, blob, fault))
		return false;
	for (l = 0; l < like->n_layers; l++) {
		const struct ndm_layer *as = &like->layer[l];
		u32 pairs = (as->n_out + 1U) / 2;

		if (!ndm_blob_layer(&r, as, l, pair, shift, fault))
			return false;
		blob->layer[l] = *as;
		blob->layer[l].weight = pair;
		blob->layer[l].bias = pair + pairs * as->n_in;
		blob->layer[l].shift = shift;
		pair += pairs * (as->n_in + 1U);
		shift += 2 * pairs;
	}
	if (blob->n_vectors < NDM_BLOB_FEWEST || blob->n_vectors > NDM_BLOB_MOST)
		return ndm_blob_refuse(fault, "too few or too many vectors", 0, 0);
	if (r.left != blob->n_vectors * NDM_BLOB_VECTOR)
		return ndm_blob_refuse(fault, "length differs from its parts'", 0, 0);
	blob->vectors = r.at;
	blob->model.layer = blob->layer;
	blob->model.n_layers = like->n_layers;
	return true;
}

/* Vector v of a file that ndm_blob_read() accepted. */
static inline void ndm_blob_vector(const struct ndm_blob *blob, u32 v, s16 x[NDM_N_DENSE],
				   s32 out[NDM_N_OUTPUTS])
{
	const u8 *at = blob->vectors + v * NDM_BLOB_VECTOR;
	u32 i;

	for (i = 0; i < NDM_N_DENSE; i++, at += 2)
		x[i] = (s16)ndm_blob_u16(at);
	for (i = 0; i < NDM_N_OUTPUTS; i++, at += 4)
		out[i] = (s32)ndm_blob_u32(at);
}

/* Do all vectors lie in the box, and come out bit by bit? */
static inline bool ndm_blob_verify(const struct ndm_blob *blob, struct ndm_blob_fault *fault)
{
	s32 want[NDM_N_OUTPUTS], got[NDM_N_OUTPUTS], lo, hi;
	s16 x[NDM_N_DENSE];
	u32 v, i;

	for (v = 0; v < blob->n_vectors; v++) {
		ndm_blob_vector(blob, v, x, want);
		for (i = 0; i < NDM_N_DENSE; i++) {
			ndm_blob_box(i, &lo, &hi);
			if (x[i] < lo || x[i] > hi)
				return ndm_blob_refuse(fault, "vector outside the box", v, i);
		}
		ndm_infer(&blob->model, x, got, NULL);
		for (i = 0; i < NDM_N_OUTPUTS; i++)
			if (got[i] != want[i])
				return ndm_blob_refuse(fault, "vector: output differs", v, i);
	}
	return true;
}

#endif /* _NDM_BLOB_H */
