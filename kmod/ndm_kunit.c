// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests of the pure functions inside a kernel, with its compiler options and its
 * div64_u64(): `make NDM_KUNIT=1` makes a module that runs them when it is loaded.
 */
#include <kunit/test.h>
#include <linux/module.h>

#define NDM_SELFTEST_STAYS
#include "ndm_control.h"
#include "ndm_drain.h"
#include "ndm_features.h"
#include "ndm_kunit_ceiling.h"
#include "ndm_path.h"
#include "ndm_rivals.h"
#include "ndm_selftest.h"
#include "ndm_watchdog.h"

#define NDM_Q16	65536

static void ndm_test_exp2(struct kunit *test)
{
	u32 before = 0, value;
	s32 gain;

	KUNIT_EXPECT_EQ(test, ndm_exp2(-NDM_Q16), NDM_Q16 / 2);
	KUNIT_EXPECT_EQ(test, ndm_exp2(0), NDM_Q16);
	KUNIT_EXPECT_EQ(test, ndm_exp2(NDM_Q16), 2 * NDM_Q16);
	/* sqrt(2) and its inverse, Q16 */
	KUNIT_EXPECT_EQ(test, ndm_exp2(NDM_Q16 / 2), 92682);
	KUNIT_EXPECT_EQ(test, ndm_exp2(-NDM_Q16 / 2), 46341);
	for (gain = -NDM_Q16; gain <= NDM_Q16; gain++) {
		value = ndm_exp2(gain);
		if (value < before)
			KUNIT_FAIL(test, "2^(%d / 65536) falls", gain);
		before = value;
	}
}

static void ndm_test_apply_gain(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(10, 0), 11);
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(10, NDM_Q16), 21);
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(10, -NDM_Q16), 6);
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(11, -NDM_Q16), 6);
	/* Small steps: up always, down where they take more than a packet. */
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(4, NDM_Q16 / 64), 5);
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(4, -NDM_Q16 / 64), 4);
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(0, NDM_Q16), 1);
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(U32_MAX, NDM_Q16), U32_MAX);
	KUNIT_EXPECT_EQ(test, ndm_apply_gain(U32_MAX, 0), U32_MAX);
}

static void ndm_test_window(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ndm_window(0, 7, 20), 7);
	KUNIT_EXPECT_EQ(test, ndm_window(NDM_CA_RECOVERY, 7, 20), 20);
	KUNIT_EXPECT_EQ(test, ndm_window(NDM_CA_RECOVERY, 30, 20), 30);
	KUNIT_EXPECT_EQ(test, ndm_window(NDM_CA_RECOVERY, 7, NDM_NO_SSTHRESH), 7);
	KUNIT_EXPECT_EQ(test, ndm_window(NDM_CA_LOSS, 7, 20), 7);
}

static void ndm_test_sigmoid(struct kunit *test)
{
	u32 before = 0, value;
	s32 logit;

	KUNIT_EXPECT_EQ(test, ndm_sigmoid(0), 32768);
	for (logit = NDM_OUT_CONGESTION_LO; logit <= NDM_OUT_CONGESTION_HI; logit += 16) {
		value = ndm_sigmoid(logit);
		if (value < before || value > 65535)
			KUNIT_FAIL(test, "sigmoid(%d / 65536) is %u after %u", logit, value,
				   before);
		before = value;
	}
	/* 1 / (1 + e^-1) and 1 / (1 + e^1), Q16, to three digits */
	KUNIT_EXPECT_LT(test, abs((s32)ndm_sigmoid(NDM_Q16) - 47911), 8);
	KUNIT_EXPECT_LT(test, abs((s32)ndm_sigmoid(-NDM_Q16) - 17625), 8);
}

