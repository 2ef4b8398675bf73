// SPDX-License-Identifier: GPL-2.0-only
/*
 * Preloaded into the lab's kernel, which is a process of this host: getrandom()
 * that returns the same bytes in every run with the same NDM_SEED (decimal).
 * The kernel's generator is seeded from here and nowhere else.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
	static uint64_t state;
	static int seeded;
	unsigned char *out = buffer;

	(void)flags;
	if (!seeded) {
		const char *seed = getenv("NDM_SEED");

		state = seed ? strtoull(seed, NULL, 10) : 0;
		seeded = 1;
	}
	for (size_t i = 0; i < length; i++)
		out[i] = next(&state) >> 56;
	return length;
}
