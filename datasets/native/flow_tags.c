/* SPDX-License-Identifier: GPL-2.0-only */
/* Mirror ports give each direction of a connection another VLAN tag, or one of them none. */
#include "capture_state.h"

#define NEAR (1 << 24)	/* bytes that the last packets of two halves may be apart */

static int by_ends(const void *a, const void *b)
{
	const struct flow *x = *(const struct flow *const *)a, *y = *(const struct flow *const *)b;
	int order = memcmp(x->key.ends, y->key.ends, sizeof(x->key.ends));

	if (!order)
		order = x->key.family - y->key.family;
	return order ? order : x < y ? -1 : x > y;
}

static bool same_ends(const struct flow *a, const struct flow *b)
{
	return a->key.family == b->key.family &&
	       !memcmp(a->key.ends, b->key.ends, sizeof(a->key.ends));
}

static bool near(uint32_t a, uint32_t b)
{
	int32_t apart = (int32_t)(a - b);

	return apart < NEAR && apart > -NEAR;
}

/*
 * The one VLAN has only packets to the higher end, the other only those back, and each half's last
 * packet acknowledges about what the other's sends. So it is no second connection between the same
 * private addresses in another VLAN.
 */
static bool are_halves(struct flow *const *flow, size_t n)
{
	const struct flow *half[2] = { NULL, NULL };
	size_t i;

	for (i = 0; i < n; i++) {
		bool up = flow[i]->seen[1];

		if (up && flow[i]->seen[0])
			return false;
		if (half[up] && half[up]->key.vlan != flow[i]->key.vlan)
			return false;
		if (!half[up] || flow[i]->last_seq[up])	/* not a SYN that nobody answered */
			half[up] = flow[i];
	}
	return half[0] && half[1] && half[0]->key.vlan != half[1]->key.vlan &&
	       near(half[0]->last_ack[0], half[1]->last_seq[1]) &&
	       near(half[1]->last_ack[1], half[0]->last_seq[0]);
}

static bool add_tag(struct ndm_capture *c, const struct key *key, uint64_t vlan)
{
	if (!grow((void **)&c->tag, c->tags, &c->tag_room, sizeof(*c->tag), 4))
		return false;
	c->tag[c->tags++] = (struct ndm_tag){ *key, vlan };
	return true;
}

/* In order of the ends, so of the keys: each pair of ends has at most one. */
static int of_key(const void *key, const void *tag)
{
	const struct key *a = key, *b = &((const struct ndm_tag *)tag)->key;
	int order = memcmp(a->ends, b->ends, sizeof(a->ends));

	return order ? order : a->family - b->family;
}

bool ndm_capture_pair(struct ndm_capture *c)
{
	struct flow **flow = malloc((c->flows + 1) * sizeof(struct flow *));
	size_t i, n, k;

	if (!flow)
		return false;
	for (i = 0; i < c->flows; i++)
		flow[i] = &c->flow[i];
	qsort(flow, c->flows, sizeof(*flow), by_ends);
	for (i = 0; i < c->flows; i += n) {
		for (n = 1; i + n < c->flows && same_ends(flow[i], flow[i + n]); n++)
			;
		if (n < 2 || !are_halves(flow + i, n))
			continue;
		for (k = 1; flow[i + k]->key.vlan == flow[i]->key.vlan; k++)
			;
		if (!add_tag(c, &flow[i + k]->key, flow[i]->key.vlan))
			break;
	}
	free(flow);
	return c->tags > 0;
}

void ndm_flow_join(const struct ndm_capture *c, struct key *key)
{
	const struct ndm_tag *tag = c->tags ? bsearch(key, c->tag, c->tags, sizeof(*tag), of_key) :
					      NULL;

	if (tag && tag->key.vlan == key->vlan)
		key->vlan = tag->vlan;
}