static void ndm_test_cut(struct kunit *test)
{
	u32 cwnd;

	/* Certain random loss costs next to nothing, certain overflow loss half. */
	KUNIT_EXPECT_EQ(test, ndm_cut(1000, NDM_OUT_CONGESTION_LO), 1000);
	KUNIT_EXPECT_EQ(test, ndm_cut(1000, NDM_OUT_CONGESTION_HI), 501);
	KUNIT_EXPECT_EQ(test, ndm_cut(1000, 0), 750);
	KUNIT_EXPECT_EQ(test, ndm_cut(0, 0), 0);
	for (cwnd = 1; cwnd; cwnd <<= 1) {
		KUNIT_EXPECT_GE(test, ndm_cut(cwnd, NDM_OUT_CONGESTION_HI), cwnd / 2);
		KUNIT_EXPECT_LE(test, ndm_cut(cwnd, NDM_OUT_CONGESTION_LO), cwnd);
	}
	KUNIT_EXPECT_GE(test, ndm_cut(U32_MAX, NDM_OUT_CONGESTION_HI), U32_MAX / 2);
	/* Without a queue doubt costs nothing. */
	KUNIT_EXPECT_EQ(test, ndm_cut_without_queue(1000, 0), 1000);
	KUNIT_EXPECT_EQ(test, ndm_cut_without_queue(1000, NDM_OUT_CONGESTION_LO), 1000);
	KUNIT_EXPECT_EQ(test, ndm_cut_without_queue(1000, NDM_OUT_CONGESTION_HI), 501);
	KUNIT_EXPECT_EQ(test, ndm_cut_without_queue(4, NDM_OUT_CONGESTION_HI), 3);
	KUNIT_EXPECT_EQ(test, ndm_cut_without_queue(1000, NDM_Q16), 769);
	KUNIT_EXPECT_GE(test, ndm_cut_without_queue(U32_MAX, NDM_OUT_CONGESTION_HI), U32_MAX / 2);
}

static void ndm_test_tanh(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ndm_tanh(0), 0);
	KUNIT_EXPECT_EQ(test, ndm_tanh(S32_MAX), S16_MAX);
	KUNIT_EXPECT_EQ(test, ndm_tanh(S32_MIN), -S16_MAX);
	KUNIT_EXPECT_EQ(test, ndm_tanh(12345), -ndm_tanh(-12345));
}

/* One flow of ten packets a round over 20 ms; the third round loses a packet. */
static struct ndm_ack ndm_test_ack(u32 round)
{
	return (struct ndm_ack){
		.now_us		= 20000 * round,
		.rtt_us		= 20000,
		.acked		= 10,
		.lost		= round == 3,
		.inflight	= 10,
		.cwnd		= 10,
		.ssthresh	= round < 3 ? 100 : 10,
		.srtt_us	= 20000,
		.rttvar_us	= 5000,
		.min_rtt_us	= 20000,
		.delivered	= 10 * round,
		.prior_delivered = 10 * (round - 1),
		.interval_us	= 20000,
	};
}

static void ndm_test_rounds(struct kunit *test)
{
	struct ndm_features f = {};
	s16 x[NDM_N_DENSE];
	struct ndm_ack ack;
	u32 round;

	ack = ndm_test_ack(0);
	KUNIT_EXPECT_EQ(test, ndm_features_ack(&f, &ack, x), NDM_ROUND_GOES_ON);
	for (round = 1; round <= 4; round++) {
		ack = ndm_test_ack(round);
		/* Neither an ACK for a packet from before the round ends it, */
		ack.prior_delivered -= 1;
		ack.lost = 0;
		KUNIT_EXPECT_EQ(test, ndm_features_ack(&f, &ack, x), NDM_ROUND_GOES_ON);
		/* nor one before min RTT is over. */
		ack.prior_delivered += 1;
		ack.now_us -= 1;
		KUNIT_EXPECT_EQ(test, ndm_features_ack(&f, &ack, x), NDM_ROUND_GOES_ON);
		ack = ndm_test_ack(round);
		KUNIT_EXPECT_EQ(test, ndm_features_ack(&f, &ack, x), NDM_ROUND_VALID);
		KUNIT_EXPECT_EQ(test, x[NDM_IN_RTT_RATIO], NDM_ONE);
		KUNIT_EXPECT_EQ(test, x[NDM_IN_BDP_RATIO], NDM_ONE - 1);
		KUNIT_EXPECT_EQ(test, x[NDM_IN_RTT_VARIATION], NDM_ONE / 4);
		KUNIT_EXPECT_EQ(test, x[NDM_IN_RTT_GRADIENT], 0);
		KUNIT_EXPECT_EQ(test, x[NDM_IN_DELIVERY_RATIO], NDM_ONE);
		KUNIT_EXPECT_EQ(test, x[NDM_IN_SLOW_START], round < 3 ? NDM_ONE : 0);
		KUNIT_EXPECT_EQ(test, x[NDM_IN_LOSS_RATE], round == 3 ? NDM_ONE / 11 : 0);
		KUNIT_EXPECT_EQ(test, x[NDM_IN_PLASTICITY],
				round < 3 ? 0 : round == 3 ? NDM_ONE : NDM_ONE * 15 / 16);
	}
	/* A timeout ends a round, once. */
	ack = ndm_test_ack(5);
	ack.prior_delivered -= 1;
	ack.ca_state = NDM_CA_LOSS;
	KUNIT_EXPECT_EQ(test, ndm_features_ack(&f, &ack, x), NDM_ROUND_VALID);
	KUNIT_EXPECT_EQ(test, ndm_features_ack(&f, &ack, x), NDM_ROUND_GOES_ON);
	/* Without an RTT there are no inputs. */
	ack = ndm_test_ack(7);
	ack.srtt_us = 0;
	KUNIT_EXPECT_EQ(test, ndm_features_ack(&f, &ack, x), NDM_ROUND_BLIND);
	KUNIT_EXPECT_EQ(test, x[NDM_IN_RTT_RATIO], 0);
}

