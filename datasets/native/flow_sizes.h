/* SPDX-License-Identifier: GPL-2.0-only */
/* How often each payload size occurs, to guess the segment size. */
#ifndef NDM_FLOW_SIZES_H
#define NDM_FLOW_SIZES_H

#include "bytes.h"

#define NDM_MAX_SIZES 4096		/* further ones are not counted */
#define NDM_ETHERNET_BYTES 1500
#define NDM_RARE_SIZE 1024	/* of the packets of the commonest size; a rarer one is a rest */
#define NDM_LEAST_SIZE 256	/* bytes; payloads below are not counted */

struct ndm_size {
	uint32_t size;		/* 0: free */
	uint32_t order;		/* 0: seen first */
	uint64_t count;
};

struct ndm_sizes {
	struct ndm_size *slot;	/* at most half of them are used */
	uint32_t n, slots;
};

/* False: out of memory. */
bool ndm_sizes_count(struct ndm_sizes *s, uint32_t size);
/*
 * The smallest of the four commonest sizes that is a quarter as common as the commonest; above a
 * packet of Ethernet, the size that divides them; 0: none.
 */
uint32_t ndm_sizes_full(const struct ndm_sizes *s);
/* The largest number up to `most` that divides 15 of 16, if it is a payload's size; 0: none. */
uint32_t ndm_sizes_divisor(const struct ndm_sizes *s, uint32_t most);
void ndm_sizes_free(struct ndm_sizes *s);

#endif
