/* SPDX-License-Identifier: GPL-2.0-only */
#include "sender.h"

enum { OPEN, DISORDER, CWR, RECOVERY, LOSS };

#define DUPTHRESH 3
#define INITIAL_SSTHRESH 0x7FFFFFFF
#define LEFT_SLOW_START 2	/* the window is estimated, so only "above it" can be told */
#define REO_PERSIST 16		/* recoveries, TCP_RACK_RECOVERY_THRESH */
#define MIN_RTO_US 200000	/* TCP_RTO_MIN */
#define MIN_RTT_WINDOW_US 300000000LL /* sysctl tcp_min_rtt_wlen */
#define MAX_STAMPS 4096
#define MAX_MINIMA 65536
#define FIRST_ROOM 16
#define REORDERED 1		/* LossCause: overtaken, not dropped */

void ndm_sender_init(struct ndm_sender *s, int64_t mss, int32_t wscale,
		     const struct ndm_drops *drops, int64_t *budget)
{
	memset(s, 0, sizeof(*s));
	s->budget = budget;
	s->mss = mss;
	s->wscale = wscale;
	s->drops = drops;
	s->una = s->nxt = s->top_sacked = s->beyond = s->unseen_end = -1;
	s->app_limited = 1; /* the first flight counts as limited, as in the kernel */
	s->reo_steps = 1;
	s->ssthresh = INITIAL_SSTHRESH;
	s->sample.end = -1;
}

void ndm_sender_free(struct ndm_sender *s)
{
	free(s->minima);
	free(s->out);
	free(s->stamp);
	free(s->stamp_us);
	memset(s, 0, sizeof(*s));
}

/* --- RTT estimators ----------------------------------------------------------------------- */

static int64_t srtt_us(const struct ndm_sender *s)
{
	return s->srtt8 >> 3;
}

static int64_t rttvar_us(const struct ndm_sender *s)
{
	return s->mdev4 >> 2;
}

/* Gains 1/8 and 1/4; a falling RTT raises mdev only by 1/32. */
static void take_srtt(struct ndm_sender *s, int64_t rtt)
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

static int64_t min_rtt(const struct ndm_sender *s)
{
	return s->min_head < s->min_end ? s->minima[s->min_head].value : 0;
}

/* Lowest of the last five minutes: a queue of candidates, rising in time and value. */
static void take_min_rtt(struct ndm_sender *s, int64_t now_us, int64_t rtt)
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
	take_srtt(s, rtt);
	take_min_rtt(s, now_us, rtt);
}

/* --- what leaves -------------------------------------------------------------------------- */

static int64_t packets_out(const struct ndm_sender *s)
{
	return (int64_t)(s->end - s->head);
}

/* Out - sacked - lost + retransmitted, as the kernel counts. */
static int64_t inflight(const struct ndm_sender *s)
{
	return packets_out(s) - s->sacked_out - s->lost_out + s->resent_out;
}

static int64_t cwnd(const struct ndm_sender *s)
{
	return max64(max64(s->peak, s->last_peak), 1);
}

/* The first segment in flight that begins at or after this number. */
static size_t find(const struct ndm_sender *s, int64_t seq)
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

static void stamp(struct ndm_sender *s, struct ndm_out *p, int64_t now_us)
{
	if (!packets_out(s))
		s->first_tx_us = s->delivered_us = now_us;
	p->sent_us = now_us;
	p->first_tx_us = s->first_tx_us;
	p->delivered_us = s->delivered_us;
	p->delivered = s->delivered;
	p->app_limited = s->app_limited != 0;
	p->rate_taken = false;
}

