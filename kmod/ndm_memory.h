/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The network's first layer: running means of inputs, its memory of earlier rounds. They are
 * state of the flow but no measurement: the dataset builder does without them, so that a
 * change of the memory takes a training run and no recording.
 */
#ifndef _NDM_MEMORY_H
#define _NDM_MEMORY_H

#include "generated/ndm_contract.h"

/* Per flow; all zero before the first round. */
struct ndm_memory {
	u16 state[NDM_N_MEANS];	/* the mean, Q14, and NDM_MEAN_OFFSET; 0: none yet */
};

/*
 * x: a round's inputs; their means are written behind them. The mean of the first round is the
 * input itself. Rounded to the nearest, it comes within 2/4096 of a constant input.
 */
static inline void ndm_remember(struct ndm_memory *memory, s16 x[NDM_N_DENSE])
{
	const s32 half = 1 << (NDM_MEAN_SHIFT - 1);
	u32 i;

	for (i = 0; i < NDM_N_MEANS; i++) {
		s32 before = memory->state[i] - NDM_MEAN_OFFSET;
		s32 now = x[ndm_memory_of[i]] * (1 << NDM_MEAN_BITS);

		now = now < 32767 ? now : 32767;
		if (memory->state[i])
			now = before + ((now - before + half) >> NDM_MEAN_SHIFT);
		memory->state[i] = (u16)(now + NDM_MEAN_OFFSET);
		x[NDM_N_INPUTS + i] = (s16)(now >> NDM_MEAN_BITS);
	}
}

#endif /* _NDM_MEMORY_H */
