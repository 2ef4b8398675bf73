/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Per-ACK records to the ten inputs, once per packet-timed round.
 *
 * This is the only implementation: the kernel module and the dataset builder
 * compile this file, so training and kernel cannot drift apart. An ACK costs
 * additions and comparisons; divisions and entropies come once per round. Rare code is
 * not inlined, so that the common ACK needs few registers.
 */
#ifndef _NDM_FEATURES_H
#define _NDM_FEATURES_H

#include "generated/ndm_contract.h"
#include "generated/ndm_tables.h"
#include "ndm_path.h"

#define NDM_CA_OPEN	0	/* TCP_CA_Open */
#define NDM_CA_RECOVERY	3	/* TCP_CA_Recovery */
#define NDM_CA_LOSS	4	/* TCP_CA_Loss */
#define NDM_NO_SSTHRESH	0x7fffffff	/* TCP_INFINITE_SSTHRESH */
#define NDM_LONG_US	0xffffffU	/* the longest RTT kept; as min RTT: none */

#define NDM_PAUSE_SHIFT		6	/* a pause is kept in units of 64 us */
#define NDM_PAUSE_FADE		4	/* by 1/16 in a round */
#define NDM_LATE_PACKETS	4	/* by one ACK: a receiver acknowledges two at once anyway */

/* What an ACK did to the round. */
enum ndm_round {
	NDM_ROUND_GOES_ON,	/* no round ended */
	NDM_ROUND_VALID,	/* a round ended, the inputs are good */
	NDM_ROUND_BLIND,	/* a round ended without RTT, rate or window */
};

/*
 * Per flow. Times that only the end of a round reads have 24 bits, in microseconds: an RTT
 * of more than 16.7 s counts as 16.7 s. :0 keeps the words apart: for BPF clang else loads and
 * stores neighbours together.
 */
struct ndm_features {
	u64 rtt_ring;		/* bins of RTT samples, newest in the low nibble */
	u64 gap_ring;		/* log2 of gaps between losses, likewise */
	u64 rate_delivered:24,	/* newest valid rate sample of this round: packets, */
	    callers_us:24,	/* the caller's own, not read here */
	    callers_lost:16;	/* likewise */
	u32 round_delivered;	/* packets delivered when the round began */
	u32 loss_delivered;	/* packets delivered at the newest loss */
	u32 rate_interval_us;	/* and microseconds; 0: none yet */
	u32 max_rate[2];	/* highest rate, Q24 packets/us: this half window, the last */
	u32 floor_lo_us:24,	/* lowest raw RTT of this half window */
	    ack_time:8;		/* of the newest ACK, 64 us, modulo 2^8 */
	u32:0;
	u32 floor_hi_us:24,	/* highest raw RTT, likewise */
	    pause:8;		/* longest wait for an ACK, fading, 64 us */
	u32:0;
	u32 last_lo_us:24,	/* lowest raw RTT of the last half window */
	    rtt_n:5,		/* samples in rtt_ring */
	    rtt_taken:3;	/* samples taken in this round */
	u32:0;
	u32 last_hi_us:24,	/* highest raw RTT, likewise */
	    gap_n:5,		/* samples in gap_ring */
	    rate_rounds:3;	/* rounds in this half window of max_rate */
	u32:0;
	u32 srtt_us:24,		/* smoothed RTT when the previous round ended */
	    floor_rounds:3,	/* rounds in this half window of floor_*_us */
	    started:1,
	    in_loss:1,		/* the previous ACK was in CA_Loss */
	    paused:1,		/* hosts hold ACKs back for more than a quarter of min_rtt */
	    callers_flags:2;	/* the caller's own */
	u32:0;
	u32 sample_us:24,	/* when the newest RTT entered the ring, modulo 2^24 */
	    callers:8;		/* likewise the caller's own */
	u16 plasticity;		/* Q12 */
	u16 round_lost;		/* packets marked lost in this round, at most 65535 */
	u32 round_us;		/* when the round began, modulo 2^32 */
};

/* min(numerator / denominator, limit), Q12; numerator < 2^52. */
static inline u32 ndm_ratio(u64 numerator, u64 denominator, u32 limit)
{
	u64 ratio;

	if (!denominator)
		return limit;
	ratio = ndm_div(numerator << NDM_Q_INPUT, denominator);
	return ratio < limit ? (u32)ratio : limit;
}