/* Rounds until the watchdog takes over, at most limit. */
static u32 ndm_test_fires_after(struct ndm_watchdog *w, const s16 *x, u32 rate, bool limited,
				u32 limit)
{
	u32 n;

	for (n = 1; n <= limit; n++)
		if (ndm_watchdog_step(w, x, rate, limited, NDM_LAW_JITTER))
			return n;
	return 0;
}

static void ndm_test_watchdog(struct kunit *test)
{
	s16 short_queue[NDM_N_DENSE] = { [NDM_IN_RTT_RATIO] = NDM_ONE * 3 / 4 };
	s16 long_queue[NDM_N_DENSE] = { [NDM_IN_RTT_RATIO] = NDM_ONE / 4 };
	s16 loss[NDM_N_DENSE] = { [NDM_IN_LOSS_RATE] = NDM_ONE * 2 / 5 };
	s16 scattered[NDM_N_DENSE] = { [NDM_IN_LOSS_RATE] = NDM_ONE * 2 / 5,
					[NDM_IN_RTT_VARIATION] = NDM_FLOOD_SCATTER };
	struct ndm_watchdog w = {};

	/* The first rate is the best there was. */
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, short_queue, 1000, true, 100), 0);
	/* Not with a long queue, nor where the application limits the flow. */
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, long_queue, 200, true, 20), 0);
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, short_queue, 100, false, 20), 0);
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, short_queue, 100, true, 20), 10);
	KUNIT_EXPECT_EQ(test, (u32)w.left, NDM_WATCHDOG_ROUNDS);
	/* It does not take over twice. */
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, loss, 100, true, NDM_WATCHDOG_ROUNDS), 0);
	KUNIT_EXPECT_EQ(test, (u32)w.left, 0);
	/* Where RTTs scatter, packets may only be late. */
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, scattered, 100, false, 99), 0);
	/* A mean of a fifth: 2/5 (1 - (31/32)^n), and rounding */
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, loss, 100, false, 99), 22);
	/* One round with a higher rate, and the count starts again. */
	w.left = 0;
	w.best_rate = 1000;
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, short_queue, 100, true, 9), 0);
	KUNIT_EXPECT_FALSE(test, ndm_watchdog_step(&w, short_queue, 300, true, 0));
	KUNIT_EXPECT_EQ(test, ndm_test_fires_after(&w, short_queue, 100, true, 9), 0);
	KUNIT_EXPECT_EQ(test, (u32)w.starved, 9);
	ndm_watchdog_forget(&w);
	KUNIT_EXPECT_EQ(test, w.best_rate, 0);
	KUNIT_EXPECT_EQ(test, (u32)w.loss, 0);
	KUNIT_EXPECT_EQ(test, (u32)w.starved, 0);
}

/* Rounds until a drain begins, at most limit; phases as the network's rounds pass. */
static u32 ndm_test_drains_after(struct ndm_drain *d, u8 queue, bool may, u32 limit)
{
	u32 n;

	for (n = 1; n <= limit; n++)
		if (ndm_drain(d, queue, n, may) == NDM_DRAIN_BEGINS)
			return n;
	return 0;
}

