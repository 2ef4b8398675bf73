/* SPDX-License-Identifier: GPL-2.0-only */
/* What comes back to the sender: the ACKs. */
#include "sender_state.h"

#define DUPTHRESH 3
#define REO_PERSIST 16		/* recoveries, TCP_RACK_RECOVERY_THRESH */
/* ACKs in a row: each makes room; a window that grows may lag behind slow start for some of them. */
#define HELD_ACKS 16
#define MAX_WINDOW (1LL << 30)	/* bytes, RFC 7323 (2.3) */

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
	int64_t before = s->sacked_out;
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
	if (s->sacked_out > before) {
		ndm_sender_note_edge(s, find(s, left), left);
		ndm_sender_note_edge(s, find(s, right), right);
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
	if (ack > s->una)
		ndm_sender_note_edge(s, s->head + (packets_out(s) && s->out[s->head].seq < ack),
				     ack);
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

/* The RTTs that an ACK shows, us; -1: none. */
struct rtts {
	int64_t smoothed;	/* for srtt */
	int64_t sample;		/* for the congestion control */
	int64_t captured;	/* the same, not rounded */
	bool stamped;		/* only a timestamp shows it */
};

/*
 * The kernel takes the RTT of a timestamp in milliseconds, at least one. If it counts in other
 * units, or its clock drifts from the capture's, as captured.
 */
static struct rtts stamped_rtt(const struct ndm_sender *s, int64_t now_us, size_t at)
{
	int64_t captured = now_us - s->stamp_us[at];
	int64_t ticks = (now_us - s->tick_us) / MS_US - ndm_sender_ticks(s, s->stamp[at]);
	int64_t rtt = max64(ticks, 1) * MS_US;

	if (s->tick_sent_us - s->tick_us >= MS_US ||
	    rtt - captured >= MS_US || captured - rtt >= MS_US)
		rtt = captured;
	return (struct rtts){ rtt, rtt, captured, true };
}

/* Remove and mark packets. */
static struct rtts take_ack(struct ndm_sender *s, int64_t now_us, int64_t ack,
			    const struct ndm_options *options)
{
	struct rtts found = { -1, -1, -1, false };
	struct rtt_times t = { -1, -1, -1, -1, false };
	int64_t old_top = s->top_sacked, blocks[NDM_MAX_SACK][2];
	size_t at;
	int k, n;

	n = sorted_blocks(s, options, blocks);
	for (k = 0; k < n; k++)
		if (blocks[k][1] > ack && blocks[k][1] <= s->nxt && blocks[k][0] < blocks[k][1])
			take_sack(s, now_us, blocks[k][0], blocks[k][1], old_top, &t);
	take_cumulative(s, now_us, ack, old_top, &t);
	if (t.first_ack >= 0 && !t.resent_acked) {
		found.smoothed = now_us - t.first_ack;
		found.sample = now_us - t.last_ack;
	}
	if (t.first_sack >= 0) {
		found.sample = now_us - t.last_sack;
		if (found.smoothed < 0)
			found.smoothed = now_us - t.first_sack;
	}
	found.captured = found.sample;
	if (found.smoothed >= 0 || ack <= s->una || !options->stamps)
		return found;
	for (at = 0; at < s->stamps; at++)
		if (s->stamp[at] == options->ts_echo)
			return stamped_rtt(s, now_us, at);
	return found;
}

/*
 * Mark packets that a later packet overtook. The later packet may be a repetition: new
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
		ndm_sender_mark_lost(s, p);
	}
}

/* RFC 2883: the first block begins with acknowledged data, or lies in the second. */
static bool is_dsack(const struct ndm_sender *s, int64_t ack, int64_t left, int64_t right,
		     const struct ndm_options *o)
{
	if (left >= right || right - left > MAX_WINDOW)
		return false;
	if (s->keepalives && left == s->una - 1 && right == s->una)
		return false;	/* the answer to a keep-alive */
	if (left < ack)
		return true;
	return o->n_sack > 1 && unwrap(o->sack[1][0], s->una) <= left &&
	       right <= unwrap(o->sack[1][1], s->una);
}

/*
 * Segments that the receiver reports to have come twice; the kernel counts them as delivered.
 * None if more were reported than sent twice. As tcp_dsack_seen().
 */
static int64_t take_dsack(struct ndm_sender *s, int64_t ack, const struct ndm_options *o)
{
	int64_t left, right, segments;

	if (!o->n_sack)
		return 0;
	left = unwrap(o->sack[0][0], s->una);
	right = unwrap(o->sack[0][1], s->una);
	if (!is_dsack(s, ack, left, right, o))
		return 0;
	s->dsacks++;
	segments = (right - left + s->mss - 1) / s->mss;
	s->repeated += segments;
	if (s->repeated > s->retransmitted + s->fins_resent)
		return 0;
	if (segments == 1 && right == s->probe_end) {
		if (ack >= right)
			s->probe_end = -1;
	} else if (s->reordered) {
		s->dsack_seen = true;
	}
	return segments;
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
		s->probe_end = -1;
		ndm_peaks_recovery(&s->peaks);
	} else {
		s->state = s->sacked_out ? DISORDER : OPEN;
	}
}

