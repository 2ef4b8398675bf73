// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the window does, whatever the network's outputs are: the control law of
 * kmod/ndm_control.h for every window that a flow can have, by going through them.
 *
 * The gain need not be gone through beside everything else: 2^gain never falls as the gain grows
 * (below), the law takes minima of it, so its highest and lowest value give the extremes.
 */
#include <stdio.h>
#include <string.h>

#include "kmod/ndm_control.h"

#define WINDOWS	(1U << 20)	/* struct ndm keeps the target in 20 bits */
#define GAIN	65536

static unsigned long long cases;

static int fail(const char *claim, u32 window, s32 value, u32 target)
{
	printf("%s: window %u, %d: target %u\n", claim, window, value, target);
	return 1;
}

static int gain_is_monotone(void)
{
	s32 gain;

	for (gain = -GAIN; gain < GAIN; gain++, cases++)
		if (ndm_exp2(gain) > ndm_exp2(gain + 1))
			return fail("2^gain falls", 0, gain, ndm_exp2(gain + 1));
	if (ndm_exp2(-GAIN) != 32768 || ndm_exp2(GAIN) != 131072)
		return fail("2^gain is not 1/2 or 2 at its ends", 0, GAIN, ndm_exp2(GAIN));
	return 0;
}

/* A round that lost a fifth or more, eight packets at least, behind a queue: what arrived. */
static int flood_is_bounded(void)
{
	s16 x[NDM_N_DENSE] = { 0 };
	u32 window;
	s32 loss;

	for (loss = NDM_ONE / 5; loss <= NDM_ONE; loss++) {
		x[NDM_IN_LOSS_RATE] = (s16)loss;
		for (window = 0; window < WINDOWS; window++) {
			u32 target = ndm_law(window, GAIN, 0, x, NDM_FLOOD_LOST, NDM_LAW_QUEUE, ~0U);

			if ((u64)target * NDM_ONE > (u64)window * (u32)(NDM_ONE - loss))
				return fail("flood", window, loss, target);
		}
		cases += WINDOWS;
	}
	return 0;
}

/* Nothing but scatter, and fewer than eight packets, excuses a flood. */
static int little_excuses(void)
{
	s16 x[NDM_N_DENSE] = { 0 };
	s32 variation, loss;
	u32 flags, lost;

	for (flags = 0; flags < 1 << 5; flags++)
		for (variation = 0; variation <= 2 * NDM_ONE; variation++)
			for (loss = 0; loss <= NDM_ONE; loss += NDM_ONE / 64, cases += 2) {
				bool overtaken = (flags & NDM_LAW_REORDERS) && variation >= NDM_ONE / 16;
				bool jitter = (flags & NDM_LAW_JITTER) && variation >= NDM_ONE / 4;
				bool floods = (flags & NDM_LAW_QUEUE) && loss >= NDM_ONE / 5;

				x[NDM_IN_RTT_VARIATION] = (s16)variation;
				x[NDM_IN_LOSS_RATE] = (s16)loss;
				for (lost = 7; lost < 9; lost++)
					if (ndm_floods(x, flags, lost) !=
					    (floods && lost > 7 && !overtaken && !jitter))
						return fail("excuse", flags, loss, (u32)variation);
			}
	return 0;
}

static int others_are_bounded(void)
{
	s16 x[NDM_N_DENSE] = { 0 };
	u32 window, phase;

	for (window = 0; window < WINDOWS; window++)
		for (phase = 0; phase < NDM_PROBE_ROUNDS; phase++, cases += 5) {
			u32 up = ndm_law(window, GAIN, phase, x, 0, 0, ~0U);
			u32 down = ndm_law(window, -GAIN, phase, x, 0, 0, ~0U);

			if (up > 2 * window + 1)
				return fail("more than twice", window, (s32)phase, up);
			if (down < window / 2)
				return fail("less than half", window, (s32)phase, down);
			if (ndm_law(window, GAIN, phase, x, 0, NDM_LAW_MARKED, ~0U) > window + 1)
				return fail("growth after a mark", window, (s32)phase, up);
			if (ndm_law(window, GAIN, phase, x, 0, NDM_LAW_UNUSED, ~0U) > window)
				return fail("growth unused", window, (s32)phase, up);
			if (ndm_law(window, GAIN, phase, x, 0, 0, window / 3) > window / 3)
				return fail("ceiling", window, (s32)phase, up);
		}
	return 0;
}

/* A loss: between all and half of the window, for every logit. */
static int cut_is_bounded(void)
{
	u32 window;
	s32 logit;

	for (logit = NDM_OUT_CONGESTION_LO; logit <= NDM_OUT_CONGESTION_HI; logit++)
		for (window = 1; window < WINDOWS; window += window / 8 + 1, cases++) {
			u32 left = ndm_cut(window, logit);

			if (left > window || left < window / 2)
				return fail("cut", window, logit, left);
		}
	return 0;
}

int main(void)
{
	if (gain_is_monotone() || flood_is_bounded() || little_excuses() ||
	    others_are_bounded() || cut_is_bounded())
		return 1;
	printf("%llu cases\n", cases);
	return 0;
}
