/* SPDX-License-Identifier: GPL-2.0-only */
#include "flow_sizes.h"

static struct ndm_size *find(struct ndm_size *slot, uint32_t slots, uint32_t size)
{
	uint32_t at = (size * 2654435761u) >> 16 & (slots - 1);

	while (slot[at].size && slot[at].size != size)
		at = (at + 1) & (slots - 1);
	return &slot[at];
}

static bool more_slots(struct ndm_sizes *s)
{
	uint32_t slots = s->slots ? s->slots * 2 : 8, i;
	struct ndm_size *slot = calloc(slots, sizeof(*slot));

	if (!slot)
		return false;
	for (i = 0; i < s->slots; i++)
		if (s->slot[i].size)
			*find(slot, slots, s->slot[i].size) = s->slot[i];
	free(s->slot);
	s->slot = slot;
	s->slots = slots;
	return true;
}

bool ndm_sizes_count(struct ndm_sizes *s, uint32_t size)
{
	struct ndm_size *slot;

	if (s->n * 2 >= s->slots && s->n < NDM_MAX_SIZES && !more_slots(s))
		return false;
	slot = find(s->slot, s->slots, size);
	if (!slot->size) {
		if (s->n == NDM_MAX_SIZES)
			return true;
		slot->size = size;
		slot->order = s->n++;
	}
	slot->count++;
	return true;
}

void ndm_sizes_free(struct ndm_sizes *s)
{
	free(s->slot);
	memset(s, 0, sizeof(*s));
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

uint32_t ndm_sizes_full(const struct ndm_sizes *s)
{
	uint32_t best[4], n = 0, i, k, full = 0, divisor = 0;

	for (i = 0; i < s->slots; i++) {
		if (!s->slot[i].size)
			continue;
		for (k = n; k; k--) {
			uint32_t other = best[k - 1];

			if (s->slot[other].count > s->slot[i].count ||
			    (s->slot[other].count == s->slot[i].count &&
			     s->slot[other].order < s->slot[i].order))
				break;
			if (k < 4)
				best[k] = other;
		}
		if (k < 4) {
			best[k] = i;
			n = n < 4 ? n + 1 : 4;
		}
	}
	for (k = 0; k < n; k++)
		if (s->slot[best[k]].count * 4 >= s->slot[best[0]].count &&
		    (!full || s->slot[best[k]].size < full))
			full = s->slot[best[k]].size;
	if (full <= NDM_ETHERNET_BYTES)
		return full;
	/* Super-packets of one host; its full segments by themselves are rare. */
	for (k = 0; k < n; k++)
		if (s->slot[best[k]].count > 1 &&
		    s->slot[best[k]].count * NDM_RARE_SIZE >= s->slot[best[0]].count)
			divisor = common_divisor(s->slot[best[k]].size, divisor);
	return divisor >= NDM_LEAST_SIZE ? divisor : full;
}

static bool divides_most(const struct ndm_sizes *s, uint32_t divisor)
{
	uint64_t all = 0, multiples = 0;
	uint32_t i;

	for (i = 0; i < s->slots; i++) {
		all += s->slot[i].count;
		multiples += s->slot[i].size % divisor ? 0 : s->slot[i].count;
	}
	return multiples * 16 >= all * 15;
}

uint32_t ndm_sizes_divisor(const struct ndm_sizes *s, uint32_t most)
{
	const struct ndm_size *best = NULL;
	uint32_t i, parts;

	for (i = 0; i < s->slots; i++) {
		const struct ndm_size *slot = &s->slot[i];

		if (slot->size && (!best || slot->count > best->count ||
				   (slot->count == best->count && slot->order < best->order)))
			best = slot;
	}
	if (!best || most < NDM_LEAST_SIZE)
		return 0;
	for (parts = (best->size + most - 1) / most; best->size / parts >= NDM_LEAST_SIZE; parts++)
		if (best->size % parts == 0 && divides_most(s, best->size / parts))
			return best->size / parts;
	return 0;
}
