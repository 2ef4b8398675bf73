/* SPDX-License-Identifier: GPL-2.0-only */
#include "capture.h"
#include "flow_sizes.h"
#include "order.h"
#include "points.h"

#define INITIAL_WINDOW 10	/* packets, RFC 6928 */
#define HEAD_PACKETS 16		/* a handshake is looked for in the first packets */
#define TIMESTAMP_BYTES 12	/* what the option takes from every segment's payload */
#define DEFAULT_MSS 536
#define LEAST_MSS 48		/* sysctl tcp_min_snd_mss */
#define SMALL_PAYLOAD 256	/* not a full segment */
#define BACK_NS 1000000000LL
#define FEW_OLDER 2		/* a clock is set now and then; records are written late all the time */
#define ECHO_NS 2000000LL	/* a sender answers an ACK sooner */
#define RECENT 4		/* packets a capture's copy may lag behind */
#define MAX_HOLES 20		/* one in 20 data packets */
#define MAX_SAME_ID 10		/* one in 10 data packets */
#define LEAST_SAME_ID 8		/* packets: fewer may be chance */
#define MOST_RESENT 90		/* per cent: who sends all of it twice was captured twice */
#define COPY_NS 1000000000LL	/* both begin within this */
#define COPY_PACKETS 50		/* one in 50 may be missing in one of the two */

struct key {
	uint64_t vlan;
	uint8_t ends[2][18];	/* the lower one first */
	uint8_t family;
	uint8_t zero[3];
};

/* What one pass keeps to tell packets of a flow apart. */
struct live {
	uint64_t recent[2][RECENT];	/* fingerprints; 0: none */
	uint32_t isn[2];
	int64_t prior_ns[2];		/* of the packet before in this direction */
	uint32_t prior_seq[2], prior_ack[2];
	uint8_t next_recent[2];
	bool isn_known[2], prior_known[2];
	bool data;
};

/* One half of a round trip between the capture and an end, timed by time stamps. */
struct echo {
	int64_t sent_ns, best_ns;	/* best: -1 none yet */
	uint32_t value, newest;
	bool waiting, any;
};

struct flow {
	struct key key;
	struct live live;
	struct ndm_sizes sizes[2];
	uint64_t payload[2];
	int64_t acks[2], data[2];	/* packets by direction */
	int64_t packets, duplicates;
	int64_t first_ns;
	int64_t syn_ns, synack_ns, earlier_synack_ns;	/* -1: not seen */
	uint32_t synack_stamp, earlier_synack_stamp;
	int64_t gap_ns[2];
	struct echo echo[2];
	struct ndm_points points[2];
	uint64_t least[NDM_LEAST];
	uint64_t steps, far_steps;	/* of the clock, when the packet before came */
	int64_t control_resent;
	int32_t least_mss, offers;
	int32_t wscale[2];		/* by direction; -1: no such option */
	bool syn_seen[2], gaps_known, stamps, first_way, backwards, unordered;
	bool copied;

	int status;
	int forward;
	int64_t mss, first_us;
	struct ndm_sender *sender;
	struct ndm_rounds *rounds;
	struct ndm_ack_row *row;
	size_t rows, row_room;
};

struct ndm_capture {
	uint64_t seed;
	bool keep_rows, replaying;
	int64_t min_segments, min_rows;
	struct ndm_drops drops;
	int64_t budget;
	struct ndm_counters counters;
	struct ndm_capture_file file;
	struct ndm_window window;
	int order;
	int64_t newest_ns, seen_ns, shift_ns;
	uint64_t older, file_right, times_right;	/* packets older than the one before, and why */
	int64_t before_ns, most_back_ns;
	uint64_t far_steps;
	struct flow *flow;
	size_t flows, flow_room;
	size_t met;			/* flows met so far in this pass */
	uint32_t *slot;			/* flow number + 1 by hash of the key */
	size_t slots;
	uint32_t last;			/* flow of the packet before */
	size_t filled;
	uint8_t buffer[NDM_BUFFER_BYTES];
};

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