static uint32_t clamp32(int64_t value)
{
	return value < 0 ? 0 : value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

/* Has the receiver's window, -1 until an ACK shows it, no room for a segment? */
static bool is_held(const struct ndm_sender *s)
{
	return s->wscale >= 0 && s->window >= 0 && s->una + s->window - s->nxt < s->mss;
}

static void record(struct ndm_sender *s, int64_t now_us, const struct rtts *rtt, int64_t newly,
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
	if (s->delivered >= s->app_limited)
		s->app_limited = 0;
	row->ack.now_us = (uint64_t)now_us;
	row->ack.rtt_us = (int32_t)max64(min64(rtt->sample, INT32_MAX), -1);
	row->rtt_us = (int32_t)max64(min64(rtt->captured, INT32_MAX), -1);
	row->ack.acked = clamp32(newly);
	row->ack.inflight = clamp32(out);
	row->ack.cwnd = clamp32(cwnd(s));
	row->ack.ssthresh = clamp32(s->peaks.ssthresh);
	row->ack.srtt_us = clamp32(srtt_us(s));
	row->ack.rttvar_us = clamp32(rttvar_us(s));
	row->ack.min_rtt_us = clamp32(min_rtt(s));
	row->ack.delivered = (uint32_t)s->delivered;
	row->ack.prior_delivered = (uint32_t)s->sample.prior_delivered;
	row->ack.interval_us = (int32_t)max64(min64(interval, INT32_MAX), -1);
	row->ack.app_limited = s->sample.app_limited;
	row->ack.ca_state = (uint32_t)s->state;
	row->rwnd_limited = s->held >= HELD_ACKS || is_held(s);
	s->rows++;
	if (s->sample.end >= 0)
		ndm_peaks_sample(&s->peaks, s->sample.prior_delivered, s->delivered, out);
}

void ndm_handshake_row(int64_t now_us, int64_t rtt_us, struct ndm_ack_row *row)
{
	memset(row, 0, sizeof(*row));
	row->ack.now_us = (uint64_t)now_us;
	row->ack.rtt_us = row->rtt_us = (int32_t)min64(rtt_us, INT32_MAX);
	row->ack.cwnd = 1;
	row->ack.ssthresh = INITIAL_SSTHRESH;
	row->ack.srtt_us = row->ack.min_rtt_us = clamp32(rtt_us);
	row->ack.rttvar_us = clamp32(rtt_us / 2); /* RFC 6298 (2.2) */
	row->ack.interval_us = -1;
	row->ack.ca_state = OPEN;
}

/* The SACK blocks of an ACK that a later one overtook: the kernel marks, and counts nothing. */
static void take_late(struct ndm_sender *s, int64_t now_us, int64_t ack,
		      const struct ndm_options *options)
{
	int64_t delivered = s->delivered;

	if (!options->n_sack)
		return;
	take_dsack(s, ack, options);
	memset(&s->sample, 0, sizeof(s->sample));
	s->sample.end = -1;
	take_ack(s, now_us, s->una, options);
	s->delivered = delivered;
	rack(s, now_us);
	advance_state(s, s->marked - s->entered);
	s->entered = s->marked;
}

/* An ACK of data that was not captured, or is captured later. */
static void take_unseen(struct ndm_sender *s, int64_t now_us, int64_t ack)
{
	if (ack <= s->unseen_end)
		return;
	s->unseen++;
	if (!s->early++)
		s->early_us = now_us;
	s->unseen_end = ack;
}

bool ndm_sender_acked(struct ndm_sender *s, int64_t now_us, uint32_t ack32, uint32_t window,
		      const struct ndm_options *options, struct ndm_ack_row *row)
{
	int64_t ack, before, twice, newly;
	struct rtts rtt;

	if (s->failed || s->nxt < 0)
		return false;
	ack = unwrap(ack32, s->una);
	s->zero_windows += !window;
	if (ack < s->una) {
		take_late(s, now_us, ack, options);
		return false;
	}
	s->closed = !window;
	if (ack > s->nxt && ack <= s->beyond) {
		if (!packets_out(s))
			s->nxt = ack;
		ack = s->nxt;
	}
	if (ack > s->nxt || !packets_out(s)) {
		if (ack > s->nxt)
			take_unseen(s, now_us, ack);
		else
			s->delivered += take_dsack(s, ack, options);
		s->window = (int64_t)window << (s->wscale > 0 ? s->wscale : 0);
		s->una = max64(s->una, min64(ack, s->nxt));
		return false;
	}
	before = s->delivered;
	s->held = s->state < RECOVERY && is_held(s) ? s->held + 1 : 0;
	memset(&s->sample, 0, sizeof(s->sample));
	s->sample.end = -1;
	twice = take_dsack(s, ack, options);
	s->delivered += twice;
	if (ack > s->probe_end)
		s->probe_end = -1;
	rtt = take_ack(s, now_us, ack, options);
	newly = s->delivered - before;
	if (newly > twice || ack > s->una)
		s->last_progress_us = now_us;
	s->una = ack;
	s->window = (int64_t)window << (s->wscale > 0 ? s->wscale : 0);
	if (rtt.smoothed >= 0) {
		/* The module's lowest RTT is no rounded one, and at most a millisecond above. */
		ndm_sender_take_min_rtt(s, now_us,
					max64(rtt.sample, 1) + (rtt.stamped ? MS_US : 0));
		ndm_sender_take_srtt(s, max64(rtt.smoothed, 1));
	}
	adapt_reo_window(s);
	rack(s, now_us);
	row->cause = s->marked_cause;
	row->ack.lost = s->marked;
	advance_state(s, s->marked - s->entered);
	s->marked = s->entered = s->marked_cause = 0;
	record(s, now_us, &rtt, newly, row);
	ndm_sender_release(s);
	return !s->failed;
}
