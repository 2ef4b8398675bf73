/* SPDX-License-Identifier: GPL-2.0-only */
#include "sender_state.h"

#define MIN_RTT_WINDOW_US 300000000LL /* sysctl tcp_min_rtt_wlen */
#define MAX_MINIMA 65536
#define REORDERED 1		/* LossCause: overtaken, not dropped */
#define LEAST_EDGES 4		/* fewer may come of a receiver that took a part of a segment */

void ndm_sender_init(struct ndm_sender *s, int64_t mss, int32_t wscale,
		     const struct ndm_drops *drops, int64_t *budget)
{
	memset(s, 0, sizeof(*s));
	s->budget = budget;
	s->mss = mss;
	s->wscale = wscale;
	s->drops = drops;
	s->una = s->nxt = s->top_sacked = s->beyond = s->unseen_end = s->probe_end = s->window = -1;
	s->app_limited = 1; /* the first flight counts as limited, as in the kernel */
	s->reo_steps = 1;
	ndm_peaks_begin(&s->peaks);
	s->sample.end = -1;
}

void ndm_sender_free(struct ndm_sender *s)
{
	ndm_sizes_free(&s->unfit);
	free(s->minima);
	free(s->out);
	free(s->stamp);
	free(s->stamp_us);
	memset(s, 0, sizeof(*s));
}

/* After its FIN, with nothing in flight, a flow gives back its room for segments. */
void ndm_sender_release(struct ndm_sender *s)
{
	if (!s->fin || packets_out(s))
		return;
	*s->budget += (int64_t)s->room;
	free(s->out);
	s->out = NULL;
	s->head = s->end = s->room = 0;
}

/* --- RTT estimators ----------------------------------------------------------------------- */

/* Gains 1/8 and 1/4; a falling RTT raises mdev only by 1/32. */
void ndm_sender_take_srtt(struct ndm_sender *s, int64_t rtt)
{
	int64_t error, change;

	if (!s->srtt8) {
		s->srtt8 = max64(rtt * 8, 1);
		s->mdev4 = rtt * 2;
		return;
	}
	error = rtt - (s->srtt8 >> 3);
	s->srtt8 = max64(s->srtt8 + error, 1);
	if (error < 0) {
		change = -error - (s->mdev4 >> 2);
		if (change > 0)
			change >>= 3;
	} else {
		change = error - (s->mdev4 >> 2);
	}
	s->mdev4 += change;
}

/* Lowest of the last five minutes: a queue of candidates, rising in time and value. */
void ndm_sender_take_min_rtt(struct ndm_sender *s, int64_t now_us, int64_t rtt)
{
	while (s->min_end > s->min_head && s->minima[s->min_end - 1].value >= rtt)
		s->min_end--;
	if (s->min_end - s->min_head >= MAX_MINIMA)
		s->min_end--;
	if (s->min_head && s->min_end == s->min_room) {
		memmove(s->minima, s->minima + s->min_head,
			(s->min_end - s->min_head) * sizeof(*s->minima));
		s->min_end -= s->min_head;
		s->min_head = 0;
	}
	if (!grow((void **)&s->minima, s->min_end, &s->min_room, sizeof(*s->minima), 8)) {
		s->failed = true;
		return;
	}
	s->minima[s->min_end++] = (struct ndm_minimum){ now_us, rtt };
	while (now_us - s->minima[s->min_head].at_us > MIN_RTT_WINDOW_US)
		s->min_head++;
}

void ndm_sender_seed_rtt(struct ndm_sender *s, int64_t now_us, int64_t rtt)
{
	ndm_sender_take_srtt(s, rtt);
	ndm_sender_take_min_rtt(s, now_us, rtt);
}

/* --- losses --------------------------------------------------------------------------- */

static uint8_t cause_of(const struct ndm_sender *s, const struct ndm_out *p)
{
	const struct ndm_drops *d = s->drops;
	uint32_t seq = (uint32_t)p->seq;
	int64_t low = 0, high = d->n;

	if (d->n < 0)
		return 0;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;

		if (d->seq[middle] < seq)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < d->n && d->seq[low] == seq; low++)
		if (d->at_us[low] >= p->sent_us - 1000)
			return d->cause[low];
	return REORDERED;
}

/* A packet or its retransmission is lost: the kernel counts these in tp->lost. */
void ndm_sender_mark_lost(struct ndm_sender *s, struct ndm_out *p)
{
	uint8_t why = cause_of(s, p);

	if (p->resent_out) {
		p->resent_out = false;
		s->resent_out--;
	}
	if (!p->lost) {
		p->lost = true;
		s->lost_out++;
	}
	s->marked++;
	if (why > s->marked_cause)
		s->marked_cause = why;
}

/* --- segments of the wire ---------------------------------------------------------------- */

/* Each segment counts once, however often an ACK repeats the edge. */
void ndm_sender_note_edge(struct ndm_sender *s, size_t next, int64_t edge)
{
	bool more = next < s->end && s->out[next].place;
	struct ndm_out *p;

	if (next < s->end && s->out[next].seq == edge) {
		s->fitting += more && !s->out[next].fits;
		s->out[next].fits = true;
		return;
	}
	if (next == s->head)
		return;
	p = &s->out[next - 1];
	if (p->end <= edge || p->unfit || !(p->place || more))
		return;
	p->unfit = true;
	s->unfitting++;
	if (!ndm_sizes_count(&s->unfit, (uint32_t)(edge - p->seq + p->place * s->mss)))
		s->failed = true;
}

int64_t ndm_sender_smaller_mss(const struct ndm_sender *s)
{
	if (s->failed || s->unfitting < LEAST_EDGES || s->unfitting * 2 < s->fitting)
		return 0;
	return ndm_sizes_divisor(&s->unfit, (uint32_t)(s->mss - 1));
}
