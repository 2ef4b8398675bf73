/* SPDX-License-Identifier: GPL-2.0-only */
#include "capture_state.h"

#define INITIAL_WINDOW 10	/* packets, RFC 6928 */
#define BACK_NS 1000000000LL
#define LEAST_STEP_NS 10000LL	/* less changes no RTT or rate that matters */
#define FEW_OLDER 2		/* a clock is set now and then; records are written late all the time */
#define MAX_HOLES 20		/* one in 20 data packets */
#define MAX_AHEAD 20		/* one in 20 ACKs */

struct ndm_capture *ndm_capture_new(uint64_t seed, int keep_rows, int64_t min_segments,
				    int64_t min_rows)
{
	struct ndm_capture *c = malloc(sizeof(*c));

	if (!c)
		return NULL;
	memset(c, 0, offsetof(struct ndm_capture, buffer));
	c->seed = seed;
	c->keep_rows = keep_rows;
	c->min_segments = min_segments;
	c->min_rows = min_rows;
	c->drops.n = -1;
	c->budget = NDM_MAX_HELD;
	c->slots = 1024;
	c->slot = calloc(c->slots, sizeof(*c->slot));
	if (!c->slot) {
		free(c);
		return NULL;
	}
	return c;
}

void ndm_capture_drops(struct ndm_capture *c, int64_t n, const uint32_t *seq,
		       const int64_t *at_us, const uint8_t *cause)
{
	c->drops = (struct ndm_drops){ n, seq, at_us, cause };
}

void ndm_capture_free(struct ndm_capture *c)
{
	size_t i;

	for (i = 0; i < c->flows; i++)
		ndm_flow_free(&c->flow[i]);
	free(c->flow);
	free(c->slot);
	free(c->tag);
	ndm_file_free(&c->file);
	ndm_window_free(&c->window);
	free(c);
}

static void seed_rtt(struct flow *f)
{
	if (f->gaps_known)
		ndm_sender_seed_rtt(f->sender, f->first_ns / 1000, ndm_flow_handshake_rtt_us(f));
}

static void rewind_file(struct ndm_capture *c)
{
	memset(c->slot, 0, c->slots * sizeof(*c->slot));
	memset(&c->counters, 0, sizeof(c->counters));
	ndm_file_free(&c->file);
	c->met = c->last = c->filled = c->window.n = 0;
	c->newest_ns = c->before_ns = c->most_back_ns = c->seen_ns = c->shift_ns = 0;
	c->older = c->file_right = c->times_right = c->far_steps = 0;
}

int ndm_capture_order(const struct ndm_capture *c)
{
	if (!c->older)
		return NDM_ORDER_FILE;
	if (c->file_right > c->times_right)
		return NDM_ORDER_CLOCK;
	if (!c->times_right && c->older <= FEW_OLDER && c->most_back_ns <= BACK_NS)
		return NDM_ORDER_CLOCK;
	return NDM_ORDER_SORT;
}

void ndm_capture_again(struct ndm_capture *c, int order)
{
	while (c->flows)
		ndm_flow_free(&c->flow[--c->flows]);
	rewind_file(c);
	c->order = order;
}

static void begin_replay(struct ndm_capture *c, struct flow *f)
{
	f->sender = malloc(sizeof(*f->sender));
	f->rounds = calloc(1, sizeof(*f->rounds));
	if (!f->sender || !f->rounds) {
		free(f->sender);
		f->sender = NULL;
		f->status = NDM_FLOW_HUGE;
		return;
	}
	ndm_sender_init(f->sender, f->mss, ndm_flow_window_scale(f), &c->drops, &c->budget);
	seed_rtt(f);
	f->playing = true;
}

static void begin_pass(struct ndm_capture *c)
{
	size_t i;

	for (i = 0; i < c->flows; i++) {
		c->flow[i].steps = 0;
		memset(&c->flow[i].live, 0, sizeof(c->flow[i].live));
	}
	rewind_file(c);
}

