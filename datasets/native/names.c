/* SPDX-License-Identifier: GPL-2.0-only */
#include "names.h"

struct name {
	char *text;
	size_t n;
	uint64_t hash;
};

struct ndm_names {
	uint64_t seed;
	struct name *name;
	size_t count, room;
	uint32_t *slot;		/* number + 1 */
	size_t slots;
	int32_t last;
};

static uint64_t hash(uint64_t seed, const char *text, size_t n)
{
	uint64_t value = seed ^ 0x9E3779B97F4A7C15ULL, word;
	size_t at;

	for (at = 0; at < n; at += 8) {
		word = 0;
		memcpy(&word, text + at, n - at < 8 ? n - at : 8);
		value = (value ^ word) * 0xD6E8FEB86659FD93ULL;
		value ^= value >> 32;
	}
	return value * 0xA0761D6478BD642FULL ^ n;
}

struct ndm_names *ndm_names_new(uint64_t seed)
{
	struct ndm_names *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->seed = seed;
	s->slots = 256;
	s->slot = calloc(s->slots, sizeof(*s->slot));
	if (!s->slot) {
		free(s);
		return NULL;
	}
	return s;
}

static bool more_slots(struct ndm_names *s)
{
	size_t slots = s->slots * 2, i;
	uint32_t *slot = calloc(slots, sizeof(*slot));

	if (!slot)
		return false;
	for (i = 0; i < s->count; i++) {
		size_t at = s->name[i].hash & (slots - 1);

		while (slot[at])
			at = (at + 1) & (slots - 1);
		slot[at] = (uint32_t)i + 1;
	}
	free(s->slot);
	s->slot = slot;
	s->slots = slots;
	return true;
}

static bool is(const struct name *name, const char *text, size_t n)
{
	return name->n == n && !memcmp(name->text, text, n);
}

int32_t ndm_names_number(struct ndm_names *s, const char *text, size_t n)
{
	struct name *name;
	uint64_t key;
	size_t at;

	if (s->count && is(&s->name[s->last], text, n))
		return s->last;
	if (s->count * 2 >= s->slots && !more_slots(s))
		return -1;
	key = hash(s->seed, text, n);
	for (at = key & (s->slots - 1); s->slot[at]; at = (at + 1) & (s->slots - 1))
		if (is(&s->name[s->slot[at] - 1], text, n))
			return s->last = (int32_t)s->slot[at] - 1;
	if (s->count == INT32_MAX ||
	    !grow((void **)&s->name, s->count, &s->room, sizeof(*s->name), 16))
		return -1;
	name = &s->name[s->count];
	name->text = malloc(n + 1);
	if (!name->text)
		return -1;
	memcpy(name->text, text, n);
	name->text[n] = 0;
	name->n = n;
	name->hash = key;
	s->slot[at] = (uint32_t)++s->count;
	return s->last = (int32_t)s->count - 1;
}

int32_t ndm_names_count(const struct ndm_names *s)
{
	return (int32_t)s->count;
}

const char *ndm_names_text(const struct ndm_names *s, int32_t number, size_t *n)
{
	*n = s->name[number].n;
	return s->name[number].text;
}

void ndm_names_free(struct ndm_names *s)
{
	size_t i;

	for (i = 0; i < s->count; i++)
		free(s->name[i].text);
	free(s->name);
	free(s->slot);
	free(s);
}
