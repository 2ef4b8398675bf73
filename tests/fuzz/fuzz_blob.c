// SPDX-License-Identifier: GPL-2.0-only
/*
 * libFuzzer over kmod/ndm_blob.h. An odd first byte: the rest as it is. Even: with magic,
 * version, length, contract, layers and checksum put right, so that what lies behind them is
 * reached. No accumulator of an accepted network may leave s32 for any input in the box.
 */
#include <stdlib.h>

#include "kmod/ndm_blob.h"
#include "kmod/generated/ndm_model.h"

static struct ndm_blob blob;

static void put(u8 *at, u64 value, u32 bytes)
{
	for (; bytes--; value >>= 8)
		*at++ = (u8)value;
}

static void put_right(u8 *data, u32 n)
{
	put(data, NDM_BLOB_MAGIC, 4);
	put(data + 4, NDM_BLOB_VERSION, 4);
	put(data + 8, n, 4);
	put(data + 16, NDM_CONTRACT_ID, 8);
	put(data + 32, ndm_model.n_layers, 4);
	put(data + n - NDM_BLOB_CHECKSUM, ndm_blob_checksum(data, n - NDM_BLOB_CHECKSUM),
	    NDM_BLOB_CHECKSUM);
}

static s32 one_of(u64 pair, u32 row)
{
	return row % 2 ? (s32)((pair - (u64)(s32)pair) >> 32) : (s32)pair;
}

static s64 most(s64 a, s64 b)
{
	return a > b ? a : b;
}

/*
 * The largest sum of a row, or of the row times -1, from the integers that ndm_infer() takes;
 * the bias holds the half by which the shift rounds.
 */
static s64 worst(const struct ndm_layer *layer, u32 row, bool first, s64 sign)
{
	s64 sum = sign * one_of(layer->bias[row / 2], row);
	s32 lo = -32768, hi = 32767;
	u32 i;

	for (i = 0; i < layer->n_in; i++) {
		s64 w = sign * one_of(layer->weight[row / 2 * layer->n_in + i], row);

		if (first)
			ndm_blob_box(i, &lo, &hi);
		sum += most(w * lo, w * hi);
	}
	return sum;
}

static void accepted(void)
{
	s32 out[NDM_N_OUTPUTS], want[NDM_N_OUTPUTS];
	s16 x[NDM_N_DENSE];
	u32 l, row;

	for (l = 0; l < blob.model.n_layers; l++) {
		const struct ndm_layer *layer = &blob.model.layer[l];

		for (row = 0; row < layer->n_out; row++) {
			if (worst(layer, row, !l, 1) > 0x7fffffff ||
			    worst(layer, row, !l, -1) > 0x80000000LL)
				abort();
		}
	}
	ndm_blob_vector(&blob, blob.n_vectors - 1, x, want);
	ndm_infer(&blob.model, x, out, NULL);
	if (out[0] < NDM_OUT_CWND_GAIN_LO || out[0] > NDM_OUT_CWND_GAIN_HI ||
	    out[1] < NDM_OUT_CONGESTION_LO || out[1] > NDM_OUT_CONGESTION_HI)
		abort();
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t n);

int LLVMFuzzerTestOneInput(const u8 *data, size_t n)
{
	struct ndm_blob_fault fault;
	u8 *exact;

	if (!n)
		return 0;
	exact = malloc(n > 1 ? n - 1 : 1);
	memcpy(exact, data + 1, n - 1);
	if (data[0] % 2 == 0 && n - 1 >= NDM_BLOB_HEAD + NDM_BLOB_CHECKSUM)
		put_right(exact, (u32)n - 1);
	if (ndm_blob_read(&blob, &ndm_model, exact, (u32)n - 1, &fault)) {
		accepted();
		ndm_blob_verify(&blob, &fault);
	}
	free(exact);
	return 0;
}