/*
 * The sender's window, packets. In a recovery that is ssthresh: cwnd follows the packets
 * in flight, which are few when reordering made many packets look lost.
 */
static inline u32 ndm_window(u32 ca_state, u32 cwnd, u32 ssthresh)
{
	if (ca_state != NDM_CA_RECOVERY || ssthresh >= NDM_NO_SSTHRESH)
		return cwnd;
	return ndm_max(cwnd, ssthresh);
}

static inline u8 ndm_push(u64 *ring, u8 n, u32 bin)
{
	*ring = *ring << 4 | bin;
	return n < NDM_ENTROPY_RING ? n + 1 : n;
}

/*
 * Shannon entropy of the n newest bins, over the 4 bits it could be, Q12.
 * H = log2(n) - sum(k log2 k) / n, with k the count of each bin.
 */
static inline u32 ndm_entropy(u64 ring, u32 n)
{
	u8 count[16] = { 0 };
	u32 sum = 0, i;

	if (n < 2)
		return 0;
	/* A bin of k that becomes one of k + 1. */
	for (i = n; i; i--, ring >>= 4)
		sum += ndm_klog2k_step[ndm_known(count[ring & 15]++, NDM_ENTROPY_RING - 1)];
	return (ndm_log2_table[ndm_known(n, NDM_ENTROPY_RING)] - sum / n) >> (16 + 2 - NDM_Q_INPUT);
}

/* The bin of an RTT into the ring: four times a round. */
static NDM_RARE void ndm_push_rtt(struct ndm_features *f, u32 now_us, u32 rtt_us, u32 srtt_us)
{
	u64 bin;

	if (!srtt_us)
		return;
	/* Bin 8 is centred on srtt: floor(rtt * 16 / srtt + 1/2) - 8. */
	bin = ndm_div((u64)rtt_us * NDM_RTT_BINS_PER_SRTT * 2 + srtt_us, 2 * (u64)srtt_us);
	bin = bin < 8 ? 0 : bin - 8;
	f->rtt_n = ndm_push(&f->rtt_ring, f->rtt_n, bin < 15 ? (u32)bin : 15);
	f->sample_us = now_us & NDM_LONG_US;
	f->rtt_taken++;
}

/* A spread RTT sample: at most one per quarter of srtt and four per round. */
static inline void ndm_take_rtt(struct ndm_features *f, const struct ndm_ack *ack)
{
	u32 now = (u32)ack->now_us, rtt = (u32)ack->rtt_us;

	if (rtt < f->floor_lo_us)
		f->floor_lo_us = rtt;
	if (rtt > f->floor_hi_us)
		f->floor_hi_us = ndm_min(rtt, NDM_LONG_US);
	if (f->rtt_taken != NDM_RTT_SAMPLES_PER_ROUND &&
	    (!f->rtt_n || ((now - f->sample_us) & NDM_LONG_US) >=
			  ack->srtt_us / NDM_RTT_SAMPLES_PER_ROUND))
		ndm_push_rtt(f, now, rtt, ack->srtt_us);
}

/* Min RTT and the longest of the hosts' pauses, us. */
static inline u32 ndm_paused_us(const struct ndm_features *f, u32 min_rtt_us)
{
	return min_rtt_us + ((u32)f->pause << NDM_PAUSE_SHIFT);
}

/*
 * Baseline RTT, us: min RTT and the pauses of the hosts, the RTT that a path without a queue
 * shows. From NDM_BASELINE_US on it is min RTT alone.
 */
static inline u32 ndm_baseline_us(const struct ndm_features *f, u32 min_rtt_us)
{
	return ndm_max(min_rtt_us, ndm_min(ndm_paused_us(f, min_rtt_us), NDM_BASELINE_US));
}

/* Losses marked together lie zero packets apart; the first one ends a gap. */
static NDM_RARE void ndm_take_loss(struct ndm_features *f, u32 delivered, u32 lost)
{
	u32 gap = delivered - f->loss_delivered;
	u32 more = ndm_min(lost - 1, NDM_ENTROPY_RING);

	f->gap_n = ndm_push(&f->gap_ring, f->gap_n, ndm_min(ndm_bit_length(gap), 15));
	while (more--)
		f->gap_n = ndm_push(&f->gap_ring, f->gap_n, 0);
	f->loss_delivered = delivered;
	f->round_lost += (u16)ndm_min(lost, 0xffffU - f->round_lost);
	f->plasticity = NDM_ONE;
}

