/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The integers of a network that was swapped in, layer after layer: of each the weights,
 * then the biases, as pairs of rows, as in ndm_model.h. Which layers: those of the
 * compiled network, whose dimensions a swapped one must have.
 */
#ifndef _NDM_WEIGHTS_H
#define _NDM_WEIGHTS_H

#include "generated/ndm_contract.h"

#define NDM_MOST_PAIRS	(NDM_MAX_LAYERS * (NDM_MAX_WIDTH / 2) * (NDM_MAX_WIDTH + 1))
#define NDM_MOST_SHIFTS	(NDM_MAX_LAYERS * NDM_MAX_WIDTH)

struct ndm_weights {
	u64 model;	/* hash of the network */
	u64 pair[NDM_MOST_PAIRS];
	u8 shift[NDM_MOST_SHIFTS];
};

#endif /* _NDM_WEIGHTS_H */