static void ndm_test_drain(struct kunit *test)
{
	struct ndm_drain d = {};
	const u8 longer = NDM_DRAIN_QUEUE + 1;

	/* A queue of one baseline RTT is 32; without a baseline 0; it fits a byte. */
	KUNIT_EXPECT_EQ(test, ndm_shortest_queue(80000, 40000), 32);
	KUNIT_EXPECT_EQ(test, ndm_shortest_queue(40000, 40000), 0);
	KUNIT_EXPECT_EQ(test, ndm_shortest_queue(40000, 0), 0);
	KUNIT_EXPECT_EQ(test, ndm_shortest_queue(0, 40000), 0);
	KUNIT_EXPECT_EQ(test, ndm_shortest_queue(0xfffffffe, 1), 255);

	/* No drain for a queue that empties by itself, nor for a window too small to cut. */
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, NDM_DRAIN_QUEUE, true, 99), 0);
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, longer, false, 99), 0);
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, longer, true, 99), 1);
	/* Alone: 16 rounds, twice as many, eight times. */
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, 4, 0, true), NDM_DRAIN_EMPTIED);
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, longer, true, 999), 16);
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, 4, 0, true), NDM_DRAIN_EMPTIED);
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, longer, true, 999), 32);
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, 4, 0, true), NDM_DRAIN_EMPTIED);
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, longer, true, 999), 128);
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, 4, 0, true), NDM_DRAIN_EMPTIED);
	KUNIT_EXPECT_EQ(test, d.alone, NDM_DRAIN_ALONE);
	/* A queue that shrinks after its own drain is no sign of other flows. */
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, 3, 8, true), NDM_DRAIN_NOT);
	KUNIT_EXPECT_EQ(test, d.alone, NDM_DRAIN_ALONE);
	/* Other flows drain: 16 rounds from there. */
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, longer, true, 40), 0);
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, 2, 8, true), NDM_DRAIN_NOT);
	KUNIT_EXPECT_EQ(test, d.alone, 0);
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, longer, true, 999), 16);
	/* Other flows keep the queue, or do not. */
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, NDM_DRAIN_EMPTY + 1, 0, true), NDM_DRAIN_LINGERS);
	KUNIT_EXPECT_EQ(test, ndm_test_drains_after(&d, longer, true, 999), 16);
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, NDM_DRAIN_EMPTY, 0, true), NDM_DRAIN_EMPTIED);
	/* An RTT that falls by a sixteenth had a queue; one that does not is the path's. */
	KUNIT_EXPECT_NE(test, ndm_test_drains_after(&d, longer, true, 999), 0);
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, longer - 3, 0, true), NDM_DRAIN_LINGERS);
	KUNIT_EXPECT_NE(test, ndm_test_drains_after(&d, longer, true, 999), 0);
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, longer - 2, 0, true), NDM_DRAIN_IN_VAIN);
	KUNIT_EXPECT_EQ(test, d.shortest, 0);
	/* Of a queue that is no longer counted nothing is known. */
	KUNIT_EXPECT_NE(test, ndm_test_drains_after(&d, 255, true, 999), 0);
	KUNIT_EXPECT_EQ(test, ndm_drain(&d, 255, 0, true), NDM_DRAIN_LINGERS);
}

