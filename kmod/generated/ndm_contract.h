/* SPDX-License-Identifier: GPL-2.0-only */
/* Do not edit directly, auto-generated from: */
/*	src/ndm_tcp/contract.py */
/* contract e72388f9d30b4773 */

#ifndef _NDM_CONTRACT_H
#define _NDM_CONTRACT_H

#include "../ndm_types.h"

#define NDM_CONTRACT_HASH	"e72388f9d30b4773"
#define NDM_CONTRACT_ID		0xe72388f9d30b4773ULL

#define NDM_REVISION	4
#define NDM_Q_INPUT	12
#define NDM_Q_ACT	15
#define NDM_Q_PRE	16
#define NDM_TANH_RANGE_LOG2	3
#define NDM_TANH_STEPS_LOG2	11
#define NDM_EXP2_STEPS_LOG2	5
#define NDM_MAX_WIDTH	64
#define NDM_MAX_LAYERS	4
#define NDM_WEIGHT_SHIFT_MIN	5
#define NDM_WEIGHT_SHIFT_MAX	15
#define NDM_ENTROPY_RING	16
#define NDM_RTT_SAMPLES_PER_ROUND	4
#define NDM_RTT_BINS_PER_SRTT	16
#define NDM_ENTROPY_LOSS_WEIGHT	2458
#define NDM_ENTROPY_DELAY_WEIGHT	1638
#define NDM_PLASTICITY_DECAY_SHIFT	4
#define NDM_MAX_RATE_HALF_ROUNDS	5
#define NDM_FLOOR_HALF_ROUNDS	4
#define NDM_RATE_SHIFT	24
#define NDM_PRIVATE_BYTES	104
#define NDM_N_INPUTS	10
#define NDM_N_MEANS	8
#define NDM_N_DENSE	18
#define NDM_N_OUTPUTS	2
#define NDM_MEAN_SHIFT	4
#define NDM_MEAN_BITS	2
#define NDM_MEAN_OFFSET	32768
#define NDM_ONE	(1 << NDM_Q_INPUT)

/* What the dense layers take, Q12; numbered from 1 everywhere but here. */
enum ndm_input {
	/* 1: min_rtt / srtt; [0, 1] */
	NDM_IN_RTT_RATIO,
	/* 2: lost / (lost + delivered) in the round; [0, 1] */
	NDM_IN_LOSS_RATE,
	/* 3: max_rate x min_rtt / cwnd; [0, 2] */
	NDM_IN_BDP_RATIO,
	/* 4: 0.6 x H_loss + 0.4 x H_delay, each normalised; [0, 1] */
	NDM_IN_ENTROPY,
	/* 5: 1 if cwnd < ssthresh; [0, 1] */
	NDM_IN_SLOW_START,
	/* 6: 1 at a loss event, times 15/16 per round; [0, 1] */
	NDM_IN_PLASTICITY,
	/* 7: rttvar / srtt; [0, 2] */
	NDM_IN_RTT_VARIATION,
	/* 8: (srtt - srtt of the round before) / srtt of the round before; [-1, 1] */
	NDM_IN_RTT_GRADIENT,
	/* 9: delivery rate / max_rate; [0, 1] */
	NDM_IN_DELIVERY_RATIO,
	/* 10: (lowest RTT of the last 4-8 rounds - min_rtt) / (highest of them - min_rtt); [0, 1] */
	NDM_IN_QUEUE_FLOOR,
	/* 11: mean of input 1 over some 16 rounds; [0, 1] */
	NDM_IN_RTT_RATIO_MEAN,
	/* 12: mean of input 2 over some 16 rounds; [0, 1] */
	NDM_IN_LOSS_RATE_MEAN,
	/* 13: mean of input 3 over some 16 rounds; [0, 2] */
	NDM_IN_BDP_RATIO_MEAN,
	/* 14: mean of input 6 over some 16 rounds; [0, 1] */
	NDM_IN_PLASTICITY_MEAN,
	/* 15: mean of input 7 over some 16 rounds; [0, 2] */
	NDM_IN_RTT_VARIATION_MEAN,
	/* 16: mean of input 8 over some 16 rounds; [-1, 1] */
	NDM_IN_RTT_GRADIENT_MEAN,
	/* 17: mean of input 9 over some 16 rounds; [0, 1] */
	NDM_IN_DELIVERY_RATIO_MEAN,
	/* 18: mean of input 10 over some 16 rounds; [0, 1] */
	NDM_IN_QUEUE_FLOOR_MEAN,
};

/* The inputs that the memory keeps means of, by enum ndm_input. */
static const u8 ndm_memory_of[8] = {
	0, 1, 2, 5, 6, 7, 8, 9,
};

/* The two outputs, Q16. */
enum ndm_output {
	NDM_OUT_CWND_GAIN,	/* log2 multiplier on cwnd for the next round */
	NDM_OUT_CONGESTION,	/* logit that a loss now is congestion, not noise */
};

#define NDM_OUT_CWND_GAIN_LO	(-65536)
#define NDM_OUT_CWND_GAIN_HI	(65536)
#define NDM_OUT_CONGESTION_LO	(-524288)
#define NDM_OUT_CONGESTION_HI	(524288)

/* What an ACK tells; the same from the kernel and from a capture. */
struct ndm_ack {
	u64 now_us;	/* arrival of the ACK, us, any epoch */
	s32 rtt_us;	/* raw RTT sample of this ACK, us; -1: none */
	u32 acked;	/* packets newly delivered (cumulatively or by SACK) */
	u32 lost;	/* packets newly marked lost */
	u32 inflight;	/* packets in flight after this ACK */
	u32 cwnd;	/* congestion window, packets, before this ACK changes it */
	u32 ssthresh;	/* slow start threshold, packets */
	u32 srtt_us;	/* smoothed RTT, us; 0: none yet */
	u32 rttvar_us;	/* mean deviation of the RTT, us (tcp_info's rttvar) */
	u32 min_rtt_us;	/* lowest RTT of the connection, us; 0: none yet */
	u32 delivered;	/* packets delivered so far, wraps */
	u32 prior_delivered;	/* `delivered` when the newest packet acked here was sent */
	s32 interval_us;	/* interval of the rate sample, us; -1: invalid */
	u32 app_limited;	/* 1: the rate sample is limited by the application */
	u32 ca_state;	/* 0 Open, 1 Disorder, 2 CWR, 3 Recovery, 4 Loss */
};

static_assert(NDM_ENTROPY_LOSS_WEIGHT + NDM_ENTROPY_DELAY_WEIGHT == NDM_ONE,
	      "the entropy weights add to one");

#endif /* _NDM_CONTRACT_H */
