/* SPDX-License-Identifier: GPL-2.0-only */
#include "points.h"

#define MERGED_TENTHS 6		/* each point saw at least 6 tenths: more than all of it together */

static void take(struct ndm_point *p, const struct ndm_segment *s)
{
	if (p->used && (int32_t)(s->seq - p->top) < 0)
		return;
	p->used = true;
	p->ttl = s->ttl;
	p->bytes += s->payload;
	p->top = s->seq + s->payload;
}

void ndm_points_take(struct ndm_points *p, const struct ndm_segment *s)
{
	take(&p->all, s);
	if (!p->at[0].used || p->at[0].ttl == s->ttl)
		take(&p->at[0], s);
	else if (!p->at[1].used || p->at[1].ttl == s->ttl)
		take(&p->at[1], s);
}

bool ndm_points_merged(const struct ndm_points *p)
{
	return p->at[0].bytes * 10 > p->all.bytes * MERGED_TENTHS &&
	       p->at[1].bytes * 10 > p->all.bytes * MERGED_TENTHS;
}

/* Of numbers that address translation leaves as they are. */
static uint64_t print_of(const struct ndm_segment *s)
{
	uint64_t value = (uint64_t)s->seq << 32 | s->ack;

	value = (value ^ s->payload) * 0xD6E8FEB86659FD93ULL;
	value = (value ^ value >> 32 ^ s->ip_id) * 0xA0761D6478BD642FULL;
	return (value ^ value >> 29) | 1;
}

void ndm_least_take(uint64_t least[NDM_LEAST], const struct ndm_segment *s)
{
	uint64_t print = print_of(s);
	int i, k;

	for (i = 0; i < NDM_LEAST && least[i] && least[i] < print; i++)
		;
	if (i == NDM_LEAST || least[i] == print)
		return;
	for (k = NDM_LEAST - 1; k > i; k--)
		least[k] = least[k - 1];
	least[i] = print;
}

int ndm_least_shared(const uint64_t a[NDM_LEAST], const uint64_t b[NDM_LEAST])
{
	int i, k, shared = 0;

	for (i = 0; i < NDM_LEAST; i++)
		for (k = 0; k < NDM_LEAST; k++)
			shared += a[i] && a[i] == b[k];
	return shared;
}
