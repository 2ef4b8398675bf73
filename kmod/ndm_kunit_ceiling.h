/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of ndm_kunit.c that tests ndm_ceiling.h. */
#ifndef _NDM_KUNIT_CEILING_H
#define _NDM_KUNIT_CEILING_H

#include <kunit/test.h>

#include "ndm_ceiling.h"

static void ndm_test_ceiling(struct kunit *test)
{
	s16 x[NDM_N_DENSE] = {};
	u32 left;

	/* 3/5 of 101 packets in the lowest RTT, and 5/4 of it is the usual one. */
	x[NDM_IN_BDP_RATIO] = NDM_ONE * 3 / 5;
	x[NDM_IN_RTT_RATIO] = NDM_ONE * 4 / 5;
	left = NDM_CEILING_ROUNDS - NDM_CEILING_SHRINKS;
	KUNIT_EXPECT_EQ(test, ndm_ceiling(101, x, left + 1), 75);
	/* Later not below the window, unless losses go on. */
	KUNIT_EXPECT_EQ(test, ndm_ceiling(101, x, left), 101);
	x[NDM_IN_LOSS_RATE] = 1;
	KUNIT_EXPECT_EQ(test, ndm_ceiling(101, x, left), 75);
	x[NDM_IN_LOSS_RATE] = 0;
	x[NDM_IN_RTT_RATIO] = 0;
	KUNIT_EXPECT_EQ(test, ndm_ceiling(100, x, left), 100 * (NDM_ONE * 3 / 5));
	KUNIT_EXPECT_EQ(test, ndm_ceiling(~0U, x, left), ~0U);

	/*
	 * Not for random loss, nor the usual loss, nor behind a long queue, nor where packets
	 * overtake others, nor if other flows keep the queue.
	 */
	x[NDM_IN_RTT_RATIO] = NDM_QUEUE_LONG + 1;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, 1, true), 0);
	x[NDM_IN_LOSS_RATE_MEAN] = 100;
	x[NDM_IN_LOSS_RATE] = 200;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, 1, true), 0);
	x[NDM_IN_LOSS_RATE] = 201;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, -1, 1, true), 0);
	x[NDM_IN_RTT_RATIO]--;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, 1, true), 0);
	x[NDM_IN_RTT_RATIO]++;
	x[NDM_IN_RTT_VARIATION] = NDM_ORDERED;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, 1, true), 0);
	x[NDM_IN_RTT_VARIATION]--;
	x[NDM_IN_QUEUE_FLOOR] = NDM_QUEUE_KEPT;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, 1, true), 0);
	x[NDM_IN_QUEUE_FLOOR]--;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, 1, true), NDM_CEILING_ROUNDS);

	/* Losses of the larger window go on for two rounds; later ones are other flows'. */
	left = NDM_CEILING_ROUNDS;
	left = ndm_ceiling_rounds(left, x, -1, 1, true);
	KUNIT_EXPECT_EQ(test, left, NDM_CEILING_ROUNDS - 1);
	left = ndm_ceiling_rounds(left, x, -1, 1, true);
	KUNIT_EXPECT_EQ(test, left, NDM_CEILING_ROUNDS - 2);
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(left, x, 0, 1, true), 0);
	x[NDM_IN_LOSS_RATE] = x[NDM_IN_LOSS_RATE_MEAN];
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(left, x, 0, 1, true), left - 1);
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(1, x, 0, 1, true), 0);
}

static void ndm_test_ceiling_overtaking(struct kunit *test)
{
	const u32 lost = 2 * NDM_CEILING_LOST;
	s16 x[NDM_N_DENSE] = { [NDM_IN_RTT_VARIATION] = NDM_ORDERED,
			       [NDM_IN_LOSS_RATE] = NDM_CEILING_BURST,
			       [NDM_IN_LOSS_RATE_MEAN] = NDM_CEILING_BURST,
			       [NDM_IN_RTT_RATIO] = 400, [NDM_IN_BDP_RATIO] = 299 };

	/* An eighth, and less than three quarters of a filled window arrive, whatever the RTT. */
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, lost, true), NDM_CEILING_ROUNDS);
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, -1, lost, true), 0);
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, lost - 1, true), 0);
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, lost, false), 0);
	x[NDM_IN_BDP_RATIO]++;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, lost, true), 0);
	x[NDM_IN_BDP_RATIO]--;
	x[NDM_IN_LOSS_RATE]--;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, lost, true), 0);
	x[NDM_IN_LOSS_RATE]++;
	x[NDM_IN_RTT_VARIATION]--;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, 0, lost, true), 0);
}

static void ndm_test_ceiling_unfilled(struct kunit *test)
{
	const u32 lost = NDM_CEILING_LOST;
	s16 x[NDM_N_DENSE] = { [NDM_IN_QUEUE_FLOOR] = NDM_QUEUE_KEPT - 1,
			       [NDM_IN_LOSS_RATE_MEAN] = 100 };

	/* For an unfilled window: an eighth, more than usual, with a queue. */
	x[NDM_IN_LOSS_RATE] = NDM_CEILING_BURST;
	x[NDM_IN_RTT_RATIO] = NDM_QUEUE_SHOWN - 1;
	x[NDM_IN_RTT_VARIATION] = NDM_LATE - 1;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, -1, lost, false), NDM_CEILING_ROUNDS);
	x[NDM_IN_RTT_VARIATION]++;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, -1, lost, false), 0);
	x[NDM_IN_RTT_VARIATION]--;
	x[NDM_IN_RTT_RATIO]++;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, -1, lost, false), 0);
	x[NDM_IN_RTT_RATIO]--;
	x[NDM_IN_LOSS_RATE]--;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, -1, lost, false), 0);
	x[NDM_IN_LOSS_RATE]++;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, -1, lost - 1, false), 0);
	x[NDM_IN_LOSS_RATE_MEAN] = NDM_CEILING_BURST / 2;
	KUNIT_EXPECT_EQ(test, ndm_ceiling_rounds(0, x, -1, lost, false), 0);
}

#endif /* _NDM_KUNIT_CEILING_H */