/* Each threshold of ndm_path.h from both sides. */
static void ndm_test_queue(struct kunit *test)
{
	s16 x[NDM_N_DENSE] = {};

	x[NDM_IN_RTT_GRADIENT] = NDM_ONE / 4;
	x[NDM_IN_RTT_VARIATION] = NDM_ONE / 8 - 1;
	KUNIT_EXPECT_FALSE(test, ndm_queue_grows(x));
	x[NDM_IN_RTT_GRADIENT]++;
	KUNIT_EXPECT_TRUE(test, ndm_queue_grows(x));
	x[NDM_IN_RTT_RATIO] = NDM_ONE * 4 / 5;
	KUNIT_EXPECT_TRUE(test, ndm_queue_stands(x));
	/* RTTs that scatter look like a queue. */
	x[NDM_IN_RTT_VARIATION]++;
	KUNIT_EXPECT_FALSE(test, ndm_queue_grows(x));
	KUNIT_EXPECT_FALSE(test, ndm_queue_stands(x));
	x[NDM_IN_RTT_VARIATION] = 0;
	x[NDM_IN_RTT_RATIO]++;
	KUNIT_EXPECT_FALSE(test, ndm_queue_stands(x));

	x[NDM_IN_RTT_RATIO] = NDM_ONE / 2;
	KUNIT_EXPECT_FALSE(test, ndm_queue_is_short(x));
	x[NDM_IN_RTT_RATIO]++;
	KUNIT_EXPECT_TRUE(test, ndm_queue_is_short(x));
	x[NDM_IN_RTT_RATIO] = NDM_ONE * 15 / 16;
	KUNIT_EXPECT_FALSE(test, ndm_queue_shows(x));
	x[NDM_IN_RTT_RATIO]--;
	KUNIT_EXPECT_TRUE(test, ndm_queue_shows(x));
	x[NDM_IN_QUEUE_FLOOR] = NDM_ONE / 4;
	KUNIT_EXPECT_FALSE(test, ndm_queue_empties(x));
	x[NDM_IN_QUEUE_FLOOR]--;
	KUNIT_EXPECT_TRUE(test, ndm_queue_empties(x));
}

static void ndm_test_queue_us(struct kunit *test)
{
	KUNIT_EXPECT_FALSE(test, ndm_queue_delays(50000, 40000));
	KUNIT_EXPECT_TRUE(test, ndm_queue_delays(50001, 40000));
	KUNIT_EXPECT_FALSE(test, ndm_queue_is_long(80000, 40000));
	KUNIT_EXPECT_TRUE(test, ndm_queue_is_long(80001, 40000));
	/* Products of 34 bits. */
	KUNIT_EXPECT_FALSE(test, ndm_queue_is_long(U32_MAX, U32_MAX));
	/* A min RTT of 0 is none: every srtt is longer. */
	KUNIT_EXPECT_TRUE(test, ndm_queue_delays(1, 0));
	KUNIT_EXPECT_FALSE(test, ndm_queue_persists(16));
	KUNIT_EXPECT_TRUE(test, ndm_queue_persists(17));
	KUNIT_EXPECT_TRUE(test, ndm_queue_is_drained(4));
	KUNIT_EXPECT_FALSE(test, ndm_queue_is_drained(5));
}

static void ndm_test_scatter(struct kunit *test)
{
	s16 x[NDM_N_DENSE] = {};

	x[NDM_IN_RTT_VARIATION] = NDM_ONE / 16;
	KUNIT_EXPECT_FALSE(test, ndm_nothing_overtakes(x));
	KUNIT_EXPECT_TRUE(test, ndm_rtt_is_steady(x));
	x[NDM_IN_RTT_VARIATION]--;
	KUNIT_EXPECT_TRUE(test, ndm_nothing_overtakes(x));
	x[NDM_IN_RTT_VARIATION] = NDM_ONE / 4;
	KUNIT_EXPECT_FALSE(test, ndm_losses_are_real(x));
	x[NDM_IN_RTT_VARIATION]--;
	KUNIT_EXPECT_TRUE(test, ndm_losses_are_real(x));
	KUNIT_EXPECT_FALSE(test, ndm_rtt_is_steady(x));

	KUNIT_EXPECT_TRUE(test, ndm_path_is_local(16000));
	KUNIT_EXPECT_FALSE(test, ndm_path_is_local(16001));
	KUNIT_EXPECT_FALSE(test, ndm_path_scatters(16000, false));
	KUNIT_EXPECT_TRUE(test, ndm_path_scatters(16000, true));
	KUNIT_EXPECT_TRUE(test, ndm_path_scatters(16001, false));
	/* srtt in 1/8 us, mdev in 1/4 us: rttvar below 1 ms of 8 ms, and at most 16 ms. */
	KUNIT_EXPECT_TRUE(test, ndm_lan_is_steady(8 * 8000, 4 * 1000 - 1));
	KUNIT_EXPECT_FALSE(test, ndm_lan_is_steady(8 * 8000, 4 * 1000));
	KUNIT_EXPECT_TRUE(test, ndm_lan_is_steady(8 * 16000 + 7, 0));
	KUNIT_EXPECT_FALSE(test, ndm_lan_is_steady(8 * 16001, 0));
}