void ndm_capture_second_pass(struct ndm_capture *c, int64_t shard, int64_t shards)
{
	bool known = ndm_flow_find_copies(c);
	size_t i;

	for (i = 0; i < c->flows; i++) {
		struct flow *f = &c->flow[i];

		f->status = (int64_t)i % shards == shard ? ndm_flow_plan(c, f) : NDM_FLOW_OTHER_SHARD;
		ndm_sizes_free(&f->sizes[0]);
		ndm_sizes_free(&f->sizes[1]);
		if (!known && f->status == NDM_FLOW_REPLAYED)
			f->status = NDM_FLOW_HUGE;
		if (f->status == NDM_FLOW_REPLAYED)
			begin_replay(c, f);
	}
	begin_pass(c);
	c->replaying = true;
}

/*
 * The path's MTU may be smaller than what the handshake allows, and what is captured above
 * segmentation offload does not show it: packets were cut into segments that were none.
 */
bool ndm_capture_third_pass(struct ndm_capture *c)
{
	bool any = false;
	size_t i;

	for (i = 0; i < c->flows; i++) {
		struct flow *f = &c->flow[i];
		int64_t mss = f->playing ? ndm_sender_smaller_mss(f->sender) : 0;

		f->playing = false;
		if (!mss)
			continue;
		c->budget += (int64_t)f->sender->room;
		ndm_flow_forget_replay(f);
		f->mss = mss;
		f->control_resent = 0;
		begin_replay(c, f);
		any = true;
	}
	if (any)
		begin_pass(c);
	return any;
}

/* --- the second pass ---------------------------------------------------------------------- */

static void keep(const struct ndm_capture *c, struct flow *f, const struct ndm_ack_row *row)
{
	struct ndm_ack_row kept = *row;

	kept.ack.now_us -= (uint64_t)f->first_us;
	if (!c->keep_rows)
		ndm_rounds_take(f->rounds, &kept.ack, kept.cause, kept.rwnd_limited);
	else if (grow((void **)&f->row, f->rows, &f->row_room, sizeof(*f->row), 64))
		f->row[f->rows++] = kept;
	else
		f->sender->failed = true;
}

/* The end of the handshake, before the first ACK came. */
static void keep_handshake(const struct ndm_capture *c, struct flow *f, int64_t first_ack_us)
{
	int64_t end_ns = f->synack_ns + (ndm_flow_opened_by_sender(f) ? 0 : f->gap_ns[1]);
	struct ndm_ack_row row;

	f->first_us = min64(end_ns / 1000, first_ack_us);
	ndm_handshake_row(f->first_us, ndm_flow_handshake_rtt_us(f), &row);
	keep(c, f, &row);
	f->sender->rows++;
}

static void replay(struct ndm_capture *c, struct flow *f, const struct ndm_segment *s, bool up)
{
	int64_t now_us = s->time_ns / 1000;
	struct ndm_options options;
	struct ndm_ack_row row;

	if (f->steps != c->counters.clock_steps)
		ndm_sender_clock_set(f->sender);
	f->steps = c->counters.clock_steps;
	if (s->flags & TCP_SYN) {
		f->control_resent += up == (bool)f->forward && f->live.isn_known[up] &&
				     f->live.isn[up] == s->seq;
		return;
	}
	if (up == (bool)f->forward) {
		if (s->payload) {
			ndm_options_parse(s->options, s->option_bytes, &options);
			ndm_sender_sent(f->sender, now_us, s->seq, s->payload, s->ip_id, &options);
		}
		if (s->flags & TCP_FIN)
			ndm_sender_fin(f->sender, s->seq + s->payload, !s->payload);
		return;
	}
	if (!(s->flags & TCP_ACK))
		return;
	ndm_options_parse(s->options, s->option_bytes, &options);
	if (!ndm_sender_acked(f->sender, now_us, s->ack, s->window, &options, &row))
		return;
	/*
	 * Like the kernel module: with the handshake, or behind a request that came alone and
	 * did not fill the window.
	 */
	if (f->sender->rows == 1) {
		f->first_us = now_us;
		if (f->gaps_known && (row.ack.inflight || row.ack.acked >= INITIAL_WINDOW))
			keep_handshake(c, f, now_us);
	}
	keep(c, f, &row);
}

/* Numbers that distinguish a connection from the next one over the same ports. */
static void note(struct flow *f, const struct ndm_segment *s, bool up)
{
	if (s->flags & TCP_SYN) {
		f->live.isn[up] = s->seq;
		f->live.isn_known[up] = true;
	}
	f->live.data |= s->payload > 0;
}