/* Remember when a TSval was first sent; the oldest of 4096 is forgotten. */
static void note_stamp(struct ndm_sender *s, uint32_t value, int64_t now_us)
{
	size_t at;

	if (s->stamps) {
		size_t newest = (s->stamp_next ? s->stamp_next : s->stamp_room) - 1;

		if (s->stamp[newest] == value)
			return;
		if (value <= s->stamp_top)
			for (at = 0; at < s->stamps; at++)
				if (s->stamp[at] == value)
					return;
	}
	if (s->stamps == s->stamp_room && s->stamp_room < MAX_STAMPS) {
		size_t room = s->stamp_room ? s->stamp_room * 2 : 16;
		uint32_t *values = realloc(s->stamp, room * sizeof(*values));
		int64_t *times;

		if (values)
			s->stamp = values;
		times = values ? realloc(s->stamp_us, room * sizeof(*times)) : NULL;
		if (!times) {
			s->failed = true;
			return;
		}
		s->stamp_us = times;
		s->stamp_room = room;
		s->stamp_next = s->stamps; /* never wrapped before it was full */
	}
	if (s->stamp_next == s->stamp_room)
		s->stamp_next = 0;
	s->stamp[s->stamp_next] = value;
	s->stamp_us[s->stamp_next++] = now_us;
	if (s->stamps < s->stamp_room)
		s->stamps++;
	if (value > s->stamp_top || s->stamps == 1)
		s->stamp_top = value;
}

static bool is_rto(const struct ndm_sender *s, int64_t now_us, const struct ndm_out *first)
{
	int64_t quiet = now_us - max64(s->last_progress_us, first->sent_us);
	int64_t rto = srtt_us(s) + max64(4 * rttvar_us(s), MIN_RTO_US);

	return srtt_us(s) > 0 && quiet * 8 >= rto * 7;
}

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

/* A packet is lost, or its repetition is: what the kernel counts in tp->lost. */
static void mark_lost(struct ndm_sender *s, struct ndm_out *p)
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

/* A retransmission timed out: all is lost but what left less than an RTT ago. */
static void enter_loss(struct ndm_sender *s, int64_t now_us)
{
	size_t i;

	s->rtos++;
	s->ssthresh = max64(cwnd(s) / 2, 2);
	s->state = LOSS;
	s->high_seq = s->nxt;
	s->peak = s->last_peak = 1;
	for (i = s->head; i < s->end; i++) {
		struct ndm_out *p = &s->out[i];

		if (p->sacked || (p->lost && !p->resent_out))
			continue;
		if (i != s->head && s->rack_rtt_us > now_us - p->sent_us)
			continue;
		mark_lost(s, p);
	}
}

static void sent_again(struct ndm_sender *s, int64_t now_us, int64_t seq, int64_t end,
		       uint16_t ip_id)
{
	size_t i = find(s, seq);

	s->same_id += ip_id && i < s->end && s->out[i].ip_id == ip_id;
	s->retransmitted += (end - seq + s->mss - 1) / s->mss;
	if (i < s->end && i == s->head && is_rto(s, now_us, &s->out[i]))
		enter_loss(s, now_us);
	for (; i < s->end && s->out[i].seq < end; i++) {
		struct ndm_out *p = &s->out[i];
		bool tail = p->end == s->nxt && !p->lost && s->state < RECOVERY;

		/* By a timer, or its last repetition would not have been the last. */
		if (!p->sacked && !tail && (!p->lost || p->resent_out))
			mark_lost(s, p);
		stamp(s, p, now_us);
		p->resent = true;
		if (!p->resent_out && !p->sacked) {
			p->resent_out = true;
			s->resent_out++;
		}
	}
}

/* Room for one more segment; what is done with makes room first, if it is half of it. */
static bool room_for_one(struct ndm_sender *s)
{
	size_t before = s->room;

	if (packets_out(s) >= NDM_MAX_OUT)
		return false;
	if (s->end == s->room && s->head * 2 >= s->room && s->head) {
		memmove(s->out, s->out + s->head, (s->end - s->head) * sizeof(*s->out));
		s->end -= s->head;
		s->head = 0;
	}
	if (s->end == s->room && *s->budget < (int64_t)(s->room ? s->room : FIRST_ROOM))
		return false;
	if (!grow((void **)&s->out, s->end, &s->room, sizeof(*s->out), FIRST_ROOM))
		return false;
	*s->budget -= (int64_t)(s->room - before);
	return true;
}

/*
 * One byte while nothing is in flight is a keep-alive if it was acknowledged long ago (RFC 1122,
 * 4.2.3.6), and a probe if the window is closed (RFC 9293, 3.8.6.1). Linux sends both without data.
 */