static void ndm_test_rivals(struct kunit *test)
{
	s16 x[NDM_N_DENSE] = {
		[NDM_IN_LOSS_RATE_MEAN] = NDM_ONE / 128,
		[NDM_IN_RTT_RATIO] = NDM_ONE / 2,
	};

	KUNIT_EXPECT_TRUE(test, ndm_skips_packet(1, 16001, x, 0));
	KUNIT_EXPECT_FALSE(test, ndm_skips_packet(2, 1, x, 0));
	/* An eighth more, or a packet. */
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 40, x, 0, 0, 9), 45U);
	KUNIT_EXPECT_EQ(test, ndm_shared_target(9, 7, x, 0, 0, 9), 8U);
	KUNIT_EXPECT_EQ(test, ndm_shared_target(5, 7, x, 0, 0, 9), 5U);
	/* A quarter less, rounded up. */
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 41, x, 0, NDM_RIVALS_SURE, 1), 30U);
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 40, x, 0, NDM_RIVALS_SURE, 1), 30U);
	KUNIT_EXPECT_EQ(test, ndm_shared_target(20, 40, x, 0, NDM_RIVALS_SURE, 1), 20U);
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 40, x, 0, NDM_RIVALS_SURE - 1, 1), 45U);
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 40, x, 0, NDM_RIVALS_SURE, 0), 45U);
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 0, x, 0, NDM_RIVALS_SURE, 1), 0U);

	/* Losses that may be none. */
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 40, x, NDM_LAW_REORDERS, NDM_RIVALS_SURE, 1),
			60U);
	KUNIT_EXPECT_FALSE(test, ndm_skips_packet(1, 16001, x, NDM_LAW_REORDERS));

	/* 384 x 128 is 221.7^2. */
	KUNIT_EXPECT_FALSE(test, ndm_is_unrivalled(221, x));
	KUNIT_EXPECT_TRUE(test, ndm_is_unrivalled(222, x));
	KUNIT_EXPECT_TRUE(test, ndm_is_unrivalled((1 << 20) - 1, x));
	/* What rounding leaves of losses long ago. */
	x[NDM_IN_LOSS_RATE_MEAN] = 7;
	KUNIT_EXPECT_FALSE(test, ndm_is_unrivalled((1 << 20) - 1, x));
	x[NDM_IN_LOSS_RATE_MEAN] = NDM_ONE / 128;

	/* Rare losses, a queue that the RTT does not show, scattered RTTs. */
	x[NDM_IN_LOSS_RATE_MEAN]--;
	KUNIT_EXPECT_FALSE(test, ndm_is_unrivalled(222, x));
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 40, x, 0, NDM_RIVALS_SURE, 1), 60U);
	KUNIT_EXPECT_FALSE(test, ndm_skips_packet(1, 16001, x, 0));
	KUNIT_EXPECT_TRUE(test, ndm_skips_packet(1, 16000, x, 0));
	x[NDM_IN_LOSS_RATE_MEAN]++;
	x[NDM_IN_RTT_RATIO] = NDM_ONE * 9 / 10;
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 40, x, 0, NDM_RIVALS_SURE, 1), 60U);
	x[NDM_IN_RTT_RATIO] = NDM_ONE / 2;
	x[NDM_IN_RTT_VARIATION] = NDM_ONE / 8;
	KUNIT_EXPECT_EQ(test, ndm_shared_target(60, 40, x, 0, NDM_RIVALS_SURE, 1), 60U);
}