static void follow_clock(struct ndm_capture *c, struct ndm_segment *s)
{
	/* A clock may go back by centuries, and forward again. */
	int64_t now_ns = min64(s->time_ns, INT64_MAX - c->shift_ns) + c->shift_ns;
	int64_t back_ns = c->newest_ns - now_ns;

	if (back_ns > LEAST_STEP_NS) {
		c->shift_ns += back_ns;
		c->counters.clock_steps++;
		c->far_steps += back_ns > BACK_NS;
	}
	s->time_ns = max64(now_ns, c->newest_ns);
}

static int take_segment(struct ndm_capture *c, struct ndm_segment *s)
{
	struct flow *f;
	struct key key;
	bool up;

	if (c->order == NDM_ORDER_CLOCK)
		follow_clock(c, s);
	c->older += s->time_ns < c->before_ns;
	c->most_back_ns = max64(c->most_back_ns, c->before_ns - s->time_ns);
	c->before_ns = s->time_ns;
	c->newest_ns = max64(c->newest_ns, s->time_ns);
	up = ndm_flow_key(s, &key);
	ndm_flow_join(c, &key);
	f = ndm_flow_find(c, s, &key, up);
	if (!f)
		return NDM_CAPTURE_FLOWS;
	if (ndm_flow_is_copy(f, s, up)) {
		c->counters.duplicates++;
		f->duplicates += !c->replaying;
		return NDM_FILE_OK;
	}
	if (f->playing)
		replay(c, f, s, up);
	note(f, s, up);
	if (c->replaying)
		return NDM_FILE_OK;
	ndm_flow_watch_order(c, f, s, up);
	f->unordered |= c->order == NDM_ORDER_SORT && s->time_ns < c->newest_ns;
	return ndm_flow_learn(c, f, s, up) ? NDM_FILE_OK : NDM_FILE_MEMORY;
}

static int take_oldest(struct ndm_capture *c)
{
	struct ndm_segment s;

	ndm_window_get(&c->window, &s);
	return take_segment(c, &s);
}

static bool blocks_are_cut(const struct ndm_segment *s)
{
	struct ndm_options options;

	ndm_options_parse(s->options, s->option_bytes, &options);
	return !(s->flags & TCP_SYN) && !options.n_sack;
}

int ndm_capture_packet(struct ndm_capture *c, int64_t time_ns, uint32_t link,
		       const uint8_t *data, uint32_t caught, uint32_t wire)
{
	struct ndm_segment s;

	c->counters.packets++;
	switch (ndm_packet_parse(data, caught, wire, link, &s)) {
	case NDM_PACKET_LINK:
		if (!c->counters.other_links++)
			c->counters.bad_link_type = link;
		return NDM_FILE_OK;
	case NDM_PACKET_NOT_TCP:
		c->counters.not_tcp++;
		return NDM_FILE_OK;
	case NDM_PACKET_CUT:
		c->counters.cut_headers++;
		return NDM_FILE_OK;
	case NDM_PACKET_FRAGMENT:
		c->counters.fragments++;
		return NDM_FILE_OK;
	case NDM_PACKET_TCP:
		break;
	}
	c->counters.tunnelled += s.tunnels > 0;
	c->counters.cut_options += s.options_cut && blocks_are_cut(&s);
	s.time_ns = time_ns;
	if (c->order != NDM_ORDER_SORT)
		return take_segment(c, &s);
	c->counters.moved += time_ns < c->seen_ns;
	c->seen_ns = max64(c->seen_ns, time_ns);
	if (!ndm_window_put(&c->window, &s))
		return NDM_FILE_MEMORY;
	return c->window.n > NDM_WINDOW ? take_oldest(c) : NDM_FILE_OK;
}

int ndm_capture_flush(struct ndm_capture *c)
{
	int status = NDM_FILE_OK;

	while (c->window.n && !status)
		status = take_oldest(c);
	return status;
}

uint8_t *ndm_capture_room(struct ndm_capture *c, size_t *n)
{
	*n = NDM_BUFFER_BYTES - c->filled;
	return c->buffer + c->filled;
}