static bool is_probe(struct ndm_sender *s, int64_t seq, uint32_t bytes)
{
	if (bytes != 1 || packets_out(s))
		return false;
	if (seq == s->una - 1)
		return true;
	if (!s->closed || seq != s->nxt)
		return false;
	s->beyond = max64(s->beyond, seq + 1);
	return true;
}

/* A data packet (or TSO super-packet) left the sender. */
void ndm_sender_sent(struct ndm_sender *s, int64_t now_us, uint32_t seq32, uint32_t bytes,
		     uint16_t ip_id, const struct ndm_options *options)
{
	int64_t seq, end, first;

	if (s->failed)
		return;
	if (s->nxt < 0)
		s->una = s->nxt = seq32;
	seq = unwrap(seq32, s->nxt);
	end = seq + bytes;
	if (is_probe(s, seq, bytes)) {
		s->keepalives++;
		return;
	}
	if (options->stamps)
		note_stamp(s, options->ts_value, now_us);
	s->sent_segments += (bytes + s->mss - 1) / s->mss;
	if (seq < s->nxt) {
		sent_again(s, now_us, seq, min64(end, s->nxt), ip_id);
		seq = s->nxt;
	} else if (seq > s->nxt && seq > s->beyond) {
		s->gaps++;
		s->early = 0;
	}
	if (!packets_out(s) && s->rows && end > seq)
		s->app_limited = s->delivered + 1;
	first = seq;
	while (seq < end) {
		struct ndm_out *p;

		if (!room_for_one(s)) {
			s->failed = true;
			return;
		}
		p = &s->out[s->end];
		memset(p, 0, sizeof(*p));
		p->seq = seq;
		p->end = min64(seq + s->mss, end);
		p->ip_id = seq == first ? ip_id : 0;
		stamp(s, p, now_us);
		s->end++;
		seq = p->end;
	}
	s->nxt = max64(s->nxt, end);
	if (s->nxt >= s->unseen_end) {	/* its ACK was only written before it */
		s->unseen -= s->early;
		s->early = 0;
	}
	s->peak = max64(s->peak, inflight(s));
}

void ndm_sender_fin(struct ndm_sender *s, uint32_t seq32, bool alone)
{
	int64_t seq;

	if (s->failed)
		return;
	if (s->nxt < 0)
		s->una = s->nxt = seq32;
	seq = unwrap(seq32, s->nxt);
	if (s->fin) {
		s->fins_resent += alone;
		return;
	}
	if (seq > s->nxt) {	/* the capture lost what was before it */
		s->gaps += seq > s->beyond;
		s->nxt = seq;
	}
	s->fin = true;
	s->beyond = max64(s->beyond, seq + 1);
}

void ndm_sender_clock_set(struct ndm_sender *s)
{
	size_t i;

	for (i = s->head; i < s->end; i++)
		s->out[i].resent = s->out[i].rate_taken = true;	/* Karn: no RTT, no rate */
	s->stamps = s->stamp_next = 0;
}

/* --- what comes back ---------------------------------------------------------------------- */

static bool later(int64_t a_us, int64_t a_end, int64_t b_us, int64_t b_end)
{
	return a_us != b_us ? a_us > b_us : a_end > b_end;
}

/* Count a packet and keep the newest one's state for the rate sample. */
static void deliver(struct ndm_sender *s, struct ndm_out *p)
{
	s->delivered++;
	if (p->rate_taken)
		return;
	p->rate_taken = true;
	if (s->sample.end < 0 || later(p->sent_us, p->end, s->first_tx_us, s->sample.end)) {
		s->sample.prior_delivered = p->delivered;
		s->sample.prior_us = p->delivered_us;
		s->sample.end = p->end;
		s->sample.send_us = p->sent_us - p->first_tx_us;
		s->sample.app_limited = p->app_limited;
		s->first_tx_us = p->sent_us;
	}
}

