/* SPDX-License-Identifier: GPL-2.0-only */
/* Unaligned loads in either byte order, 32-bit sequence numbers, growing arrays. */
#ifndef NDM_BYTES_H
#define NDM_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint16_t be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static inline uint32_t be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint16_t get16(const uint8_t *p, bool big)
{
	return big ? be16(p) : (uint16_t)(p[1] << 8 | p[0]);
}

static inline uint32_t get32(const uint8_t *p, bool big)
{
	return big ? be32(p) : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 |
			       (uint32_t)p[1] << 8 | p[0];
}

/* The 64-bit number closest to `near` that ends in these 32 bits. */
static inline int64_t unwrap(uint32_t value, int64_t near)
{
	return near + (int32_t)(value - (uint32_t)near);
}

static inline int64_t max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static inline int64_t min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Room for one more element of `size` bytes; false when out of memory. */
static inline bool grow(void **array, size_t used, size_t *room, size_t size, size_t first)
{
	size_t wanted;
	void *more;

	if (used < *room)
		return true;
	wanted = *room ? *room * 2 : first;
	more = realloc(*array, wanted * size);
	if (!more)
		return false;
	*array = more;
	*room = wanted;
	return true;
}

#endif
