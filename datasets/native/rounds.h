/* SPDX-License-Identifier: GPL-2.0-only */
/* Per-ACK records to rounds: the kernel's features, and the raw numbers of each round. */
#ifndef NDM_ROUNDS_H
#define NDM_ROUNDS_H

#include "kmod/ndm_features.h"
#include "bytes.h"

struct ndm_round_row {
	int64_t t_us;		/* end of the round since the flow's first ACK */
	int64_t duration_us;
	int16_t x[NDM_N_INPUTS];
	uint32_t cwnd, ssthresh, srtt_us, rttvar_us, min_rtt_us, inflight;
	uint32_t delivered, lost, rate_packets;
	int32_t rate_interval_us;
	uint8_t valid, ca_state, app_limited, rwnd_limited, loss_cause;
};

struct ndm_rounds {
	struct ndm_features features;
	struct ndm_round_row *row;
	size_t n, room;
	uint64_t start_us;	/* of the first ACK */
	uint64_t acks;
	uint32_t delivered;	/* when the round began */
	uint32_t lost;		/* of the round that goes on */
	uint8_t ca_state, rwnd_limited, loss_cause;
	bool failed;
};

void ndm_rounds_take(struct ndm_rounds *r, const struct ndm_ack *ack, uint8_t cause,
		     uint8_t rwnd_limited);
/* What came after the last whole round counts to that round. */
void ndm_rounds_end(struct ndm_rounds *r);
/* A whole flow; `row` has room for n. Returns how many there were. */
int64_t ndm_rounds_of(const struct ndm_ack *ack, int64_t n, const uint8_t *cause,
		      const uint8_t *rwnd_limited, struct ndm_round_row *row);

#endif
