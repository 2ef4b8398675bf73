/* SPDX-License-Identifier: GPL-2.0-only */
/* Packets to flows: a hash table of connections, and copies of a packet. */
#include "capture_state.h"

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
bool ndm_flow_key(const struct ndm_segment *s, struct key *key)
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

struct flow *ndm_flow_find(struct ndm_capture *c, const struct ndm_segment *s,
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
bool ndm_flow_is_copy(struct flow *f, const struct ndm_segment *s, bool up)
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

void ndm_flow_forget_replay(struct flow *f)
{
	if (f->sender) {
		ndm_sender_free(f->sender);
		free(f->sender);
	}
	if (f->rounds) {
		free(f->rounds->row);
		free(f->rounds);
	}
	free(f->row);
	f->sender = NULL;
	f->rounds = NULL;
	f->row = NULL;
	f->rows = f->row_room = 0;
}

void ndm_flow_free(struct flow *f)
{
	ndm_sizes_free(&f->sizes[0]);
	ndm_sizes_free(&f->sizes[1]);
	ndm_flow_forget_replay(f);
}