static void rack_advance(struct ndm_sender *s, int64_t now_us, const struct ndm_out *p)
{
	int64_t rtt = now_us - p->sent_us;

	if (p->resent && rtt < min_rtt(s))
		return;
	s->rack_rtt_us = rtt;
	s->rack_advanced = true;
	if (later(p->sent_us, p->end, s->rack_sent_us, s->rack_end)) {
		s->rack_sent_us = p->sent_us;
		s->rack_end = p->end;
	}
}

static void unmark(struct ndm_sender *s, struct ndm_out *p)
{
	if (p->lost) {
		p->lost = false;
		s->lost_out--;
	}
	if (p->resent_out) {
		p->resent_out = false;
		s->resent_out--;
	}
}

struct rtt_times {
	int64_t first_sack, last_sack, first_ack, last_ack;
	bool resent_acked;
};

static void take_sack(struct ndm_sender *s, int64_t now_us, int64_t left, int64_t right,
		      int64_t old_top, struct rtt_times *t)
{
	size_t i;

	for (i = find(s, left); i < s->end && s->out[i].end <= right; i++) {
		struct ndm_out *p = &s->out[i];

		if (p->sacked)
			continue;
		deliver(s, p);
		rack_advance(s, now_us, p);
		p->sacked = true;
		s->sacked_out++;
		unmark(s, p);
		if (!p->resent) {
			if (p->end <= old_top)
				s->reordered = true;
			if (t->first_sack < 0 || p->sent_us < t->first_sack)
				t->first_sack = p->sent_us;
			t->last_sack = max64(t->last_sack, p->sent_us);
		}
		s->top_sacked = max64(s->top_sacked, p->end);
	}
}

static void take_cumulative(struct ndm_sender *s, int64_t now_us, int64_t ack, int64_t old_top,
			    struct rtt_times *t)
{
	while (s->head < s->end && s->out[s->head].end <= ack) {
		struct ndm_out *p = &s->out[s->head++];

		if (p->sacked) {
			s->sacked_out--;
			continue;
		}
		deliver(s, p);
		rack_advance(s, now_us, p);
		unmark(s, p);
		if (p->resent) {
			t->resent_acked = true;
			continue;
		}
		t->last_ack = p->sent_us;
		if (t->first_ack < 0)
			t->first_ack = p->sent_us;
		if (p->end <= old_top)
			s->reordered = true;
	}
}

/* The SACK blocks in order of their numbers: the kernel walks its queue once. */
static int sorted_blocks(const struct ndm_sender *s, const struct ndm_options *options,
			 int64_t blocks[][2])
{
	int n, k;

	for (n = 0; n < options->n_sack; n++) {
		int64_t left = unwrap(options->sack[n][0], s->una);

		for (k = n; k && blocks[k - 1][0] > left; k--)
			memcpy(blocks[k], blocks[k - 1], sizeof(*blocks));
		blocks[k][0] = left;
		blocks[k][1] = unwrap(options->sack[n][1], s->una);
	}
	return n;
}

/* Remove and mark packets; the RTT for srtt and the one for the congestion control, or -1. */
static void take_ack(struct ndm_sender *s, int64_t now_us, int64_t ack,
		     const struct ndm_options *options, int64_t *rtt, int64_t *ca_rtt)
{
	struct rtt_times t = { -1, -1, -1, -1, false };
	int64_t old_top = s->top_sacked, blocks[NDM_MAX_SACK][2];
	size_t at;
	int k, n;

	n = sorted_blocks(s, options, blocks);
	for (k = 0; k < n; k++)
		if (blocks[k][1] > ack && blocks[k][1] <= s->nxt && blocks[k][0] < blocks[k][1])
			take_sack(s, now_us, blocks[k][0], blocks[k][1], old_top, &t);
	take_cumulative(s, now_us, ack, old_top, &t);
	*rtt = *ca_rtt = -1;
	if (t.first_ack >= 0 && !t.resent_acked) {
		*rtt = now_us - t.first_ack;
		*ca_rtt = now_us - t.last_ack;
	}
	if (t.first_sack >= 0) {
		*ca_rtt = now_us - t.last_sack;
		if (*rtt < 0)
			*rtt = now_us - t.first_sack;
	}
	if (*rtt >= 0 || ack <= s->una || !options->stamps)
		return;
	for (at = 0; at < s->stamps; at++)
		if (s->stamp[at] == options->ts_echo) {
			*rtt = *ca_rtt = now_us - s->stamp_us[at];
			return;
		}
}

