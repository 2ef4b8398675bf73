// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the window does, whatever the network's outputs are: the control law of
 * kmod/ndm_control.h for every window that a flow can have, by going through them.
 *
 *     gcc -O2 -I. tests/law.c -o law && ./law [CLAIM]
 *
 * prints every claim and how many cases it went through; the certificate names the same claims
 * (export/proof/law.py).
 *
 * The gain need not be gone through beside everything else: 2^gain never falls as the gain grows
 * (the first claim), the law takes minima of it, so its highest and lowest value give the
 * extremes. The same holds for the logit, whose sigmoid never falls.
 */
#include <stdio.h>
#include <string.h>

#include "kmod/ndm_control.h"

#define WINDOWS	(1U << 20)	/* struct ndm keeps the target in 20 bits */
#define FLAGS	(1U << 5)	/* enum ndm_law_flags */
#define GAIN	65536

static unsigned long long cases;
static const char *claim;

static int fail(u32 window, s32 value, u32 target)
{
	printf("%s: broken at window %u, %d: target %u\n", claim, window, value, target);
	return 1;
}

static int gain_never_falls(void)
{
	s32 gain;

	for (gain = -GAIN; gain < GAIN; gain++, cases++)
		if (ndm_exp2(gain) > ndm_exp2(gain + 1))
			return fail(0, gain, ndm_exp2(gain + 1));
	return ndm_exp2(-GAIN) == 32768 && ndm_exp2(GAIN) == 131072 ? 0 : fail(0, GAIN, ndm_exp2(GAIN));
}

/* Twice the window and one packet, in every round. */
static int at_most_double(void)
{
	s16 x[NDM_N_DENSE] = { 0 };
	u32 window, phase, flags;

	for (flags = 0; flags < FLAGS; flags++)
		for (phase = 0; phase < NDM_PROBE_ROUNDS; phase++)
			for (window = 0; window < WINDOWS; window++, cases++) {
				u32 up = ndm_law(window, GAIN, phase, x, 0, flags, ~0U);

				if (up > 2 * window + 1)
					return fail(window, (s32)phase, up);
			}
	return 0;
}

/* In rounds without a flood and without a ceiling. */
static int at_least_half(void)
{
	s16 x[NDM_N_DENSE] = { 0 };
	u32 window, phase, flags;

	for (flags = 0; flags < FLAGS; flags++)
		for (phase = 0; phase < NDM_PROBE_ROUNDS; phase++)
			for (window = 0; window < WINDOWS; window++, cases++) {
				u32 down = ndm_law(window, -GAIN, phase, x, 0, flags, ~0U);

				if (down < window / 2)
					return fail(window, (s32)phase, down);
			}
	return 0;
}

/* A round that lost a fifth or more, eight packets at least, behind a queue. */
static int flood_falls_to_what_arrived(void)
{
	s16 x[NDM_N_DENSE] = { 0 };
	u32 window;
	s32 loss;

	for (loss = NDM_ONE / 5; loss <= NDM_ONE; loss++) {
		x[NDM_IN_LOSS_RATE] = (s16)loss;
		for (window = 0; window < WINDOWS; window++) {
			u32 target = ndm_law(window, GAIN, 0, x, NDM_FLOOD_LOST, NDM_LAW_QUEUE, ~0U);

			if ((u64)target * NDM_ONE > (u64)window * (u32)(NDM_ONE - loss))
				return fail(window, loss, target);
		}
		cases += WINDOWS;
	}
	return 0;
}

