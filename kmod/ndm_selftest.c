// SPDX-License-Identifier: GPL-2.0-only
/* The golden vectors in user space: what the module checks when it is loaded. */
#include <stdio.h>

#include "ndm_selftest.h"

int main(void)
{
	struct ndm_selftest_result r;
	const char *failure = ndm_selftest(&r);

	if (failure) {
		fprintf(stderr, "ndm_tcp: golden %s: index %u, element %u: want %d, got %d\n",
			failure, r.index, r.element, r.want, r.got);
		return 1;
	}
	printf("ndm_tcp: model %s: %u vectors, %u by digest and %u rounds as exported\n",
	       NDM_MODEL_HASH, (u32)NDM_VECTORS, (u32)NDM_ALL, (u32)NDM_STREAM_ROUNDS);
	return 0;
}