static void ndm_test_full_pipe(struct kunit *test)
{
	s16 x[NDM_N_DENSE] = {};

	x[NDM_IN_BDP_RATIO] = NDM_ONE * 3 / 8;
	KUNIT_EXPECT_FALSE(test, ndm_pipe_is_full(x));
	x[NDM_IN_BDP_RATIO]--;
	KUNIT_EXPECT_TRUE(test, ndm_pipe_is_full(x));
	x[NDM_IN_RTT_GRADIENT] = NDM_ONE / 8;
	KUNIT_EXPECT_FALSE(test, ndm_rtt_rises(x));
	x[NDM_IN_RTT_GRADIENT]++;
	KUNIT_EXPECT_TRUE(test, ndm_rtt_rises(x));
	x[NDM_IN_RTT_GRADIENT] = 0;
	KUNIT_EXPECT_FALSE(test, ndm_srtt_rose(33000, 32000));
	KUNIT_EXPECT_TRUE(test, ndm_srtt_rose(33001, 32000));
	KUNIT_EXPECT_FALSE(test, ndm_srtt_rose(0, 0));
	/* Three quarters of the half that was not lost. */
	KUNIT_EXPECT_FALSE(test, ndm_pipe_has_room(x));
	x[NDM_IN_LOSS_RATE] = NDM_ONE / 2;
	KUNIT_EXPECT_FALSE(test, ndm_pipe_has_room(x));
	x[NDM_IN_BDP_RATIO]++;
	KUNIT_EXPECT_TRUE(test, ndm_pipe_has_room(x));

	/* A quarter more; three quarters while a queue grows. */
	KUNIT_EXPECT_FALSE(test, ndm_rate_grew(1249, 1000, x));
	KUNIT_EXPECT_TRUE(test, ndm_rate_grew(1250, 1000, x));
	x[NDM_IN_RTT_GRADIENT] = NDM_ONE / 2;
	KUNIT_EXPECT_FALSE(test, ndm_rate_grew(1749, 1000, x));
	KUNIT_EXPECT_TRUE(test, ndm_rate_grew(1750, 1000, x));
	KUNIT_EXPECT_TRUE(test, ndm_rate_grew(0, 0, x));
	KUNIT_EXPECT_FALSE(test, ndm_rate_grew(U32_MAX, U32_MAX, x));
	KUNIT_EXPECT_FALSE(test, ndm_rate_collapsed(250, 1000));
	KUNIT_EXPECT_TRUE(test, ndm_rate_collapsed(249, 1000));
}

static void ndm_test_pauses(struct kunit *test)
{
	s16 x[NDM_N_DENSE] = {};

	KUNIT_EXPECT_FALSE(test, ndm_hosts_pause(5000, 4000));
	KUNIT_EXPECT_TRUE(test, ndm_hosts_pause(5001, 4000));
	KUNIT_EXPECT_FALSE(test, ndm_pauses_are_long(10000, 4000));
	KUNIT_EXPECT_TRUE(test, ndm_pauses_are_long(10001, 4000));
	x[NDM_IN_LOSS_RATE] = NDM_ONE / 32;
	KUNIT_EXPECT_TRUE(test, ndm_pauses_overflow(x));
	x[NDM_IN_LOSS_RATE]--;
	KUNIT_EXPECT_FALSE(test, ndm_pauses_overflow(x));
}

static void ndm_test_golden(struct kunit *test)
{
	struct ndm_selftest_result r = {};
	const char *failure = ndm_selftest(&r);

	KUNIT_EXPECT_TRUE_MSG(test, !failure, "%s: index %u, element %u: want %d, got %d",
			      failure ? failure : "", r.index, r.element, r.want, r.got);
}

static struct kunit_case ndm_cases[] = {
	KUNIT_CASE(ndm_test_exp2),
	KUNIT_CASE(ndm_test_apply_gain),
	KUNIT_CASE(ndm_test_window),
	KUNIT_CASE(ndm_test_sigmoid),
	KUNIT_CASE(ndm_test_cut),
	KUNIT_CASE(ndm_test_tanh),
	KUNIT_CASE(ndm_test_rounds),
	KUNIT_CASE(ndm_test_watchdog),
	KUNIT_CASE(ndm_test_drain),
	KUNIT_CASE(ndm_test_ceiling),
	KUNIT_CASE(ndm_test_ceiling_overtaking),
	KUNIT_CASE(ndm_test_ceiling_unfilled),
	KUNIT_CASE(ndm_test_queue),
	KUNIT_CASE(ndm_test_queue_us),
	KUNIT_CASE(ndm_test_scatter),
	KUNIT_CASE(ndm_test_rivals),
	KUNIT_CASE(ndm_test_full_pipe),
	KUNIT_CASE(ndm_test_pauses),
	KUNIT_CASE(ndm_test_golden),
	{}
};

static struct kunit_suite ndm_suite = {
	.name = "ndm_tcp",
	.test_cases = ndm_cases,
};

kunit_test_suite(ndm_suite);

MODULE_AUTHOR("The NDM-TCP authors");
MODULE_DESCRIPTION("Tests of NDM-TCP's pure functions");
MODULE_LICENSE("GPL");