/*
 * Mark what a later packet overtook. The later packet may be a repetition: new
 * data above the highest SACKed byte that left before it is lost too.
 */
static void rack(struct ndm_sender *s, int64_t now_us)
{
	bool advanced = s->rack_advanced;
	bool hurry = s->state >= RECOVERY || s->sacked_out >= DUPTHRESH;
	int64_t reo_us = 0;
	size_t i;

	s->rack_advanced = false;
	if (!advanced || (s->top_sacked <= s->una && s->state == OPEN))
		return;
	if (s->reordered || !hurry)
		reo_us = min64((min_rtt(s) >> 2) * s->reo_steps, srtt_us(s));
	for (i = s->head; i < s->end; i++) {
		struct ndm_out *p = &s->out[i];

		if (p->sacked || (p->lost && !p->resent_out))
			continue;
		if (!p->resent && p->sent_us > s->rack_sent_us)
			break;
		if (!later(s->rack_sent_us, s->rack_end, p->sent_us, p->end))
			continue;
		if (s->rack_rtt_us + reo_us - (now_us - p->sent_us) > 0)
			continue;
		mark_lost(s, p);
	}
}

/* RFC 2883: the first block repeats what was acknowledged, or lies in the second. */
static bool is_dsack(const struct ndm_sender *s, int64_t ack, const struct ndm_options *o)
{
	int64_t left, right;

	if (!o->n_sack)
		return false;
	left = unwrap(o->sack[0][0], s->una);
	right = unwrap(o->sack[0][1], s->una);
	if (right <= ack)
		return true;
	return o->n_sack > 1 && unwrap(o->sack[1][0], s->una) <= left &&
	       right <= unwrap(o->sack[1][1], s->una);
}

/* RFC 8985: one step more per round with a D-SACK, kept for 16 recoveries. */
static void adapt_reo_window(struct ndm_sender *s)
{
	if (s->sample.end < 0)
		return;
	if (s->dsack_seen && s->sample.prior_delivered >= s->reo_mark) {
		s->reo_steps = min64(s->reo_steps + 1, 255);
		s->reo_mark = s->delivered;
		s->reo_persist = REO_PERSIST;
	} else if (!s->reo_persist) {
		s->reo_steps = 1;
	}
	s->dsack_seen = false;
}

static void advance_state(struct ndm_sender *s, uint32_t lost)
{
	if ((s->state == RECOVERY || s->state == LOSS) && s->una >= s->high_seq) {
		s->state = OPEN;
		s->reo_persist = max64(s->reo_persist - 1, 0);
	}
	if (s->state != OPEN && s->state != DISORDER)
		return;
	if (lost || s->lost_out) {
		s->state = RECOVERY;
		s->high_seq = s->nxt;
		s->ssthresh = LEFT_SLOW_START;
	} else {
		s->state = s->sacked_out ? DISORDER : OPEN;
	}
}

