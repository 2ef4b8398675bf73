/* SPDX-License-Identifier: GPL-2.0-only */
/* The first pass over a flow: which way the data goes, the options of the handshake. */
#include "capture_state.h"

#define HEAD_PACKETS 16		/* a handshake is looked for in the first packets */
#define ECHO_PACKETS 1024	/* and echoes of time stamps, without a handshake in all */
#define DEFAULT_MSS 536

/* A retransmitted SYN-ACK: the time stamp shows which of the two the ACK is for. */
static bool answers_earlier(const struct flow *f, const struct ndm_options *options)
{
	return f->earlier_synack_ns >= 0 && options->stamps &&
	       options->ts_echo == f->earlier_synack_stamp && options->ts_echo != f->synack_stamp;
}

static void learn_handshake(struct flow *f, const struct ndm_segment *s, bool up,
			    const struct ndm_options *options)
{
	bool syn = s->flags & TCP_SYN, ack = s->flags & TCP_ACK;

	if (!f->gaps_known) {
		if (syn && !ack) {
			f->syn_ns = s->time_ns;
		} else if (syn && f->syn_ns >= 0) {
			f->earlier_synack_ns = f->synack_ns;
			f->earlier_synack_stamp = f->synack_stamp;
			f->synack_ns = s->time_ns;
			f->synack_stamp = options->ts_value;
		} else if (f->synack_ns >= 0 && ack && f->syn_ns >= 0) {
			if (answers_earlier(f, options))
				f->synack_ns = f->earlier_synack_ns;
			f->gap_ns[0] = max64(f->synack_ns - f->syn_ns, 0);
			f->gap_ns[1] = s->time_ns - f->synack_ns;
			f->gaps_known = true;
		}
	}
	if (syn && !s->options_cut) { /* cut off is not left out */
		int32_t mss = options->mss > 0 ? options->mss : DEFAULT_MSS;

		f->least_mss = f->offers++ && f->least_mss < mss ? f->least_mss : mss;
		f->stamps = options->stamps;
		f->wscale[up] = options->wscale;
		f->sack_permitted[up] = options->sack_permitted;
		f->syn_seen[up] = true;
	}
}

/* How long each end takes to echo a time stamp; short where the capture is close to it. */
static void learn_echo(struct flow *f, const struct ndm_segment *s, bool up,
		       const struct ndm_options *options)
{
	struct echo *mine = &f->echo[up], *theirs = &f->echo[!up];

	if (!options->stamps)
		return;
	if (theirs->waiting && (int32_t)(options->ts_echo - theirs->value) >= 0) {
		int64_t took = s->time_ns - theirs->sent_ns;

		if (options->ts_echo == theirs->value && took >= 0) {
			theirs->n++;
			if (theirs->best_ns < 0 || took < theirs->best_ns)
				theirs->best_ns = took;
		}
		theirs->waiting = false;
	}
	if (mine->any && (int32_t)(options->ts_value - mine->newest) <= 0)
		return;
	mine->any = true;
	mine->newest = options->ts_value;
	if (!mine->waiting) {
		mine->waiting = true;
		mine->value = options->ts_value;
		mine->sent_ns = s->time_ns;
	}
}

bool ndm_flow_learn(const struct ndm_capture *c, struct flow *f, const struct ndm_segment *s, bool up)
{
	struct ndm_options options;

	if (f->packets++ == 0) {
		f->first_ns = s->time_ns;
		f->first_way = up;
	} else if (f->far_steps != c->far_steps) {
		f->backwards = true;
	}
	f->far_steps = c->far_steps;
	if (s->payload) {
		ndm_points_take(&f->points[up], s);
		ndm_least_take(f->least, s);
	}
	if (f->packets <= ECHO_PACKETS || f->offers < 2) {
		ndm_options_parse(s->options, s->option_bytes, &options);
		if (f->packets <= HEAD_PACKETS)
			learn_handshake(f, s, up, &options);
		learn_echo(f, s, up, &options);
	}
	if (s->flags & TCP_ACK) {
		f->last_seq[up] = s->seq;
		f->last_ack[up] = s->ack;
	}
	f->seen[up] = true;
	f->payload[up] += s->payload;
	if (!(s->flags & TCP_SYN)) {
		f->acks[up] += (s->flags & TCP_ACK) != 0;
		f->data[up] += s->payload > 0;
	}
	return f->offers >= 2 || s->payload < NDM_LEAST_SIZE ||
	       ndm_sizes_count(&f->sizes[up], s->payload);
}

/*
 * Records that are older than the one before: is the file's order right and the clock was set
 * back, or are their times right? What a direction's packets carry grows with time.
 */
void ndm_flow_watch_order(struct ndm_capture *c, struct flow *f, const struct ndm_segment *s, bool up)
{
	struct live *l = &f->live;

	if (l->prior_known[up] && s->time_ns < l->prior_ns[up]) {
		int32_t ahead = (int32_t)(s->seq - l->prior_seq[up]);

		if (!ahead)
			ahead = (int32_t)(s->ack - l->prior_ack[up]);
		c->file_right += ahead > 0;
		c->times_right += ahead < 0;
	}
	l->prior_known[up] = true;
	l->prior_ns[up] = s->time_ns;
	l->prior_seq[up] = s->seq;
	l->prior_ack[up] = s->ack;
}
