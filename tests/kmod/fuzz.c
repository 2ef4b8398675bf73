// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hostile ACK records through the features, the network, the window, the watchdog,
 * the drains and the ceiling: no undefined behaviour, and nothing that leaves its range. The input
 * is read as records of struct ndm_ack, one after the other, of one flow.
 */
#include <stdlib.h>

#include "ndm_ceiling.h"
#include "ndm_control.h"
#include "ndm_drain.h"
#include "ndm_features.h"
#include "ndm_memory.h"
#include "ndm_watchdog.h"
#include "generated/ndm_model.h"

static const s32 lowest[NDM_N_DENSE] = { [NDM_IN_RTT_GRADIENT] = -NDM_ONE,
					  [NDM_IN_RTT_GRADIENT_MEAN] = -NDM_ONE };

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void in_range(const s16 *x, const s32 *out)
{
	u32 i;

	for (i = 0; i < NDM_N_DENSE; i++) {
		bool wide = i == NDM_IN_BDP_RATIO || i == NDM_IN_RTT_VARIATION ||
			    i == NDM_IN_BDP_RATIO_MEAN || i == NDM_IN_RTT_VARIATION_MEAN;

		require(x[i] >= lowest[i] && x[i] <= NDM_ONE * (wide ? 2 : 1));
	}
	require(out[0] >= NDM_OUT_CWND_GAIN_LO && out[0] <= NDM_OUT_CWND_GAIN_HI);
	require(out[1] >= NDM_OUT_CONGESTION_LO && out[1] <= NDM_OUT_CONGESTION_HI);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size);

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct ndm_watchdog watchdog = { 0 };
	struct ndm_features f = { 0 };
	struct ndm_memory memory = { 0 };
	struct ndm_drain drain = { 0 };
	u32 ceiling_rounds = 0;
	struct ndm_ack ack;

	for (; size >= sizeof(ack); data += sizeof(ack), size -= sizeof(ack)) {
		s32 out[NDM_N_OUTPUTS] = { 0 };
		s16 x[NDM_N_DENSE] = { 0 };
		enum ndm_round round;

		memcpy(&ack, data, sizeof(ack));
		round = ndm_features_ack(&f, &ack, x);
		require(f.rtt_n <= NDM_ENTROPY_RING && f.gap_n <= NDM_ENTROPY_RING);
		if (round == NDM_ROUND_GOES_ON)
			continue;
		if (round == NDM_ROUND_VALID)
			ndm_remember(&memory, x);
		ndm_infer(&ndm_model, x, out, NULL);
		in_range(x, out);
		require(ndm_cut(ack.cwnd, out[1]) <= ack.cwnd);
		require(ndm_cut(ack.cwnd, out[1]) >= ack.cwnd / 2);
		require(ndm_cut_without_queue(ack.cwnd, out[1]) <= ack.cwnd);
		require(ndm_cut_without_queue(ack.cwnd, out[1]) >= ndm_cut(ack.cwnd, out[1]));
		require(out[0] < 0 || ndm_apply_gain(ack.cwnd, out[0]) >= ack.cwnd);
		ndm_watchdog_step(&watchdog, x, ndm_max(f.max_rate[0], f.max_rate[1]),
				   ack.app_limited & 1, ack.acked & 31);
		require(ndm_law(ack.cwnd, out[0], ack.acked, x, ack.lost, ack.delivered & 31,
				ack.inflight) <= ack.inflight);
		ndm_drain(&drain, ndm_shortest_queue(ndm_lowest_us(&f), ack.min_rtt_us), ack.cwnd,
			  ack.acked & 1);
		require(drain.rounds <= NDM_DRAIN_ROUNDS);
		require(drain.alone <= NDM_DRAIN_ALONE);
		ceiling_rounds = ndm_ceiling_rounds(ceiling_rounds, x, out[1], ack.lost,
						    ack.inflight > 8);
		require(ceiling_rounds <= NDM_CEILING_ROUNDS);
		ndm_ceiling(ack.cwnd, x, ceiling_rounds);
		require(watchdog.starved < NDM_WATCHDOG_PATIENCE);
		require(watchdog.left <= NDM_WATCHDOG_ROUNDS && watchdog.loss <= NDM_ONE);
	}
	return 0;
}
