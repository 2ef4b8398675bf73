// SPDX-License-Identifier: GPL-2.0-only
/*
 * In the place of lab/sim/ndm.c: the simulator's module, which writes what its network sees, round
 * by round, to the file that NDM_ROUNDS names. For runs with one flow.
 */
#include "../lab/sim/sim.h"

#include "kmod/ndm_infer.h"

static void note(const s16 *x)
{
	static FILE *rounds;

	if (!rounds)
		rounds = fopen(getenv("NDM_ROUNDS"), "wb");
	fwrite(x, sizeof(*x), NDM_N_DENSE, rounds);
}

#define ndm_infer(model, x, out, trace)	(note(x), ndm_infer(model, x, out, trace))
#include "../lab/sim/ndm.c"
