/* SPDX-License-Identifier: GPL-2.0-only */
/* Array wrappers around the kernel module's headers, for Python (core_build.py). */
#include "kmod/ndm_control.h"
#include "kmod/ndm_features.h"
#include "kmod/ndm_infer.h"
#include "kmod/ndm_memory.h"

unsigned long long ndm_core_contract(void)
{
	return NDM_CONTRACT_ID;
}

size_t ndm_core_features_size(void)
{
	return sizeof(struct ndm_features);
}

size_t ndm_core_ack_size(void)
{
	return sizeof(struct ndm_ack);
}

/* x, ack_index and valid have room for n rounds; returns how many there were. */
int ndm_core_replay(const void *acks, int n, void *features, int16_t *x, int32_t *ack_index,
		    uint8_t *valid)
{
	const struct ndm_ack *ack = acks;
	struct ndm_features *f = features;
	int i, rounds = 0;

	for (i = 0; i < n; i++) {
		enum ndm_round end = ndm_features_ack(f, &ack[i], x + rounds * NDM_N_INPUTS);

		if (end == NDM_ROUND_GOES_ON)
			continue;
		ack_index[rounds] = i;
		valid[rounds++] = end == NDM_ROUND_VALID;
	}
	return rounds;
}

/*
 * The memory over rounds of flows, one after the other. begins: 1 where a flow does; valid: 0 where
 * a round has no inputs, which the memory does not see; dense: [n][NDM_N_DENSE], zero there.
 * state: of the flow that goes on at the first round, then of the last one.
 */
void ndm_core_remember(const int16_t *x, const uint8_t *begins, const uint8_t *valid, int64_t n,
		       uint16_t *state, int16_t *dense)
{
	struct ndm_memory memory;
	int64_t i;

	memcpy(memory.state, state, sizeof(memory.state));
	for (i = 0; i < n; i++, x += NDM_N_INPUTS, dense += NDM_N_DENSE) {
		if (begins[i])
			memset(&memory, 0, sizeof(memory));
		if (!valid[i]) {
			memset(dense, 0, NDM_N_DENSE * sizeof(*dense));
			continue;
		}
		memcpy(dense, x, NDM_N_INPUTS * sizeof(*x));
		ndm_remember(&memory, dense);
	}
	memcpy(state, memory.state, sizeof(memory.state));
}

/*
 * widths: n_layers + 1 values, NDM_N_DENSE first; clamped: n_layers; the rest as in
 * struct ndm_layer, one layer after the other.
 * trace: NULL or n times the sum of the other widths.
 */
int ndm_core_infer(int n_layers, const uint8_t *widths, const uint8_t *clamped,
		   const uint64_t *weight, const uint64_t *bias, const uint8_t *shift,
		   const int16_t *x, int n, int32_t *out, int32_t *trace)
{
	struct ndm_layer layer[NDM_MAX_LAYERS];
	struct ndm_model model = { layer, (u8)n_layers };
	int i, traced = 0;

	if (n_layers < 1 || n_layers > NDM_MAX_LAYERS || widths[0] != NDM_N_DENSE ||
	    widths[n_layers] != NDM_N_OUTPUTS)
		return -1;
	for (i = 0; i < n_layers; i++) {
		int pairs = (widths[i + 1] + 1) / 2;

		if (widths[i + 1] < 1 || widths[i + 1] > NDM_MAX_WIDTH ||
		    clamped[i] > widths[i + 1])
			return -1;
		layer[i] = (struct ndm_layer){
			weight, bias, shift, widths[i], widths[i + 1], clamped[i],
		};
		weight += widths[i] * pairs;
		bias += pairs;
		shift += 2 * pairs;
		traced += widths[i + 1];
	}
	for (i = 0; i < n; i++)
		ndm_infer(&model, x + (size_t)i * NDM_N_DENSE, out + (size_t)i * NDM_N_OUTPUTS,
			  trace ? trace + (size_t)i * (size_t)traced : NULL);
	return 0;
}

void ndm_core_tanh(const int32_t *pre, int n, int16_t *out)
{
	while (n-- > 0)
		*out++ = ndm_tanh(*pre++);
}

void ndm_core_exp2(const int32_t *gain, int n, uint32_t *out)
{
	while (n-- > 0)
		*out++ = ndm_exp2(*gain++);
}

void ndm_core_window(const uint32_t *ca_state, const uint32_t *cwnd, const uint32_t *ssthresh,
		     int n, uint32_t *out)
{
	while (n-- > 0)
		*out++ = ndm_window(*ca_state++, *cwnd++, *ssthresh++);
}

/* What is applied of a network's gain in a phase of the probe. */
int32_t ndm_core_probed_gain(int32_t gain, uint32_t phase)
{
	return ndm_probed_gain(gain, phase);
}

void ndm_core_apply_gain(const uint32_t *cwnd, const int32_t *gain, int n, uint32_t *out)
{
	while (n-- > 0)
		*out++ = ndm_apply_gain(*cwnd++, *gain++);
}

void ndm_core_cut(const uint32_t *cwnd, const int32_t *congestion, int n, uint32_t *out)
{
	while (n-- > 0)
		*out++ = ndm_cut(*cwnd++, *congestion++);
}

void ndm_core_entropy(const uint64_t *ring, const uint32_t *n_samples, int n, uint32_t *out)
{
	while (n-- > 0)
		*out++ = ndm_entropy(*ring++, *n_samples++);
}