static void free_flow(struct flow *f)
{
	ndm_sizes_free(&f->sizes[0]);
	ndm_sizes_free(&f->sizes[1]);
	if (f->sender) {
		ndm_sender_free(f->sender);
		free(f->sender);
	}
	if (f->rounds) {
		free(f->rounds->row);
		free(f->rounds);
	}
	free(f->row);
}

void ndm_capture_free(struct ndm_capture *c)
{
	size_t i;

	for (i = 0; i < c->flows; i++)
		free_flow(&c->flow[i]);
	free(c->flow);
	free(c->slot);
	ndm_file_free(&c->file);
	ndm_window_free(&c->window);
	free(c);
}

/* --- which flow --------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Keyed by a random seed, so that no file can aim at one slot. */
static uint64_t hash(uint64_t seed, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t value = seed ^ 0x9E3779B97F4A7C15ULL, word;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&word, p, 8);
		value = mix(value ^ word, seed ^ 0xD6E8FEB86659FD93ULL);
	}
	word = 0;
	memcpy(&word, p, n);
	return mix(value ^ word, 0xA0761D6478BD642FULL);
}

/* True if the packet goes from the lower end to the higher. */
static bool make_key(const struct ndm_segment *s, struct key *key)
{
	bool up = memcmp(s->ends[0], s->ends[1], 18) <= 0;

	memset(key, 0, sizeof(*key));
	key->vlan = s->vlan;
	key->family = s->family;
	memcpy(key->ends[0], s->ends[!up], 18);
	memcpy(key->ends[1], s->ends[up], 18);
	return up;
}

static bool more_slots(struct ndm_capture *c)
{
	size_t slots = c->slots * 2, i;
	uint32_t *slot = calloc(slots, sizeof(*slot));

	if (!slot)
		return false;
	for (i = 0; i < c->slots; i++) {
		uint64_t at;

		if (!c->slot[i])
			continue;
		at = hash(c->seed, &c->flow[c->slot[i] - 1].key, sizeof(struct key));
		while (slot[at & (slots - 1)])
			at++;
		slot[at & (slots - 1)] = c->slot[i];
	}
	free(c->slot);
	c->slot = slot;
	c->slots = slots;
	return true;
}

/* The next flow of this pass: a new one in the first, the one found then in the second. */
static struct flow *meet(struct ndm_capture *c, const struct key *key, uint32_t *slot)
{
	struct flow *f;

	if (!c->replaying) {
		if (c->flows == NDM_MAX_FLOWS ||
		    !grow((void **)&c->flow, c->flows, &c->flow_room, sizeof(*c->flow), 16))
			return NULL;
		f = &c->flow[c->flows++];
		memset(f, 0, sizeof(*f));
		f->key = *key;
		f->first_ns = -1;
		f->syn_ns = f->synack_ns = f->earlier_synack_ns = -1;
		f->echo[0].best_ns = f->echo[1].best_ns = -1;
		f->wscale[0] = f->wscale[1] = -1;
	} else if (c->met == c->flows) {
		return NULL;	/* the file changed between the passes */
	}
	*slot = (uint32_t)++c->met;
	return &c->flow[c->met - 1];
}

