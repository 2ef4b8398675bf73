/* SPDX-License-Identifier: GPL-2.0-only */
/* Sorts packets by time within a bounded window. */
#ifndef NDM_ORDER_H
#define NDM_ORDER_H

#include "packet.h"

#define NDM_WINDOW 4096		/* packets that may wait for an older one */
#define NDM_OPTION_BYTES 40

struct ndm_waiting {
	struct ndm_segment segment;
	uint64_t number;	/* in the file: of equal times the first comes first */
	uint8_t options[NDM_OPTION_BYTES];
};

struct ndm_window {
	struct ndm_waiting *at;	/* a heap, the oldest on top */
	size_t n;
	uint64_t number;
};

/* False: out of memory. */
bool ndm_window_put(struct ndm_window *w, const struct ndm_segment *s);
/* The oldest, which must exist; its options lie in `w` until the next put. */
void ndm_window_get(struct ndm_window *w, struct ndm_segment *s);
void ndm_window_free(struct ndm_window *w);

#endif
