/* SPDX-License-Identifier: GPL-2.0-only */
/* What leaves the sender. */
#include "sender_state.h"

#define MIN_RTO_US 200000	/* TCP_RTO_MIN */
#define MAX_STAMPS 4096
#define FIRST_ROOM 16
#define AHEAD_US 100		/* two interfaces of one host stamp packets within this */

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
	int64_t began_us;
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
	if (!s->stamps) {
		s->tick = value;
		s->tick_us = s->tick_sent_us = now_us;
	}
	began_us = now_us - ndm_sender_ticks(s, value) * MS_US;
	if (began_us < s->tick_us)
		s->tick_us = began_us;
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

/* A retransmission timed out: all is lost but what left less than an RTT ago. */
static void enter_loss(struct ndm_sender *s, int64_t now_us)
{
	size_t i;

	s->rtos++;
	s->state = LOSS;
	s->high_seq = s->nxt;
	s->probe_end = -1;
	ndm_peaks_timeout(&s->peaks);
	for (i = s->head; i < s->end; i++) {
		struct ndm_out *p = &s->out[i];

		if (p->sacked || (p->lost && !p->resent_out))
			continue;
		if (i != s->head && s->rack_rtt_us > now_us - p->sent_us)
			continue;
		ndm_sender_mark_lost(s, p);
	}
}

/* Bytes that are seen for the first time when they are retransmitted: lost before the capture. */
static void count_filled(struct ndm_sender *s, int64_t now_us, int64_t seq, int64_t end, size_t next)
{
	if (seq < s->una || next == s->end || s->out[next].seq <= seq)
		return;
	/* Overtaken packets are not as late. */
	if ((now_us - s->out[next].sent_us) * 2 < srtt_us(s))
		return;
	s->filled++;
	s->filled_bytes += min64(end, s->out[next].seq) - seq;
}

static void sent_again(struct ndm_sender *s, int64_t now_us, int64_t seq, int64_t end,
		       uint16_t ip_id)
{
	size_t i = find(s, seq);

	count_filled(s, now_us, seq, end, i);
	ndm_sender_note_edge(s, i, seq);
	ndm_sender_note_edge(s, find(s, end), end);
	s->same_id += ip_id && i < s->end && s->out[i].ip_id == ip_id;
	s->retransmitted += (end - seq + s->mss - 1) / s->mss;
	if (i < s->end && i == s->head && is_rto(s, now_us, &s->out[i]))
		enter_loss(s, now_us);
	for (; i < s->end && s->out[i].seq < end; i++) {
		struct ndm_out *p = &s->out[i];
		bool tail = p->end == s->nxt && !p->lost && s->state < RECOVERY;

		/* By a timer, or its last repetition would not have been the last. */
		if (!p->sacked && !tail && (!p->lost || p->resent_out))
			ndm_sender_mark_lost(s, p);
		if (tail)
			s->probe_end = p->end;
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

/*
 * Is it seen for the first time, in a hole that later packets left a moment ago? Then these
 * overtook it before the capture. A retransmission of what the capture lost is not as soon.
 */
static bool was_overtaken(const struct ndm_sender *s, int64_t now_us, int64_t seq, int64_t end)
{
	size_t next = find(s, seq);
	const struct ndm_out *later;

	if (next == s->end || seq < (next > s->head ? s->out[next - 1].end : s->una))
		return false;
	later = &s->out[next];
	return end <= later->seq && !later->resent &&
	       (now_us - later->sent_us) * 2 < srtt_us(s);
}

static void fill_hole(struct ndm_sender *s, int64_t seq, int64_t end)
{
	size_t next = find(s, seq);
	int64_t before = next > s->head ? s->out[next - 1].end : s->una;
	int64_t after = s->out[next].seq;

	s->gaps = max64(s->gaps - (before == seq && end == after) + (before < seq && end < after), 0);
	s->gap_bytes -= end - seq;
}

/* The segments of a packet that left for the first time. */
static void put(struct ndm_sender *s, int64_t now_us, int64_t seq, int64_t end, uint16_t ip_id)
{
	int64_t first = seq;
	uint16_t place = 0;

	while (seq < end) {
		struct ndm_out *p;
		size_t at;

		if (!room_for_one(s)) {
			s->failed = true;
			return;
		}
		at = seq < s->nxt ? find(s, seq) : s->end;
		p = &s->out[at];
		memmove(p + 1, p, (s->end - at) * sizeof(*p));
		memset(p, 0, sizeof(*p));
		p->seq = seq;
		p->end = min64(seq + s->mss, end);
		p->ip_id = seq == first ? ip_id : 0;
		p->place = place++;
		stamp(s, p, now_us);
		s->end++;
		seq = p->end;
	}
}

/* The data of early ACKs came. */
static void forgive_early(struct ndm_sender *s, int64_t now_us)
{
	if (now_us - s->early_us > AHEAD_US)
		s->ahead += s->early;
	s->unseen -= s->early;
	s->early = 0;
}

/* A data packet (or TSO super-packet) left the sender. */
void ndm_sender_sent(struct ndm_sender *s, int64_t now_us, uint32_t seq32, uint32_t bytes,
		     uint16_t ip_id, const struct ndm_options *options)
{
	int64_t seq, end;

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
	if (seq < s->nxt && was_overtaken(s, now_us, seq, end)) {
		fill_hole(s, seq, end);
	} else if (seq < s->nxt) {
		sent_again(s, now_us, seq, min64(end, s->nxt), ip_id);
		seq = s->nxt;
	} else if (seq > s->nxt && seq > s->beyond) {
		s->gaps++;
		s->gap_bytes += seq - s->nxt;
		s->early = 0;
	}
	if (!packets_out(s) && s->rows && end > seq)
		s->app_limited = s->delivered + 1;
	put(s, now_us, seq, end, ip_id);
	s->nxt = max64(s->nxt, end);
	if (s->early && s->nxt >= s->unseen_end)
		forgive_early(s, now_us);
	ndm_peaks_sent(&s->peaks, inflight(s));
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
	if (seq > s->nxt) {	/* the capture lost the segments before it */
		s->gaps += seq > s->beyond;
		s->nxt = seq;
	}
	s->fin = true;
	s->beyond = max64(s->beyond, seq + 1);
	ndm_sender_release(s);
}

void ndm_sender_clock_set(struct ndm_sender *s)
{
	size_t i;

	for (i = s->head; i < s->end; i++)
		s->out[i].resent = s->out[i].rate_taken = true;	/* Karn: no RTT, no rate */
	s->stamps = s->stamp_next = 0;
}
