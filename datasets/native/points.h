/* SPDX-License-Identifier: GPL-2.0-only */
/* Is each byte of a direction in the capture twice: seen at two points, or under two addresses? */
#ifndef NDM_POINTS_H
#define NDM_POINTS_H

#include "packet.h"

#define NDM_LEAST 4

/* New bytes of a direction by the TTL they had: at one point all packets have the same. */
struct ndm_point {
	uint64_t bytes;
	uint32_t top;
	uint8_t ttl;
	bool used;
};

struct ndm_points {
	struct ndm_point at[2], all;
};

void ndm_points_take(struct ndm_points *p, const struct ndm_segment *s);
/* Two TTLs, and most of the bytes were seen with both. */
bool ndm_points_merged(const struct ndm_points *p);

/* The lowest hashes of a flow's packets: copies of a flow share them whatever their addresses. */
void ndm_least_take(uint64_t least[NDM_LEAST], const struct ndm_segment *s);
/* How many of them are in both. */
int ndm_least_shared(const uint64_t a[NDM_LEAST], const uint64_t b[NDM_LEAST]);

#endif