/* A SYN with another number than the first one's, after data: the ports were used again. */
static bool is_new_connection(const struct flow *f, const struct ndm_segment *s, bool up)
{
	return (s->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN && f->live.data &&
	       !(f->live.isn_known[up] && f->live.isn[up] == s->seq);
}

static struct flow *find_flow(struct ndm_capture *c, const struct ndm_segment *s,
			      const struct key *key, bool up)
{
	struct flow *f;
	uint64_t at;

	if (c->met && !memcmp(&c->flow[c->last].key, key, sizeof(*key))) {
		f = &c->flow[c->last];
		if (!is_new_connection(f, s, up))
			return f;
	}
	if (c->met * 2 >= c->slots && !more_slots(c))
		return NULL;
	at = hash(c->seed, key, sizeof(*key)) & (c->slots - 1);
	while (c->slot[at]) {
		f = &c->flow[c->slot[at] - 1];
		if (!memcmp(&f->key, key, sizeof(*key)))
			break;
		at = (at + 1) & (c->slots - 1);
	}
	if (!c->slot[at] || is_new_connection(&c->flow[c->slot[at] - 1], s, up)) {
		f = meet(c, key, &c->slot[at]);
		if (!f)
			return NULL;
	}
	c->last = c->slot[at] - 1;
	return &c->flow[c->last];
}

/*
 * The capture shows a packet twice (two interfaces, a mirror port): same IP id and same header.
 * A sender that repeats a segment gives it a new id. Without ids (IPv6), a copy is data with
 * the same header at the same nanosecond.
 */
static bool is_copy(struct flow *f, const struct ndm_segment *s, bool up)
{
	uint64_t print;
	int i;

	if (!s->ip_id && !s->payload)
		return false;
	print = (uint64_t)s->ip_id << 48 | (uint64_t)s->checksum << 32 | (s->seq ^ s->ack);
	print = mix(print, 0x9E3779B97F4A7C15ULL + s->payload * 512 + s->flags * 2 + 1) | 1;
	if (!s->ip_id)
		print = mix(print, (uint64_t)s->time_ns) | 1;
	for (i = 0; i < RECENT; i++)
		if (f->live.recent[up][i] == print)
			return true;
	f->live.recent[up][f->live.next_recent[up]] = print;
	f->live.next_recent[up] = (f->live.next_recent[up] + 1) % RECENT;
	return false;
}

/* --- the first pass ----------------------------------------------------------------------- */

/* A SYN-ACK sent again: the time stamp says which of the two the ACK is for. */
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

		if (options->ts_echo == theirs->value && took >= 0 &&
		    (theirs->best_ns < 0 || took < theirs->best_ns))
			theirs->best_ns = took;
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

static bool learn(const struct ndm_capture *c, struct flow *f, const struct ndm_segment *s, bool up)
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
	if (f->packets <= HEAD_PACKETS || f->offers < 2) {
		ndm_options_parse(s->options, s->option_bytes, &options);
		if (f->packets <= HEAD_PACKETS)
			learn_handshake(f, s, up, &options);
		learn_echo(f, s, up, &options);
	}
	f->payload[up] += s->payload;
	if (!(s->flags & TCP_SYN)) {
		f->acks[up] += (s->flags & TCP_ACK) != 0;
		f->data[up] += s->payload > 0;
	}
	return f->offers >= 2 || s->payload < SMALL_PAYLOAD ||
	       ndm_sizes_count(&f->sizes[up], s->payload);
}

/* --- between the passes ------------------------------------------------------------------- */

static int64_t segment_size(const struct flow *f)
{
	uint32_t full = ndm_sizes_full(&f->sizes[f->forward]);

	if (f->offers >= 2)
		return max64(f->least_mss - (f->stamps ? TIMESTAMP_BYTES : 0), LEAST_MSS);
	return full ? full : DEFAULT_MSS;
}

static int32_t window_scale(const struct flow *f)
{
	if (!f->syn_seen[0] || !f->syn_seen[1])
		return -1;
	if (f->wscale[f->forward] < 0 || f->wscale[!f->forward] < 0)
		return 0;
	return f->wscale[!f->forward];
}

static bool opened_by_sender(const struct flow *f)
{
	return f->first_way == (bool)f->forward;
}

/* Near the receiver the data is echoed at once and the ACKs a round trip later. */
static bool near_receiver(const struct flow *f)
{
	int64_t to_receiver = f->echo[f->forward].best_ns, to_sender = f->echo[!f->forward].best_ns;

	if (f->gaps_known)
		return (f->gap_ns[0] < f->gap_ns[1]) == opened_by_sender(f) &&
		       min64(f->gap_ns[0], f->gap_ns[1]) * 4 < max64(f->gap_ns[0], f->gap_ns[1]);
	return to_receiver >= 0 && to_sender >= ECHO_NS && to_receiver * 4 < to_sender;
}

