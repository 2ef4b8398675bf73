// SPDX-License-Identifier: GPL-2.0-only
/* What happens next: a heap of events; and random numbers. */
#include <math.h>

#include "sim.h"

u64 sim_now;
static struct sim_event *heap;
static u32 events, room;
static u64 order, state[2];

static bool before_event(const struct sim_event *a, const struct sim_event *b)
{
	return a->at < b->at || (a->at == b->at && a->order < b->order);
}

/* Those at one time happen in the order in which they were queued. */
void sim_at(u64 at, enum sim_kind kind, u32 flow, u32 packet, u64 value)
{
	struct sim_event event = { at < sim_now ? sim_now : at, order++, kind, flow, packet, value };
	u32 i;

	if (events == room) {
		room = room ? 2 * room : 4096;
		heap = realloc(heap, room * sizeof(*heap));
		if (!heap)
			abort();
	}
	for (i = events++; i && before_event(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = event;
}

bool sim_next(struct sim_event *event)
{
	struct sim_event last;
	u32 i, child;

	if (!events)
		return false;
	*event = heap[0];
	last = heap[--events];
	for (i = 0; (child = 2 * i + 1) < events; i = child) {
		if (child + 1 < events && before_event(&heap[child + 1], &heap[child]))
			child++;
		if (before_event(&last, &heap[child]))
			break;
		heap[i] = heap[child];
	}
	heap[i] = last;
	sim_now = event->at;
	return true;
}

/* xorshift128+, seeded by splitmix64 (both public domain algorithms of S. Vigna). */
void sim_seed(u64 seed)
{
	for (int i = 0; i < 2; i++) {
		u64 z = (seed += 0x9e3779b97f4a7c15ULL);

		z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
		z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
		state[i] = z ^ (z >> 31);
	}
}

static u64 draw(void)
{
	u64 a = state[0], b = state[1];

	state[0] = b;
	a ^= a << 23;
	state[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
	return state[1] + b;
}

u32 sim_random(void)
{
	return draw() >> 32;
}

/* In [0, 1). */
double sim_uniform(void)
{
	return (draw() >> 11) * 0x1p-53;
}

double sim_normal(void)
{
	double u = 1 - sim_uniform();

	return sqrt(-2 * log(u)) * cos(2 * M_PI * sim_uniform());
}
