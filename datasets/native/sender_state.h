/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files of the replay share: sender*.c. */
#ifndef NDM_SENDER_STATE_H
#define NDM_SENDER_STATE_H

#include "sender.h"

enum { OPEN, DISORDER, CWR, RECOVERY, LOSS };

static inline int64_t srtt_us(const struct ndm_sender *s)
{
	return s->srtt8 >> 3;
}

static inline int64_t rttvar_us(const struct ndm_sender *s)
{
	return s->mdev4 >> 2;
}

static inline int64_t min_rtt(const struct ndm_sender *s)
{
	return s->min_head < s->min_end ? s->minima[s->min_head].value : 0;
}

static inline int64_t packets_out(const struct ndm_sender *s)
{
	return (int64_t)(s->end - s->head);
}

/* Out - sacked - lost + retransmitted, as the kernel counts. */
static inline int64_t inflight(const struct ndm_sender *s)
{
	return packets_out(s) - s->sacked_out - s->lost_out + s->resent_out;
}

static inline int64_t cwnd(const struct ndm_sender *s)
{
	return ndm_peaks_cwnd(&s->peaks);
}

#define MS_US 1000

/* Milliseconds from the first TSval to this one. */
static inline int64_t ndm_sender_ticks(const struct ndm_sender *s, uint32_t value)
{
	return (int32_t)(value - s->tick);
}

/* The first segment in flight that begins at or after this number. */
static inline size_t find(const struct ndm_sender *s, int64_t seq)
{
	size_t low = s->head, high = s->end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (s->out[middle].seq < seq)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* sender.c: room, RTTs and losses. */
void ndm_sender_release(struct ndm_sender *s);
void ndm_sender_take_srtt(struct ndm_sender *s, int64_t rtt);
void ndm_sender_take_min_rtt(struct ndm_sender *s, int64_t now_us, int64_t rtt);
void ndm_sender_mark_lost(struct ndm_sender *s, struct ndm_out *p);
/* A segment of the wire ends here; `next`: the first one of ours that begins here or later. */
void ndm_sender_note_edge(struct ndm_sender *s, size_t next, int64_t edge);

#endif
