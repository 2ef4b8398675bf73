/* SPDX-License-Identifier: GPL-2.0-only */
/* Between the passes: which flows can be replayed, and how. */
#include "capture_state.h"

#define TIMESTAMP_BYTES 12	/* bytes that the option takes from every segment's payload */
#define DEFAULT_MSS 536
#define LEAST_MSS 48		/* sysctl tcp_min_snd_mss */
#define ECHO_NS 2000000LL	/* a sender answers an ACK sooner */
#define LEAST_MIDWAY 10		/* one in 10 of the RTT */
#define LEAST_ECHOES 4
#define MAX_SAME_ID 10		/* one in 10 data packets */
#define LEAST_SAME_ID 8		/* packets: fewer may be chance */
#define MOST_RESENT 90		/* per cent: a sender whose data all occur twice was captured twice */
#define LEAST_FILLED 8		/* packets: fewer may be the capture's losses that also were the network's */
#define MOST_ACKS 16		/* one in 16 packets of a connection may go the other way: SYN, FIN */
#define COPY_NS 1000000000LL	/* both begin within this */
#define COPY_PACKETS 50		/* one in 50 may be missing in one of the two */

static int64_t segment_size(const struct flow *f)
{
	uint32_t full = ndm_sizes_full(&f->sizes[f->forward]);

	if (f->offers >= 2)
		return max64(f->least_mss - (f->stamps ? TIMESTAMP_BYTES : 0), LEAST_MSS);
	return full ? full : DEFAULT_MSS;
}

int ndm_flow_header_bytes(const struct flow *f)
{
	bool unseen = !f->syn_seen[0] && !f->syn_seen[1];

	/* Without a SYN the option is as likely as it is common. */
	return (f->key.family == 4 ? 20 : 40) + 20 + (f->stamps || unseen ? TIMESTAMP_BYTES : 0);
}

int32_t ndm_flow_window_scale(const struct flow *f)
{
	if (!f->syn_seen[0] || !f->syn_seen[1])
		return -1;
	if (f->wscale[f->forward] < 0 || f->wscale[!f->forward] < 0)
		return 0;
	return f->wscale[!f->forward];
}

int ndm_flow_sack(const struct flow *f)
{
	if (!f->syn_seen[0] || !f->syn_seen[1])
		return -1;
	return f->sack_permitted[0] && f->sack_permitted[1];
}

bool ndm_flow_opened_by_sender(const struct flow *f)
{
	return f->first_way == (bool)f->forward;
}

/* Near the receiver the data is echoed at once and the ACKs a round trip later. */
bool ndm_flow_near_receiver(const struct flow *f)
{
	int64_t to_receiver = f->echo[f->forward].best_ns, to_sender = f->echo[!f->forward].best_ns;

	if (f->gaps_known)
		return (f->gap_ns[0] < f->gap_ns[1]) == ndm_flow_opened_by_sender(f) &&
		       min64(f->gap_ns[0], f->gap_ns[1]) * 4 < max64(f->gap_ns[0], f->gap_ns[1]);
	return to_receiver >= 0 && to_sender >= ECHO_NS && to_receiver * 4 < to_sender;
}

/*
 * A part of the RTT lies between the sender and the capture. One that waits for data to send with
 * the ACK of a handshake looks so too, until it echoes time stamps.
 */
bool ndm_flow_midway(const struct flow *f)
{
	const struct echo *sender = &f->echo[!f->forward];
	int64_t hidden = min64(f->gap_ns[ndm_flow_opened_by_sender(f)], sender->best_ns);

	return f->gaps_known && sender->n >= LEAST_ECHOES && hidden >= ECHO_NS &&
	       hidden * LEAST_MIDWAY > f->gap_ns[0] + f->gap_ns[1];
}

/* ACKs of many data, which were not captured. */
static bool only_acks(const struct ndm_capture *c, const struct flow *f)
{
	int64_t most = max64(f->acks[0], f->acks[1]), least = min64(f->acks[0], f->acks[1]);

	return most * 2 >= c->min_segments && least * MOST_ACKS <= most;
}

/* Each ACK is for at least one fragment; requests for the data may be whole. */
static bool in_fragments(const struct ndm_capture *c, const struct flow *f)
{
	return only_acks(c, f) && f->data[0] + f->data[1] < c->min_segments &&
	       (int64_t)c->counters.fragments >= max64(f->acks[0], f->acks[1]);
}

int ndm_flow_plan(const struct ndm_capture *c, struct flow *f)
{
	f->forward = f->payload[1] >= f->payload[0];
	f->mss = segment_size(f);
	if (in_fragments(c, f))
		return NDM_FLOW_FRAGMENTS;
	if (f->data[f->forward] && !f->acks[!f->forward])
		return NDM_FLOW_ONE_WAY;
	/* A filter by size, or by direction, left the ACKs only. */
	if (!f->data[0] && !f->data[1] && only_acks(c, f))
		return NDM_FLOW_ACKS;
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

/* The same packets at about the same time, and at least one other host, or no VLAN's tag. */
static bool is_copy_of(const struct flow *a, const struct flow *b)
{
	int64_t most = max64(a->packets, b->packets), apart = a->packets - b->packets;
	int64_t ns = a->first_ns - b->first_ns;
	size_t size = a->key.family == 4 ? 4 : 16;
	bool same_hosts = a->key.family == b->key.family && !a->key.vlan == !b->key.vlan &&
			  !memcmp(a->key.ends[0], b->key.ends[0], size) &&
			  !memcmp(a->key.ends[1], b->key.ends[1], size);

	return !same_hosts && ndm_least_shared(a->least, b->least) >= NDM_LEAST - 1 &&
	       (apart < 0 ? -apart : apart) * COPY_PACKETS <= most &&
	       (ns < 0 ? -ns : ns) < COPY_NS;
}

/* Address translation, or a VLAN's tag, shows a flow twice on one host: the second is a copy. */
bool ndm_flow_find_copies(struct ndm_capture *c)
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
int64_t ndm_flow_handshake_rtt_us(const struct flow *f)
{
	return max64(max64(f->gap_ns[0], f->gap_ns[1]) / 1000, 1);
}

/* What is dropped before the capture is seen for the first time when it is retransmitted. */
bool ndm_flow_behind_queue(const struct flow *f)
{
	const struct ndm_sender *s = f->sender;

	return s->filled >= LEAST_FILLED && s->filled_bytes * 2 > s->gap_bytes;
}

/* The sign where the TTLs are the same: a sender gives a retransmission a new IP id. */
bool ndm_flow_captured_twice(const struct flow *f)
{
	const struct ndm_sender *s = f->sender;

	if (s->same_id >= LEAST_SAME_ID && s->same_id * MAX_SAME_ID > f->data[f->forward])
		return true;
	return s->retransmitted * 100 >= (s->sent_segments - s->retransmitted) * MOST_RESENT;
}