static int plan(const struct ndm_capture *c, struct flow *f)
{
	f->forward = f->payload[1] >= f->payload[0];
	f->mss = segment_size(f);
	if (!f->acks[!f->forward])
		return NDM_FLOW_ONE_WAY;
	/* A packet is at most its payload's share of segments and one more. */
	if ((int64_t)f->payload[f->forward] / f->mss + f->data[f->forward] < c->min_segments)
		return NDM_FLOW_SHORT;
	if (f->backwards)
		return NDM_FLOW_CLOCK;
	if (f->unordered)
		return NDM_FLOW_UNORDERED;
	if (ndm_points_merged(&f->points[f->forward]))
		return NDM_FLOW_MERGED;
	return f->copied ? NDM_FLOW_COPY : NDM_FLOW_REPLAYED;
}

/* --- copies under another address --------------------------------------------------------- */

struct print {
	uint64_t value;
	size_t flow;
};

static int by_value(const void *a, const void *b)
{
	const struct print *x = a, *y = b;

	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	return x->flow < y->flow ? -1 : x->flow > y->flow;
}

/* The same packets at about the same time, and at least one other host. */
static bool is_copy_of(const struct flow *a, const struct flow *b)
{
	int64_t most = max64(a->packets, b->packets), apart = a->packets - b->packets;
	int64_t ns = a->first_ns - b->first_ns;
	size_t size = a->key.family == 4 ? 4 : 16;
	bool same_hosts = a->key.family == b->key.family &&
			  !memcmp(a->key.ends[0], b->key.ends[0], size) &&
			  !memcmp(a->key.ends[1], b->key.ends[1], size);

	return !same_hosts && ndm_least_shared(a->least, b->least) >= NDM_LEAST - 1 &&
	       (apart < 0 ? -apart : apart) * COPY_PACKETS <= most &&
	       (ns < 0 ? -ns : ns) < COPY_NS;
}

/* Address translation on the capturing host shows a flow twice: the second is a copy. */
static bool find_copies(struct ndm_capture *c)
{
	struct print *print = malloc((c->flows * NDM_LEAST + 1) * sizeof(*print));
	size_t n = 0, i, k;

	if (!print)
		return false;
	for (i = 0; i < c->flows; i++)
		for (k = 0; k < NDM_LEAST && c->flow[i].least[k]; k++)
			print[n++] = (struct print){ c->flow[i].least[k], i };
	qsort(print, n, sizeof(*print), by_value);
	for (i = 1; i < n; i++)
		if (print[i].value == print[i - 1].value && print[i].flow != print[i - 1].flow &&
		    is_copy_of(&c->flow[print[i - 1].flow], &c->flow[print[i].flow]))
			c->flow[print[i].flow].copied = true;
	free(print);
	return true;
}

/* Of the SYN or the SYN-ACK, whichever the capture saw leave and be answered. */
static int64_t handshake_rtt_us(const struct flow *f)
{
	return max64(max64(f->gap_ns[0], f->gap_ns[1]) / 1000, 1);
}

static void seed_rtt(struct flow *f)
{
	if (f->gaps_known)
		ndm_sender_seed_rtt(f->sender, f->first_ns / 1000, handshake_rtt_us(f));
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
		free_flow(&c->flow[--c->flows]);
	rewind_file(c);
	c->order = order;
}