int ndm_capture_take(struct ndm_capture *c, size_t n)
{
	struct ndm_frame frame;
	size_t at = 0, used;
	int status;

	c->filled += n;
	do {
		status = ndm_file_next(&c->file, c->buffer + at, c->filled - at, &used, &frame);
		at += used;
		if (!status && frame.data && frame.time_ns < 0)
			c->counters.bad_times++;
		else if (!status && frame.data)
			status = ndm_capture_packet(c, frame.time_ns, frame.link, frame.data,
						    frame.caught, frame.wire);
	} while (!status && (used || frame.data));
	memmove(c->buffer, c->buffer + at, c->filled - at);
	c->filled -= at;
	return status;
}

uint64_t ndm_capture_left(const struct ndm_capture *c)
{
	return c->filled + c->file.skip;
}

uint64_t ndm_capture_offset(const struct ndm_capture *c)
{
	return c->file.offset;
}

/* --- the end ------------------------------------------------------------------------------ */

void ndm_capture_end(struct ndm_capture *c)
{
	size_t i;

	for (i = 0; i < c->flows; i++) {
		struct flow *f = &c->flow[i];
		const struct ndm_sender *s = f->sender;

		if (f->status != NDM_FLOW_REPLAYED)
			continue;
		if (s->failed || f->rounds->failed)
			f->status = NDM_FLOW_HUGE;
		else if (s->sent_segments < c->min_segments)
			f->status = NDM_FLOW_SHORT;
		else if (s->ahead * MAX_AHEAD > f->acks[!f->forward])
			f->status = NDM_FLOW_AHEAD;
		else if (s->rows < c->min_rows)
			f->status = NDM_FLOW_SHORT;
		else if (ndm_flow_captured_twice(f))
			f->status = NDM_FLOW_MERGED;
		else if (ndm_flow_near_receiver(f))
			f->status = NDM_FLOW_RECEIVER;
		else if (ndm_flow_midway(f))
			f->status = NDM_FLOW_MIDWAY;
		else if (ndm_flow_behind_queue(f))
			f->status = NDM_FLOW_BEHIND;
		else if ((s->gaps + s->unseen) * MAX_HOLES > f->data[f->forward])
			f->status = NDM_FLOW_HOLES;
		ndm_rounds_end(f->rounds);
	}
}

const struct ndm_counters *ndm_capture_counters(const struct ndm_capture *c)
{
	return &c->counters;
}

int64_t ndm_capture_flows(const struct ndm_capture *c)
{
	return (int64_t)c->flows;
}

void ndm_capture_flow(const struct ndm_capture *c, int64_t number, struct ndm_flow_info *info)
{
	const struct flow *f = &c->flow[number];
	size_t size = f->key.family == 4 ? 4 : 16;
	int source = !f->forward;

	memset(info, 0, sizeof(*info));
	info->status = f->status;
	info->family = f->key.family;
	info->forward = f->forward;
	info->sender_port = be16(f->key.ends[source] + size);
	info->receiver_port = be16(f->key.ends[!source] + size);
	info->handshake = f->syn_seen[0] && f->syn_seen[1];
	info->window_scale = ndm_flow_window_scale(f);
	info->sack = ndm_flow_sack(f);
	info->mss = f->mss;
	info->header_bytes = ndm_flow_header_bytes(f);
	info->packets = f->packets;
	info->duplicates = f->duplicates;
	info->first_us = f->first_us;
	memcpy(info->host[0], f->key.ends[0], size);
	memcpy(info->host[1], f->key.ends[1], size);
	if (!f->sender)
		return;
	info->segments = f->sender->sent_segments;
	info->retransmitted = f->sender->retransmitted;
	info->rtos = f->sender->rtos;
	info->gaps = f->sender->gaps;
	info->unseen = f->sender->unseen;
	info->zero_windows = f->sender->zero_windows;
	info->keepalives = f->sender->keepalives;
	info->dsacks = f->sender->dsacks;
	info->resent_control = f->control_resent + f->sender->fins_resent;
	info->rows = f->sender->rows;
	info->rounds = (int64_t)f->rounds->n;
	info->row = f->row;
	info->round = f->rounds->row;
}
