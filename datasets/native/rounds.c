/* SPDX-License-Identifier: GPL-2.0-only */
#include "rounds.h"

static void merge(struct ndm_rounds *r, struct ndm_round_row *row)
{
	row->lost += r->lost;
	if (r->ca_state > row->ca_state)
		row->ca_state = r->ca_state;
	if (r->loss_cause > row->loss_cause)
		row->loss_cause = r->loss_cause;
	row->rwnd_limited |= r->rwnd_limited;
	r->lost = 0;
	r->ca_state = r->loss_cause = r->rwnd_limited = 0;
}

void ndm_rounds_take(struct ndm_rounds *r, const struct ndm_ack *ack, uint8_t cause,
		     uint8_t rwnd_limited)
{
	int16_t x[NDM_N_INPUTS];
	enum ndm_round end = ndm_features_ack(&r->features, ack, x);
	struct ndm_round_row *row;

	if (!r->acks++) {
		r->start_us = ack->now_us;
		r->delivered = ack->delivered;
	}
	r->lost += ack->lost;
	if (ack->ca_state > r->ca_state)
		r->ca_state = (uint8_t)ack->ca_state;
	if (ack->lost && cause > r->loss_cause)
		r->loss_cause = cause;
	r->rwnd_limited |= rwnd_limited != 0;
	if (end == NDM_ROUND_GOES_ON || r->failed)
		return;
	if (!grow((void **)&r->row, r->n, &r->room, sizeof(*r->row), 16)) {
		r->failed = true;
		return;
	}
	row = &r->row[r->n++];
	memset(row, 0, sizeof(*row));
	row->t_us = (int64_t)(ack->now_us - r->start_us);
	row->duration_us = row->t_us - (r->n > 1 ? row[-1].t_us : 0);
	memcpy(row->x, x, sizeof(x));
	row->valid = end == NDM_ROUND_VALID;
	row->cwnd = ndm_window(ack->ca_state, ack->cwnd, ack->ssthresh);
	row->ssthresh = ack->ssthresh;
	row->srtt_us = ack->srtt_us;
	row->rttvar_us = ack->rttvar_us;
	row->min_rtt_us = ack->min_rtt_us;
	row->inflight = ack->inflight;
	row->delivered = ack->delivered - r->delivered;
	row->rate_packets = ack->delivered - ack->prior_delivered;
	row->rate_interval_us = ack->interval_us;
	row->app_limited = ack->app_limited > 0;
	r->delivered = ack->delivered;
	merge(r, row);
}

void ndm_rounds_end(struct ndm_rounds *r)
{
	if (r->n)
		merge(r, &r->row[r->n - 1]);
}

int64_t ndm_rounds_of(const struct ndm_ack *ack, int64_t n, const uint8_t *cause,
		      const uint8_t *rwnd_limited, struct ndm_round_row *row)
{
	struct ndm_rounds r = { .row = row, .room = (size_t)n };
	int64_t i;

	for (i = 0; i < n; i++)
		ndm_rounds_take(&r, &ack[i], cause[i], rwnd_limited[i]);
	ndm_rounds_end(&r);
	return (int64_t)r.n;
}