/* Nothing but scatter, and fewer than eight packets, excuses a flood. */
static int only_scatter_excuses_a_flood(void)
{
	s16 x[NDM_N_DENSE] = { 0 };
	s32 variation, loss;
	u32 flags, lost;

	for (flags = 0; flags < FLAGS; flags++)
		for (variation = 0; variation <= 2 * NDM_ONE; variation++)
			for (loss = 0; loss <= NDM_ONE; loss++, cases += 2) {
				bool overtaken = (flags & NDM_LAW_REORDERS) && variation >= NDM_ONE / 16;
				bool jitter = (flags & NDM_LAW_JITTER) && variation >= NDM_ONE / 4;
				bool floods = (flags & NDM_LAW_QUEUE) && loss >= NDM_ONE / 5;

				x[NDM_IN_RTT_VARIATION] = (s16)variation;
				x[NDM_IN_LOSS_RATE] = (s16)loss;
				for (lost = 7; lost < 9; lost++)
					if (ndm_floods(x, flags, lost) !=
					    (floods && lost > 7 && !overtaken && !jitter))
						return fail(flags, loss, (u32)variation);
			}
	return 0;
}

/* The highest target over all flags that hold these, in rounds without a loss. */
static int at_most(u32 held, u32 more, u32 share)
{
	s16 x[NDM_N_DENSE] = { 0 };
	u32 window, phase, flags;

	for (flags = 0; flags < FLAGS; flags++) {
		if ((flags & held) != held)
			continue;
		for (phase = 0; phase < NDM_PROBE_ROUNDS; phase++)
			for (window = 0; window < WINDOWS; window++, cases++) {
				u32 ceiling = share > 1 ? window / share : ~0U;
				u32 up = ndm_law(window, GAIN, phase, x, 0, flags, ceiling);

				if (up > window / share + more)
					return fail(window, (s32)phase, up);
			}
	}
	return 0;
}

static int one_packet_after_a_mark(void)
{
	return at_most(NDM_LAW_MARKED, 1, 1);
}

static int unused_window_does_not_grow(void)
{
	return at_most(NDM_LAW_UNUSED, 0, 1);
}

static int ceiling_holds(void)
{
	return at_most(0, 0, 3);
}

/* A loss takes between nothing and half of the window, for every logit. */
static int loss_takes_at_most_half(void)
{
	const s32 lo = NDM_OUT_CONGESTION_LO, hi = NDM_OUT_CONGESTION_HI;
	u32 window;
	s32 logit;

	for (logit = lo; logit < hi; logit++, cases++)
		if (ndm_sigmoid(logit) > ndm_sigmoid(logit + 1))
			return fail(0, logit, ndm_sigmoid(logit));
	for (window = 0; window < WINDOWS; window++, cases += 2) {
		u32 most = ndm_cut(window, lo), least = ndm_cut(window, hi), left;

		if (most > window || least > most || least < window - window / 2)
			return fail(window, hi, least);
		/* Without a queue no more; of certain overflow as much, nearly. */
		most = ndm_cut_without_queue(window, lo);
		left = ndm_cut_without_queue(window, hi);
		if (most > window || left < least || left > least + window / 4096 + 1)
			return fail(window, hi, left);
	}
	return 0;
}

#define CLAIM(name) { #name, name }

static const struct {
	const char *name;
	int (*broken)(void);
} claims[] = {
	CLAIM(gain_never_falls),
	CLAIM(at_most_double),
	CLAIM(at_least_half),
	CLAIM(flood_falls_to_what_arrived),
	CLAIM(only_scatter_excuses_a_flood),
	CLAIM(one_packet_after_a_mark),
	CLAIM(unused_window_does_not_grow),
	CLAIM(ceiling_holds),
	CLAIM(loss_takes_at_most_half),
};

int main(int argc, char **argv)
{
	unsigned int i, found = 0;

	for (i = 0; i < sizeof(claims) / sizeof(*claims); i++) {
		claim = claims[i].name;
		if (argc > 1 && strcmp(argv[1], claim))
			continue;
		found++;
		cases = 0;
		if (claims[i].broken())
			return 1;
		printf("%s: %llu cases\n", claim, cases);
	}
	if (!found)
		printf("%s: no such claim; without a name all are checked\n", argv[1]);
	return found ? 0 : 2;
}