/* Q24 packets/us; u32 holds 715 bit/s to 3 Tbit/s of 1500-byte packets. */
static inline u32 ndm_rate(u32 packets, u32 interval_us)
{
	u64 rate = ndm_div((u64)packets << NDM_RATE_SHIFT, interval_us);

	return rate < 0xffffffffU ? (u32)rate : 0xffffffffU;
}

/* A sample limited by the application counts only if it raises the maximum. */
static inline void ndm_update_max_rate(struct ndm_features *f, u32 rate, bool app_limited)
{
	if (app_limited && rate < ndm_max(f->max_rate[0], f->max_rate[1]))
		return;
	f->max_rate[0] = ndm_max(f->max_rate[0], rate);
	if (++f->rate_rounds < NDM_MAX_RATE_HALF_ROUNDS)
		return;
	f->max_rate[1] = f->max_rate[0];
	f->max_rate[0] = rate;
	f->rate_rounds = 0;
}

/*
 * The newest sample of a round stands for its rate. Where ACKs come in groups, the sample with
 * the highest rate does: the first ACK of a group ends the round, and its sample has the whole
 * pause but almost none of the packets that arrived in it.
 */
static inline void ndm_take_rate(struct ndm_features *f, u32 packets, u32 interval_us)
{
	packets = ndm_min(packets, 0xffffffU);
	if (f->paused && f->rate_interval_us &&
	    (u64)packets * f->rate_interval_us < (u64)f->rate_delivered * interval_us)
		return;
	f->rate_delivered = packets;
	f->rate_interval_us = interval_us;
}

static inline void ndm_floor_restart(struct ndm_features *f)
{
	f->floor_lo_us = NDM_LONG_US;
	f->floor_hi_us = 0;
	f->floor_rounds = 0;
}

/* The lowest raw RTT of the last 4 to 8 rounds, us; 0: none. */
static inline u32 ndm_lowest_us(const struct ndm_features *f)
{
	u32 lo = ndm_min(f->floor_lo_us, f->last_lo_us);

	return lo < NDM_LONG_US ? lo : 0;
}

/*
 * How long a host held an ACK back: the time without an ACK, up to the excess of its RTT over
 * the lowest of the last rounds. A link and a queue pass ACKs steadily; a busy host, Wi-Fi and
 * delayed interrupts pass them in groups. waited: 64 us, at most a unit too much.
 * min_rtt_us: in place of that lowest RTT; 0: none.
 */
static NDM_RARE void ndm_take_pause(struct ndm_features *f, u32 waited, u32 rtt_us, u32 min_rtt_us)
{
	u32 lowest_us = min_rtt_us ? min_rtt_us : ndm_lowest_us(f);
	u32 held_us = lowest_us && rtt_us > lowest_us ? rtt_us - lowest_us : 0;

	held_us = ndm_min(held_us >> NDM_PAUSE_SHIFT, waited);
	f->pause = (u8)ndm_max(f->pause, held_us);
}

/* One ACK for half of the window: the receiving program reads late. */
static inline bool ndm_was_read_late(const struct ndm_ack *ack)
{
	return ack->acked >= NDM_LATE_PACKETS && 2 * (u64)ack->acked >= ack->cwnd;
}

static inline u32 ndm_queue_floor(const struct ndm_features *f, u32 baseline_us)
{
	u32 lo = ndm_lowest_us(f);
	u32 hi = ndm_max(f->floor_hi_us, f->last_hi_us);

	if (lo <= baseline_us || hi <= baseline_us || lo > hi)
		return 0;
	return ndm_ratio(lo - baseline_us, hi - baseline_us, NDM_ONE);
}

static inline s32 ndm_gradient(u32 now_us, u32 before_us)
{
	if (!before_us || now_us == before_us)
		return 0;
	if (now_us > before_us)
		return (s32)ndm_ratio(now_us - before_us, before_us, NDM_ONE);
	return -(s32)ndm_ratio(before_us - now_us, before_us, NDM_ONE);
}

