// SPDX-License-Identifier: GPL-2.0-only
/* A blob through the parser and its vectors: the model's hash, or why it is refused. */
#include <stdio.h>
#include <stdlib.h>

#include "kmod/ndm_blob.h"
#include "kmod/generated/ndm_model.h"

static struct ndm_blob blob;

int main(int argc, char **argv)
{
	FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
	struct ndm_blob_fault fault;
	u8 *data, *exact;
	size_t n;

	if (!file)
		return 2;
	data = malloc(1 << 20);
	n = fread(data, 1, 1 << 20, file);
	fclose(file);
	/* No byte behind it, so that sanitizers see one read too many. */
	exact = malloc(n ? n : 1);
	memcpy(exact, data, n);
	free(data);
	if (ndm_blob_read(&blob, &ndm_model, exact, (u32)n, &fault) &&
	    ndm_blob_verify(&blob, &fault))
		printf("%016llx\n", (unsigned long long)blob.weights.model);
	else
		printf("%s: %u, %u\n", fault.what, fault.index, fault.element);
	free(exact);
	return 0;
}