void ndm_capture_second_pass(struct ndm_capture *c, int64_t shard, int64_t shards)
{
	bool known = find_copies(c);
	size_t i;

	for (i = 0; i < c->flows; i++) {
		struct flow *f = &c->flow[i];

		f->steps = 0;
		f->status = (int64_t)i % shards == shard ? plan(c, f) : NDM_FLOW_OTHER_SHARD;
		memset(&f->live, 0, sizeof(f->live));
		ndm_sizes_free(&f->sizes[0]);
		ndm_sizes_free(&f->sizes[1]);
		if (!known && f->status == NDM_FLOW_REPLAYED)
			f->status = NDM_FLOW_HUGE;
		if (f->status != NDM_FLOW_REPLAYED)
			continue;
		f->sender = malloc(sizeof(*f->sender));
		f->rounds = calloc(1, sizeof(*f->rounds));
		if (!f->sender || !f->rounds) {
			free(f->sender);
			f->sender = NULL;
			f->status = NDM_FLOW_HUGE;
			continue;
		}
		ndm_sender_init(f->sender, f->mss, window_scale(f), &c->drops,
				&c->budget);
		seed_rtt(f);
	}
	rewind_file(c);
	c->replaying = true;
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
	int64_t end_ns = f->synack_ns + (opened_by_sender(f) ? 0 : f->gap_ns[1]);
	struct ndm_ack_row row;

	f->first_us = min64(end_ns / 1000, first_ack_us);
	ndm_handshake_row(f->first_us, handshake_rtt_us(f), &row);
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

/* Numbers that tell a connection from the next one over the same ports. */
static void note(struct flow *f, const struct ndm_segment *s, bool up)
{
	if (s->flags & TCP_SYN) {
		f->live.isn[up] = s->seq;
		f->live.isn_known[up] = true;
	}
	f->live.data |= s->payload > 0;
}

/*
 * Records that are older than the one before: is the file's order right and the clock was set
 * back, or are their times right? What a direction's packets carry grows with time.
 */
static void watch_order(struct ndm_capture *c, struct flow *f, const struct ndm_segment *s, bool up)
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

static void follow_clock(struct ndm_capture *c, struct ndm_segment *s)
{
	int64_t back_ns = c->newest_ns - (s->time_ns + c->shift_ns);

	if (back_ns > 0) {
		c->shift_ns += back_ns;
		c->counters.clock_steps++;
		c->far_steps += back_ns > BACK_NS;
	}
	s->time_ns += c->shift_ns;
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
	up = make_key(s, &key);
	f = find_flow(c, s, &key, up);
	if (!f)
		return NDM_CAPTURE_FLOWS;
	if (is_copy(f, s, up)) {
		c->counters.duplicates++;
		f->duplicates += !c->replaying;
		return NDM_FILE_OK;
	}
	if (c->replaying && f->status == NDM_FLOW_REPLAYED)
		replay(c, f, s, up);
	note(f, s, up);
	if (c->replaying)
		return NDM_FILE_OK;
	watch_order(c, f, s, up);
	f->unordered |= c->order == NDM_ORDER_SORT && s->time_ns < c->newest_ns;
	return learn(c, f, s, up) ? NDM_FILE_OK : NDM_FILE_MEMORY;
}

static int take_oldest(struct ndm_capture *c)
{
	struct ndm_segment s;

	ndm_window_get(&c->window, &s);
	return take_segment(c, &s);
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

/* What tells it where the TTLs are the same: a sender gives a retransmission a new IP id. */
static bool captured_twice(const struct flow *f)
{
	const struct ndm_sender *s = f->sender;

	if (s->same_id >= LEAST_SAME_ID && s->same_id * MAX_SAME_ID > f->data[f->forward])
		return true;
	return s->retransmitted * 100 >= (s->sent_segments - s->retransmitted) * MOST_RESENT;
}

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
		else if (s->sent_segments < c->min_segments || s->rows < c->min_rows)
			f->status = NDM_FLOW_SHORT;
		else if (captured_twice(f))
			f->status = NDM_FLOW_MERGED;
		else if (near_receiver(f))
			f->status = NDM_FLOW_RECEIVER;
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
	info->mss = f->mss;
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
	info->resent_control = f->control_resent + f->sender->fins_resent;
	info->rows = f->sender->rows;
	info->rounds = (int64_t)f->rounds->n;
	info->row = f->row;
	info->round = f->rounds->row;
}