/* The inputs of a round. False: no RTT, rate or window. */
static inline bool ndm_features_inputs(const struct ndm_features *f, const struct ndm_ack *ack,
				       u32 rate, s16 x[NDM_N_INPUTS])
{
	u32 delivered = ack->delivered - f->round_delivered;
	u32 max_rate = ndm_max(f->max_rate[0], f->max_rate[1]);
	u32 window = ndm_window(ack->ca_state, ack->cwnd, ack->ssthresh);
	u32 baseline_us = ndm_baseline_us(f, ack->min_rtt_us);
	u32 h_loss, h_rtt;

	if (!ack->srtt_us || !ack->min_rtt_us || !window || !max_rate)
		return false;
	h_loss = ndm_entropy(f->gap_ring, f->gap_n);
	h_rtt = ndm_entropy(f->rtt_ring, f->rtt_n);
	x[NDM_IN_RTT_RATIO] = (s16)ndm_ratio(baseline_us, ack->srtt_us, NDM_ONE);
	x[NDM_IN_LOSS_RATE] = (s16)(f->round_lost ? ndm_ratio(f->round_lost,
		(u64)f->round_lost + delivered, NDM_ONE) : 0);
	x[NDM_IN_BDP_RATIO] = (s16)ndm_ratio(((u64)max_rate * baseline_us) >> NDM_Q_INPUT,
		(u64)window << (NDM_RATE_SHIFT - NDM_Q_INPUT), 2 * NDM_ONE);
	x[NDM_IN_ENTROPY] = (s16)((h_loss * NDM_ENTROPY_LOSS_WEIGHT +
		h_rtt * NDM_ENTROPY_DELAY_WEIGHT + NDM_ONE / 2) >> NDM_Q_INPUT);
	x[NDM_IN_SLOW_START] = window < ack->ssthresh ? NDM_ONE : 0;
	x[NDM_IN_PLASTICITY] = (s16)f->plasticity;
	x[NDM_IN_RTT_VARIATION] = (s16)ndm_ratio(ack->rttvar_us, ack->srtt_us, 2 * NDM_ONE);
	x[NDM_IN_RTT_GRADIENT] = (s16)ndm_gradient(ack->srtt_us, f->srtt_us);
	x[NDM_IN_DELIVERY_RATIO] = (s16)ndm_ratio(rate, max_rate, NDM_ONE);
	x[NDM_IN_QUEUE_FLOOR] = (s16)ndm_queue_floor(f, baseline_us);
	return true;
}

static inline void ndm_features_next_round(struct ndm_features *f, const struct ndm_ack *ack)
{
	f->round_delivered = ack->delivered;
	f->round_us = (u32)ack->now_us;
	f->round_lost = 0;
	f->rate_interval_us = 0;
	f->rtt_taken = 0;
	f->srtt_us = ndm_min(ack->srtt_us, NDM_LONG_US);
	if (!ndm_path_is_local(f->srtt_us))
		f->pause = 0;
	f->paused = ndm_hosts_pause(ndm_baseline_us(f, ack->min_rtt_us), ack->min_rtt_us);
	/* Rounded up, so that it ends at none. */
	f->pause -= (f->pause + (1U << NDM_PAUSE_FADE) - 1) >> NDM_PAUSE_FADE;
	f->plasticity -= f->plasticity >> NDM_PLASTICITY_DECAY_SHIFT;
	if (f->plasticity < 1 << NDM_PLASTICITY_DECAY_SHIFT)
		f->plasticity = 0;
	if (++f->floor_rounds == NDM_FLOOR_HALF_ROUNDS) {
		f->last_lo_us = ndm_min(f->floor_lo_us, NDM_LONG_US);
		f->last_hi_us = ndm_min(f->floor_hi_us, NDM_LONG_US);
		ndm_floor_restart(f);
	}
}

static NDM_RARE void ndm_features_start(struct ndm_features *f, u32 delivered, u32 srtt_us,
					u32 now_us)
{
	memset(f, 0, sizeof(*f));
	f->round_delivered = delivered;
	f->round_us = now_us;
	f->loss_delivered = delivered;
	f->srtt_us = ndm_min(srtt_us, NDM_LONG_US);
	f->ack_time = (u8)(now_us >> NDM_PAUSE_SHIFT);
	f->last_lo_us = NDM_LONG_US;
	ndm_floor_restart(f);
	f->started = 1;
}

/*
 * Was it a round of requests and responses? The application leaves more than half of the
 * window unused, and nothing is lost: such a round shows nothing of the path's capacity,
 * and comes with every ACK. flight: packets, before the ACK that ended it.
 */