static uint32_t clamp32(int64_t value)
{
	return value < 0 ? 0 : value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Without loss, slow start is over once three rounds brought less than a quarter more. */
static void leave_slow_start(struct ndm_sender *s)
{
	if (s->ssthresh != INITIAL_SSTHRESH)
		return;
	if (s->peak * 4 >= s->full_peak * 5) {
		s->full_peak = s->peak;
		s->flat_rounds = 0;
	} else if (++s->flat_rounds == 3) {
		s->ssthresh = LEFT_SLOW_START;
	}
}

static void record(struct ndm_sender *s, int64_t now_us, int64_t ca_rtt, int64_t newly,
		   struct ndm_ack_row *row)
{
	int64_t interval = -1, out = inflight(s);

	if (newly)
		s->delivered_us = now_us;
	if (s->sample.end >= 0) {
		interval = max64(s->sample.send_us, now_us - s->sample.prior_us);
		if (interval < min_rtt(s))
			interval = -1;
	}
	if (s->delivered > s->app_limited)
		s->app_limited = 0;
	row->ack.now_us = (uint64_t)now_us;
	row->ack.rtt_us = (int32_t)min64(ca_rtt >= 0 ? ca_rtt : -1, INT32_MAX);
	row->ack.acked = clamp32(newly);
	row->ack.inflight = clamp32(out);
	row->ack.cwnd = clamp32(cwnd(s));
	row->ack.ssthresh = clamp32(s->ssthresh);
	row->ack.srtt_us = clamp32(srtt_us(s));
	row->ack.rttvar_us = clamp32(rttvar_us(s));
	row->ack.min_rtt_us = clamp32(min_rtt(s));
	row->ack.delivered = (uint32_t)s->delivered;
	row->ack.prior_delivered = (uint32_t)s->sample.prior_delivered;
	row->ack.interval_us = (int32_t)max64(min64(interval, INT32_MAX), -1);
	row->ack.app_limited = s->sample.app_limited;
	row->ack.ca_state = (uint32_t)s->state;
	row->rwnd_limited = s->wscale >= 0 && s->una + s->window - s->nxt < s->mss;
	s->rows++;
	if (s->sample.end >= 0 && s->sample.prior_delivered >= s->peak_mark) {
		leave_slow_start(s);
		s->last_peak = s->peak;
		s->peak = out;
		s->peak_mark = s->delivered;
	}
}

void ndm_handshake_row(int64_t now_us, int64_t rtt_us, struct ndm_ack_row *row)
{
	memset(row, 0, sizeof(*row));
	row->ack.now_us = (uint64_t)now_us;
	row->ack.rtt_us = (int32_t)min64(rtt_us, INT32_MAX);
	row->ack.cwnd = 1;
	row->ack.ssthresh = INITIAL_SSTHRESH;
	row->ack.srtt_us = row->ack.min_rtt_us = clamp32(rtt_us);
	row->ack.rttvar_us = clamp32(rtt_us / 2); /* RFC 6298 (2.2) */
	row->ack.interval_us = -1;
	row->ack.ca_state = OPEN;
}

bool ndm_sender_acked(struct ndm_sender *s, int64_t now_us, uint32_t ack32, uint32_t window,
		      const struct ndm_options *options, struct ndm_ack_row *row)
{
	int64_t ack, before, newly, rtt, ca_rtt;

	if (s->failed || s->nxt < 0)
		return false;
	ack = unwrap(ack32, s->una);
	s->zero_windows += !window;
	s->closed = !window;
	if (ack > s->nxt && ack <= s->beyond) {
		if (!packets_out(s))
			s->nxt = ack;
		ack = s->nxt;
	}
	if (ack > s->nxt || !packets_out(s)) {
		if (ack > s->nxt && ack > s->unseen_end) {
			s->unseen++;
			s->early++;
			s->unseen_end = ack;
		}
		s->window = (int64_t)window << (s->wscale > 0 ? s->wscale : 0);
		s->una = max64(s->una, min64(ack, s->nxt));
		return false;
	}
	before = s->delivered;
	memset(&s->sample, 0, sizeof(s->sample));
	s->sample.end = -1;
	take_ack(s, now_us, ack, options, &rtt, &ca_rtt);
	newly = s->delivered - before;
	if (newly || ack > s->una)
		s->last_progress_us = now_us;
	s->una = max64(s->una, ack);
	s->window = (int64_t)window << (s->wscale > 0 ? s->wscale : 0);
	if (rtt >= 0) {
		take_min_rtt(s, now_us, max64(ca_rtt, 1));
		take_srtt(s, max64(rtt, 1));
	}
	rack(s, now_us);
	row->cause = s->marked_cause;
	row->ack.lost = s->marked;
	s->marked = 0;
	s->marked_cause = 0;
	advance_state(s, row->ack.lost);
	if (is_dsack(s, ack, options))
		s->dsack_seen = true;
	adapt_reo_window(s);
	record(s, now_us, ca_rtt, newly, row);
	return !s->failed;
}