static inline bool ndm_round_is_quiet(const struct ndm_features *f, bool app_limited, u32 ca_state,
				      u64 flight, u32 cwnd)
{
	return app_limited && 2 * flight < cwnd && !f->round_lost && ca_state == NDM_CA_OPEN;
}

/* Begin a quiet round anew, without inputs; nothing is forgotten. */
static inline void ndm_pass_round(struct ndm_features *f, const struct ndm_ack *ack)
{
	f->round_delivered = ack->delivered;
	f->round_us = (u32)ack->now_us;
	f->rate_interval_us = 0;
	f->srtt_us = ndm_min(ack->srtt_us, NDM_LONG_US);
}

/* The work of a round's end. x: its inputs, all zero if it was blind. */
static NDM_COMMON enum ndm_round ndm_features_end_round(struct ndm_features *f,
							const struct ndm_ack *ack,
							s16 x[NDM_N_INPUTS])
{
	bool valid;
	u32 rate = 0;

	if (f->rate_interval_us) {
		rate = ndm_rate((u32)f->rate_delivered, f->rate_interval_us);
		ndm_update_max_rate(f, rate, ack->app_limited);
	}
	valid = ndm_features_inputs(f, ack, rate, x) && f->rate_interval_us;
	if (!valid)
		memset(x, 0, NDM_N_INPUTS * sizeof(*x));
	ndm_features_next_round(f, ack);
	return valid ? NDM_ROUND_VALID : NDM_ROUND_BLIND;
}

/*
 * Take one ACK. f: all zero before the first. True if it ends a round: the first for a
 * packet sent after the round began, min RTT or more after that, or at an RTO. (Sooner it
 * is the ACK of a packet that was late, not lost, taken for that of its retransmission.)
 * Next is ndm_pass_round() if ndm_round_is_quiet(), else ndm_features_end_round(). The
 * record's inflight, cwnd, ssthresh, rttvar_us and app_limited matter only there.
 */
static NDM_COMMON bool ndm_features_take(struct ndm_features *f, const struct ndm_ack *ack)
{
	u8 now = (u8)(ack->now_us >> NDM_PAUSE_SHIFT), waited;
	bool loss = ack->ca_state == NDM_CA_LOSS;
	bool rto = false;

	if (!f->started)
		ndm_features_start(f, ack->delivered, ack->srtt_us, (u32)ack->now_us);
	waited = now - f->ack_time;
	if (f->in_loss != loss) {
		f->in_loss = loss;
		rto = loss;
	}
	if (ack->rtt_us > 0) {
		if (ndm_path_is_local(f->srtt_us) && waited > f->pause + 1) {
			/* Every round has that pause; raw is the RTT of the newest packet. */
			if (ndm_was_read_late(ack))
				ndm_take_pause(f, waited - 1U, ack->srtt_us, ack->min_rtt_us);
			else
				ndm_take_pause(f, waited - 1U, (u32)ack->rtt_us, 0);
		}
		ndm_take_rtt(f, ack);
	}
	/* Here, because a load of the word around it would wait for this store. */
	f->ack_time = now;
	if (ack->lost)
		ndm_take_loss(f, ack->delivered, ack->lost);
	if (rto)
		f->plasticity = NDM_ONE;
	if (ack->acked && ack->interval_us > 0)
		ndm_take_rate(f, ack->delivered - ack->prior_delivered, (u32)ack->interval_us);
	return rto || (ack->acked && !ndm_before(ack->prior_delivered, f->round_delivered) &&
		       (u32)ack->now_us - f->round_us >= ack->min_rtt_us);
}

/* An ACK and, if it ends one, the round; x is written then. */
static inline enum ndm_round ndm_features_ack(struct ndm_features *f, const struct ndm_ack *ack,
					      s16 x[NDM_N_INPUTS])
{
	if (!ndm_features_take(f, ack))
		return NDM_ROUND_GOES_ON;
	if (ndm_round_is_quiet(f, ack->app_limited, ack->ca_state,
			       (u64)ack->inflight + ack->acked, ack->cwnd)) {
		ndm_pass_round(f, ack);
		return NDM_ROUND_GOES_ON;
	}
	return ndm_features_end_round(f, ack, x);
}

#endif /* _NDM_FEATURES_H */
