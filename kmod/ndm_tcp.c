// SPDX-License-Identifier: GPL-2.0-only
/*
 * NDM-TCP: congestion control by a small integer neural network.
 *
 * Once per packet-timed round trip the network sees ten dimensionless numbers and
 * the means of eight of them (ndm_features.h), and says two: by what factor the
 * window should change in the next round, and how likely a loss now is congestion
 * rather than noise. The first sets a target that the window approaches as ACKs
 * arrive, the second the depth of the cut when a packet is lost.
 *
 * The network proposes, classic rules dispose. How slow start grows,
 * retransmission timeouts, ECN, idle restart, when a queue is drained, how far a
 * window grows that has overflowed the path and the rule that an unused window does
 * not grow are not the network's to decide. It may say that a loss was congestion,
 * so that the first slow start ends, or noise, so that it comes back. In a
 * recovery from losses it goes on to set the window to reach, and how that is
 * reached is RFC 6937's.
 * The core leaves all of that to a module with cong_control(), so it is here.
 *
 * The weights are fixed when the module is built (generated/ndm_model.h). Before
 * it registers, the module computes the exporter's golden vectors and refuses to
 * load if one bit differs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/percpu.h>
#include <net/tcp.h>

#include "compat.h"
#include "ndm_ceiling.h"
#include "ndm_control.h"
#include "ndm_drain.h"
#include "ndm_features.h"
#include "ndm_memory.h"
#include "ndm_round.h"
#include "ndm_selftest.h"
#include "ndm_watchdog.h"

#define CREATE_TRACE_POINTS
#include "ndm_trace.h"

/*
 * Packets; the smallest window that the network may choose. A sender whose
 * receiver acknowledges every second packet needs four in flight to keep two
 * ACKs under way; below that a lost packet cannot be repaired without a timeout.
 */
static const u32 ndm_min_cwnd = 4;

/*
 * Packets; the lowest slow start threshold, RFC 5681's (equation 4), and below
 * ndm_min_cwnd because a loss may ask for less than the network may.
 */
static const u32 ndm_min_ssthresh = 2;

/*
 * BDP / cwnd, Q12 like the input it is compared with, in [0, 2]. A rate sample
 * describes packets sent one round ago, so the ratio is 1/2 while the pipe
 * fills; above 3/8, a quarter less for noise, it is not full. Below, it is only
 * if the rate has stopped growing too: with jitter, RTTs well above the lowest
 * make the BDP look small from the first round.
 */
static const s16 ndm_full_pipe_ratio = NDM_ONE * 3 / 8;

/*
 * Of what was not lost, the share that a round of the lowest RTT delivered, Q12:
 * from here on the path had room for the whole window.
 */
static const s16 ndm_room_ratio = NDM_ONE * 3 / 4;

/* min_rtt / srtt, Q12: below, a queue stands; unless RTTs scatter (ndm_queue_scatter). */
static const s16 ndm_queued_ratio = NDM_ONE * 4 / 5;

/*
 * Loss, Q12: from here on it ends a slow start whose window is not used. What is lost
 * then are bursts, and a larger window would bring nothing.
 */
static const s16 ndm_unused_loss = NDM_ONE / 16;

/*
 * (srtt - srtt of the round before) / that, Q12: from here on a queue grows; unless
 * rttvar / srtt is as large as this, for with jitter srtt moves by as much.
 */
static const s16 ndm_queue_gradient = NDM_ONE / 4;
static const s16 ndm_queue_scatter = NDM_ONE / 8;

/* Rounds in which a slow start that losses ended may come back. */
static const u32 ndm_start_rounds = 3;

/*
 * Percent of cwnd / srtt, the rate at which packets leave. In slow start the
 * window doubles in a round, so must the rate. Else 120: enough above the rate
 * of the ACKs that the window and not the pacing limits the flow. With nothing in
 * flight, what the application sends next, an object of a web page perhaps, has no
 * ACKs to come with and is as late as its last packet leaves: 1600.
 */
static const u32 ndm_pacing_start_percent = 200;
static const u32 ndm_pacing_percent = 120;
static const u32 ndm_pacing_empty_percent = 1600;

/* Of the path's rate, where hosts hold ACKs back; see ndm_path_rate(). */
static const u32 ndm_paused_percent = 95;

/* Loss there, Q12: from here on the path is full, and for a while nothing probes for more. */
static const s16 ndm_paused_loss = NDM_ONE / 32;

/*
 * Where more than 1/128 of what was acknowledged was lost, bursts may be why. Bytes, for the
 * packets of a lifetime wrap.
 */
static const u32 ndm_burst_loss_shift = 7;

/* Per-flow state, in the socket's private area of ICSK_CA_PRIV_SIZE bytes. */
struct ndm {
	struct ndm_features f;
	struct ndm_memory memory;
	u32 target:20,		/* window to approach as ACKs arrive, packets */
	    ceiling_rounds:5,	/* for which ndm_ceiling() holds */
	    drain_rounds:5,	/* see struct ndm_drain; its queue is the features' spare byte */
	    drain_alone:2;
	struct ndm_watchdog watchdog;
	s32 congestion:21;	/* the network's newest logit, Q16 */
	u32 has_output:1,	/* congestion is set */
	    reducing:1,		/* ssthresh() began a reduction that still runs */
	    counted:1,		/* among the flows in use */
	    phase:3,		/* of the probe */
	    starting:2,		/* rounds left in which slow start may come back */
	    spared:1,		/* slow start outlived losses not yet judged */
	    opening:1,		/* no data acknowledged yet */
	    tail_lost:1;	/* the last packet of a flight was: no more bursts */
};

/* The flags that the features keep for the module. */
#define NDM_MARKED	BIT(0)	/* a mark or a local drop; one round without growth follows */

/* What has happened since the module was loaded; each CPU counts for itself. */
enum ndm_counter {
	NDM_COUNT_FLOWS,	/* sockets that use the module now */
	NDM_COUNT_ROUNDS,
	NDM_COUNT_FALLBACKS,	/* how often the watchdog took over */
	NDM_N_COUNTERS,
};

struct ndm_counters {
	long count[NDM_N_COUNTERS];
};

static DEFINE_PER_CPU(struct ndm_counters, ndm_counters);

/*
 * 20 bits: a receiver offers 1 GiB at most, and that is as many packets of 1 KiB. A
 * drain is over as soon as anything else sets a target: what it took is not given back.
 */
static void ndm_set_target(struct ndm *ca, u32 packets)
{
	ca->target = min(packets, (1U << 20) - 1);
	if (ca->drain_rounds == NDM_DRAINING)
		ca->drain_rounds = 0;
}

/* Nothing that is halved may stay infinite: of a window, not of the threshold before. */
static void ndm_set_ssthresh(struct tcp_sock *tp, u32 packets)
{
	WRITE_ONCE(tp->snd_ssthresh, min(tp->snd_ssthresh, max(packets, ndm_min_ssthresh)));
}

static void ndm_set_cwnd(struct sock *sk, u32 cwnd)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_snd_cwnd_set(tp, min(cwnd, tp->snd_cwnd_clamp));
}

/* The window that is wanted, packets: in a recovery the one that it ends with. */
static u32 ndm_window_of(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return ndm_window(inet_csk(sk)->icsk_ca_state, tcp_snd_cwnd(tp), tp->snd_ssthresh);
}

/*
 * A window that is not used does not grow. In a recovery cwnd is always used, but
 * it is not the window: half of that must be out, as in slow start.
 */
static bool ndm_window_is_used(const struct sock *sk, u32 window)
{
	return tcp_is_cwnd_limited(sk) &&
	       (inet_csk(sk)->icsk_ca_state != TCP_CA_Recovery ||
		tcp_sk(sk)->packets_out >= window >> 1);
}

/* Put the window somewhere and let it stay there until the next round ends. */
static void ndm_jump(struct sock *sk, u32 cwnd)
{
	struct ndm *ca = inet_csk_ca(sk);

	ndm_set_cwnd(sk, cwnd);
	ndm_set_target(ca, tcp_snd_cwnd(tcp_sk(sk)));
}

/*
 * Not once the last packet of a flight was lost: an object that is all but too large
 * for the queue waits every time for the timer of a tail loss probe. Nor, until the
 * next ACK for data, while it is open whether a probe repaired a loss: the core says
 * that with the ACKs for what follows.
 */
static bool ndm_may_burst(const struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	return !ca->tail_lost && !(tp->tlp_high_seq && tp->tlp_retrans) &&
	       (u64)tp->lost * tp->mss_cache <= tp->bytes_acked >> ndm_burst_loss_shift;
}

static u32 ndm_pace(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!tp->packets_out && ndm_may_burst(sk))
		return ndm_pacing_empty_percent;
	return tcp_in_slow_start(tp) ? ndm_pacing_start_percent : ndm_pacing_percent;
}

/* The highest rate of the last rounds, in the units of the features. */
static u32 ndm_max_rate(const struct ndm *ca)
{
	return max(ca->f.max_rate[0], ca->f.max_rate[1]);
}

/*
 * Do hosts hold ACKs back here for a good part of the baseline RTT? A window that outlasts a
 * pause is more than path and queue hold: only pacing keeps it out of the queue.
 */
static bool ndm_is_paused(const struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);

	return ca->f.paused && ndm_max_rate(ca) && !tcp_in_initial_slowstart(tcp_sk(sk));
}

/*
 * The rate that the path has delivered, bytes/s, as the probe's phase varies it unless that lost
 * packets lately; a little less, for it is the highest of noisy ones. The product of Q24 packets/us
 * and mss fits 48 bits; twelve of its fraction are dropped before it becomes a second's.
 */
static NDM_RARE u64 ndm_path_rate(const struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);
	u64 rate = ((u64)ndm_max_rate(ca) * tcp_sk(sk)->mss_cache) >> 12;

	rate = (rate * (USEC_PER_SEC / 100 * ndm_paused_percent)) >> (NDM_RATE_SHIFT - 12);
	return ca->ceiling_rounds ? rate : (rate * ndm_exp2(ndm_probe(ca->phase - 1U))) >> 16;
}

/*
 * The largest window of use where hosts hold ACKs back, packets: rate x baseline RTT and, unless
 * that lost packets lately, an eighth, and what leaves in half a millisecond, for TCP hands over a
 * millisecond's data at once. The baseline RTT has the longest pause in it: a queue shorter than
 * that does not show in the RTT, and a larger window could only fill it.
 */
static u32 ndm_paused_window(const struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);
	u32 us = ndm_baseline_us(&ca->f, (u32)ca->f.callers_us);

	us += 500 + (ca->ceiling_rounds ? 0 : us >> 3);
	return (u32)(((u64)ndm_max_rate(ca) * us) >> NDM_RATE_SHIFT);
}

/*
 * Pace at a percentage of window per smoothed RTT. packets_out counts what a
 * reduction has not yet drained: paced by the small window of a recovery, its
 * retransmissions would trickle.
 *
 * srtt_us is in 1/8 us, hence the 8. The product fits u64: mss * window is at
 * most 2^31, the sequence space, and 2^31 * 1600 * 80000 < 2^58.
 */
static void ndm_update_pacing(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 rate = (u64)tp->mss_cache * max(tcp_snd_cwnd(tp), tp->packets_out);

	/* Without an RTT there is no rate; the initial window bounds the burst. */
	if (!tp->srtt_us)
		return;
	rate = div_u64(rate * ndm_pace(sk) * (USEC_PER_SEC / 100 * 8), tp->srtt_us);
	if (ndm_is_paused(sk))
		rate = min(rate, ndm_path_rate(sk));
	/* sch_fq reads the rate without the socket's lock. */
	WRITE_ONCE(sk->sk_pacing_rate, min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate)));
}

/*
 * Of an ACK for what was retransmitted the core knows only the timestamp, which
 * counts whole milliseconds, rounded down. Only once something was retransmitted.
 */
static bool ndm_is_rounded(const struct tcp_sock *tp, u32 rtt_us)
{
	return tp->total_retrans && rtt_us % USEC_PER_MSEC == 0;
}

/*
 * As soon as packets are lost, the core's lowest RTT may fall short by up to a
 * millisecond, and stays for minutes: RTTs without a queue then look as if there
 * was one. So remember the lowest that was not rounded, in us; 0: none yet.
 */
static void ndm_note_rtt(struct sock *sk, long rtt_us)
{
	struct ndm *ca = inet_csk_ca(sk);

	if (rtt_us > 0 && (u32)rtt_us - 1 < (u32)ca->f.callers_us - 1 && rtt_us < NDM_LONG_US &&
	    !ndm_is_rounded(tcp_sk(sk), (u32)rtt_us))
		ca->f.callers_us = (u32)rtt_us;
}

/* The lowest RTT, us; 0: none yet. No lower than the core's, which forgets in time. */
static u32 ndm_min_rtt(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 core = tcp_min_rtt(tp), lowest = ca->f.callers_us;

	if (core == ~0U)
		return 0;
	lowest = clamp(lowest ? lowest : ~0U, core,
		       ndm_is_rounded(tp, core) ? core + (u32)USEC_PER_MSEC : core);
	lowest = min(lowest, NDM_LONG_US);
	ca->f.callers_us = lowest;
	return lowest;
}

/* What is no time, or takes more than half an hour, is none: -1. */
static s32 ndm_us(long us)
{
	return (unsigned long)us <= S32_MAX ? us : -1;
}

/* The contract's record of this ACK, before it changes the window; but min_rtt_us. */
static __always_inline void ndm_fill_ack(struct sock *sk, const struct rate_sample *rs,
					 struct ndm_ack *ack)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	*ack = (struct ndm_ack){
		.now_us		= tp->tcp_mstamp,
		.rtt_us		= ndm_us(rs->rtt_us),
		.acked		= rs->acked_sacked,
		/* What timers mark between two ACKs is in no rate sample. */
		.lost		= (u16)(tp->lost - (u32)ca->f.callers_lost),
		.inflight	= tcp_packets_in_flight(tp),
		.cwnd		= tcp_snd_cwnd(tp),
		.ssthresh	= tp->snd_ssthresh,
		.srtt_us	= tp->srtt_us >> 3,
		.rttvar_us	= tp->mdev_us >> 2,
		.delivered	= tp->delivered,
		.prior_delivered = rs->prior_delivered,
		.interval_us	= rs->delivered < 0 ? -1 : ndm_us(rs->interval_us),
		.app_limited	= rs->is_app_limited,
		.ca_state	= inet_csk(sk)->icsk_ca_state,
	};
	/*
	 * Nothing acknowledged here says when it was sent (a duplicate ACK
	 * without SACK): prior_delivered is zero and not a count, which once the
	 * flow has delivered 2^31 packets would read as the end of a round.
	 */
	if (!rs->prior_mstamp)
		ack->prior_delivered = ca->f.round_delivered - 1;
}

/* Is srtt above so many quarters of the lowest RTT, which has none of the hosts' pauses? */
static bool ndm_srtt_exceeds(struct sock *sk, u32 quarters)
{
	return 4 * (u64)(tcp_sk(sk)->srtt_us >> 3) > (u64)quarters * ndm_min_rtt(sk);
}

/*
 * What the control law has to know of a round beside its inputs. Scatter is the path's where the
 * RTT is longer than the pauses of hosts.
 */
static u32 ndm_law_flags(struct sock *sk, bool used)
{
	const struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	return (ndm_srtt_exceeds(sk, 8) ? NDM_LAW_QUEUE : 0) |
	       (tp->srtt_us >> 3 > 2 * NDM_BASELINE_US || tp->reord_seen ? NDM_LAW_JITTER : 0) |
	       (tp->reord_seen ? NDM_LAW_REORDERS : 0) |
	       (ca->f.callers_flags & NDM_MARKED ? NDM_LAW_MARKED : 0) |
	       (used ? 0 : NDM_LAW_UNUSED);
}

static bool ndm_queue_grows(const s16 *x)
{
	return x[NDM_IN_RTT_GRADIENT] > ndm_queue_gradient &&
	       x[NDM_IN_RTT_VARIATION] < ndm_queue_scatter;
}

static bool ndm_queue_stands(const s16 *x)
{
	return x[NDM_IN_RTT_RATIO] <= ndm_queued_ratio &&
	       x[NDM_IN_RTT_VARIATION] < ndm_queue_scatter;
}

/*
 * Does a queue stand already in slow start? One more doubling before the round is over would be
 * lost. Only where the RTT is a local network's: on longer paths it may be others' queue, and who
 * leaves slow start to them stays small for long. mdev_us counts in quarters, srtt_us in eighths:
 * rttvar below srtt / 8, or RTTs scatter.
 */
static bool ndm_start_queues(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return tp->srtt_us >> 3 <= 2 * NDM_BASELINE_US && tp->mdev_us < tp->srtt_us >> 4 &&
	       ndm_srtt_exceeds(sk, 5);
}

/*
 * Asked once per round of slow start, in which the rate should double: growth by
 * less than a quarter is none, and as a queue grows less than three quarters, for
 * then this round has filled the pipe, and the next would double the queue.
 */
static bool ndm_rate_grew(struct ndm *ca, const s16 *x)
{
	u32 quarters = ndm_queue_grows(x) ? 7 : 5;
	u32 rate = ndm_max_rate(ca);

	if (rate < ((u64)ca->watchdog.best_rate * quarters) >> 2)
		return false;
	/* Zero is what an undo leaves. */
	if (ca->starting && ca->watchdog.best_rate)
		ca->starting = ndm_start_rounds;
	ca->watchdog.best_rate = rate;
	return true;
}

/*
 * Go down to half of the window, which drains the queue that the last doubling
 * built. No further: with jitter, the lowest RTT may be a small part of the usual
 * ones, and the BDP look small.
 */
static void ndm_leave_slow_start(struct sock *sk, bool lossless)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 half = max(tcp_snd_cwnd(tp) >> 1, ndm_min_cwnd);

	ndm_set_target(ca, half);
	WRITE_ONCE(tp->snd_ssthresh, half);
	/* An undo is not to begin it again, nor to bring back its window. */
	tp->prior_ssthresh = min(tp->prior_ssthresh, half);
	tp->prior_cwnd = min(tp->prior_cwnd, half);
	/* Rates with losses are less certain: it may come back, once less. */
	ca->starting = lossless || !ca->starting ? 0 : ca->starting - 1;
}

/*
 * Does the watchdog take over now? If so in a recovery, the network has judged
 * the loss too mild and the window it left floods the path: the caller halves it.
 */
static bool ndm_watch(struct sock *sk, const s16 *x, bool limited, u32 flags)
{
	struct ndm *ca = inet_csk_ca(sk);
	u32 max_rate = ndm_max_rate(ca);

	if (!ndm_watchdog_bites(&ca->watchdog, x, max_rate, limited, flags))
		return false;
	this_cpu_inc(ndm_counters.count[NDM_COUNT_FALLBACKS]);
	ca->starting = 0;
	return true;
}

/*
 * The losses that slow start outlived, now that the network has seen them. Even a
 * random one it may hold for congestion, since slow start's usually are; but while
 * the rate grows the pipe was not full.
 */
static bool ndm_was_congestion(const struct ndm *ca, const s16 *x, bool limited, bool grew)
{
	return x[NDM_IN_LOSS_RATE] >= (limited ? NDM_WATCHDOG_LOSS : ndm_unused_loss) ||
	       (x[NDM_IN_LOSS_RATE] && ca->congestion >= 0 && !grew);
}

/*
 * Losses ended slow start, in a window of a few packets perhaps. Now that the
 * network has seen them: were they noise, and has what was sent arrived and left
 * room and no queue, then it comes back, and goes on for as long as the rate grows. A
 * full pipe may seem to have room: so a round in which it does not come back costs one of
 * three, coming back another, and only a higher rate brings all of them again.
 */
static bool ndm_slow_start_goes_on(struct ndm *ca, const s16 *x)
{
	if (!ca->starting)
		return false;
	if (ca->congestion < 0 && x[NDM_IN_LOSS_RATE] < NDM_WATCHDOG_LOSS &&
	    !ndm_queue_stands(x) &&
	    x[NDM_IN_BDP_RATIO] << NDM_Q_INPUT >=
	    ndm_room_ratio * (NDM_ONE - x[NDM_IN_LOSS_RATE]))
		return true;
	ca->starting--;
	return false;
}

/* Back to slow start, in a recovery too: nothing stands in the way of the window. */
static void ndm_start_again(struct sock *sk, u32 window)
{
	struct ndm *ca = inet_csk_ca(sk);

	ca->starting--;
	ca->reducing = 0;
	ca->spared = inet_csk(sk)->icsk_ca_state == TCP_CA_Recovery;
	ca->watchdog.best_rate = ndm_max_rate(ca);
	WRITE_ONCE(tcp_sk(sk)->snd_ssthresh, TCP_INFINITE_SSTHRESH);
	ndm_jump(sk, window);
}

/*
 * The target of the next round. A window below ssthresh would be in slow start and
 * double again; but in a reduction ssthresh is where ndm_reduce() goes.
 */
static void ndm_aim(struct sock *sk, u32 packets, bool recovery)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	ndm_set_target(ca, min(max(packets, ndm_min_cwnd), tp->snd_cwnd_clamp));
	if (recovery || ca->target < tp->snd_ssthresh)
		WRITE_ONCE(tp->snd_ssthresh, max_t(u32, ca->target, ndm_min_ssthresh));
}

/*
 * Is the next round, or was this one, to drain the queue? An empty queue has room
 * for all of the window before, paced; where others keep it, those who come to
 * drain a little later are to find this flow still small.
 */
static bool ndm_drains(struct sock *sk, u32 window, bool limited)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct ndm_drain drain = { ca->f.callers, ca->drain_rounds, ca->drain_alone };
	u8 queue = ndm_drain_queue(ndm_lowest_us(&ca->f),
				   ndm_baseline_us(&ca->f, (u32)ca->f.callers_us));
	enum ndm_drain_step step = ndm_drain(&drain, queue, ca->phase,
					     limited && window >= 2 * ndm_min_cwnd);

	if (step == NDM_DRAIN_BEGINS) {
		ndm_aim(sk, window >> NDM_DRAIN_SHIFT, false);
	} else if (step == NDM_DRAIN_EMPTIED && ca->target > ndm_min_cwnd) {
		ndm_aim(sk, ca->target << NDM_DRAIN_SHIFT, false);
		ndm_set_cwnd(sk, ca->target);
	} else if (step != NDM_DRAIN_NOT) {
		/* The smallest target may be more than a quarter. */
		ndm_aim(sk, window << 1, false);
	}
	ca->f.callers = drain.shortest;
	ca->drain_rounds = drain.rounds;
	ca->drain_alone = drain.alone;
	return step != NDM_DRAIN_NOT;
}

/*
 * The window after a mark or a drop in this host's own queue, packets: congestion without doubt,
 * which the network is not asked about: half, as RFC 3168 wants it. For a while the window is not
 * to pass what arrives in an RTT, see ndm_ceiling.h, and for a round it grows no faster than
 * Reno's.
 */
static u32 ndm_marked_window(struct ndm *ca, u32 window)
{
	ca->f.callers_flags |= NDM_MARKED;
	ca->ceiling_rounds = NDM_CEILING_ROUNDS;
	return window >> 1;
}

/* Set the target of the next round; who did? out is the network's if the round is valid. */
static enum ndm_why ndm_decide(struct sock *sk, bool valid, const s16 *x, const s32 *out,
			       u32 lost, bool app_limited)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u8 state = inet_csk(sk)->icsk_ca_state;
	bool recovery = state > TCP_CA_Disorder;
	bool repairs = state == TCP_CA_Recovery;
	/* That recovery may be over before the round is. */
	bool spared = ca->spared && tcp_in_initial_slowstart(tp);
	/* A mark is congestion without doubt; see ndm_ssthresh(). */
	bool marked = (repairs || spared) && !tp->prior_ssthresh;
	u32 window = ndm_window_of(sk);
	bool used = ndm_window_is_used(sk, window);
	enum ndm_why why;
	bool bites;
	u32 target;

	/*
	 * A sender that does not fill its window delivers less than the path
	 * could: that says nothing about the pipe. Here the window must have
	 * been full, not merely half full as tcp_is_cwnd_limited() asks in slow
	 * start.
	 */
	bool limited = valid && tp->is_cwnd_limited && !app_limited;
	u32 flags = ndm_law_flags(sk, used);

	if (marked)
		ca->starting = 0;
	if (!repairs)
		ca->spared = 0;
	if (tcp_in_slow_start(tp) && (!recovery || (repairs && spared))) {
		bool grew = limited && ndm_rate_grew(ca, x);

		if (limited && !grew && (ndm_queue_grows(x) || ndm_start_queues(sk) ||
					 x[NDM_IN_BDP_RATIO] < ndm_full_pipe_ratio))
			ndm_leave_slow_start(sk, !x[NDM_IN_LOSS_RATE]);
		else if (marked || (spared && ndm_was_congestion(ca, x, limited, grew)))
			ndm_leave_slow_start(sk, false);
		return NDM_WHY_SLOW_START;
	}
	bites = valid && ndm_watch(sk, x, limited, flags);

	/*
	 * A mark, or a drop of this host's own, in a recovery: the window before it is reduced as
	 * for one outside, once. The core enters no CWR then, nor asks ssthresh().
	 */
	if (marked && repairs) {
		ndm_set_ssthresh(tp, min(window, ndm_marked_window(ca, tp->prior_cwnd)));
		ndm_set_target(ca, tp->snd_ssthresh);
		ca->reducing = 1;
		return NDM_WHY_RECOVERY;
	}

	/*
	 * Only losses are the network's to judge. Where they never end, so does
	 * no recovery, and to wait for its end would be to stand still.
	 */
	if (recovery && (!repairs || !valid || ca->watchdog.left)) {
		/*
		 * What one half does not end, the next round halves again; by
		 * way of the target too, should the reduction be over.
		 */
		if (bites || (ca->watchdog.left && valid &&
			      x[NDM_IN_LOSS_RATE] >= NDM_WATCHDOG_LOSS)) {
			ndm_set_ssthresh(tp, min(tp->snd_ssthresh, window) >> 1);
			ndm_set_target(ca, tp->snd_ssthresh);
		}
		return NDM_WHY_RECOVERY;
	}

	/* Without the network: one packet per round, as Reno grows. */
	target = window + 1;
	if (ca->watchdog.left) {
		why = NDM_WHY_WATCHDOG;
	} else if (valid && used && ndm_slow_start_goes_on(ca, x)) {
		ndm_start_again(sk, window);
		return NDM_WHY_GOES_ON;
	} else if (valid && !recovery && ndm_drains(sk, window, limited)) {
		return NDM_WHY_DRAIN;
	} else if (valid) {
		target = ndm_law(window, out[NDM_OUT_CWND_GAIN], ca->phase++, x, lost, flags,
				 ca->f.paused ? ndm_paused_window(sk) : ~0U);
		ca->ceiling_rounds = ndm_ceiling_rounds(ca->ceiling_rounds, x, ca->congestion,
							lost, used);
		/* Where hosts pause srtt is no measure; ndm_paused_window() is the ceiling. */
		if (ca->f.paused && x[NDM_IN_LOSS_RATE] >= ndm_paused_loss)
			ca->ceiling_rounds = NDM_CEILING_ROUNDS;
		if (ca->ceiling_rounds && !ca->f.paused &&
		    (limited || x[NDM_IN_RTT_RATIO] < NDM_CEILING_QUEUE))
			target = min(target, ndm_ceiling(window, x));
		why = NDM_WHY_NETWORK;
	} else {
		why = NDM_WHY_BLIND;
	}
	if (!used)
		target = min(target, window);
	ca->f.callers_flags &= ~NDM_MARKED;
	ndm_aim(sk, target, recovery);
	/*
	 * Was it noise, then nothing stands in the way of the lost packets and
	 * as many new ones: no need to conserve packets any longer.
	 */
	if (recovery && ca->reducing && ca->congestion < 0 &&
	    !(valid && ndm_floods(x, flags, lost))) {
		ca->reducing = 0;
		ndm_set_cwnd(sk, ca->target);
	}
	return why;
}

static NDM_RARE void ndm_trace_round(const struct sock *sk, bool valid, const s16 *x,
				     const s32 *out, u32 window, u8 phase, enum ndm_why why)
{
	const struct ndm *ca = inet_csk_ca(sk);
	struct ndm_round_report report = {
		.cwnd		= window,
		.target		= ca->target,
		.ssthresh	= tcp_sk(sk)->snd_ssthresh,
		.valid		= valid,
		.state		= inet_csk(sk)->icsk_ca_state,
		.phase		= phase,
		.why		= why,
	};

	memcpy(report.x, x, sizeof(report.x));
	memcpy(report.out, out, sizeof(report.out));
	trace_ndm_tcp_round(sk, &report);
}

/*
 * A probe for a larger MTU was sent, or has ended. If it got through the core has counted the
 * window anew, in packets of the new size; the target was in the old ones.
 */
static NDM_RARE void ndm_note_mtu_probe(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);

	ca->watchdog.probing_mtu = !ca->watchdog.probing_mtu;
	if (!ca->watchdog.probing_mtu)
		ndm_set_target(ca, min_t(u32, ca->target, tcp_snd_cwnd(tcp_sk(sk))));
}

/* A round ended: ask the network, act, and tell. */
static NDM_RARE void ndm_end_round(struct sock *sk, const struct rate_sample *rs)
{
	struct ndm *ca = inet_csk_ca(sk);
	u32 window = ndm_window_of(sk);
	u8 phase = ca->phase;
	s32 out[NDM_N_OUTPUTS] = {};
	s16 x[NDM_N_DENSE] = {};
	u32 lost = ca->f.round_lost;
	struct ndm_ack ack;
	enum ndm_why why;
	bool valid;

	if (unlikely(ca->watchdog.probing_mtu != !!inet_csk(sk)->icsk_mtup.probe_size))
		ndm_note_mtu_probe(sk);
	/* Again, and all of it: the common ACK does without what is only asked here. */
	ndm_fill_ack(sk, rs, &ack);
	ack.min_rtt_us = ndm_min_rtt(sk);
	valid = ndm_features_end_round(&ca->f, &ack, x) == NDM_ROUND_VALID;
	this_cpu_inc(ndm_counters.count[NDM_COUNT_ROUNDS]);
	if (valid) {
		ndm_remember(&ca->memory, x);
		ndm_infer(&ndm_model, x, out, NULL);
		/* With ACKs held back an overflow does not show in the RTT: it may be one. */
		ca->congestion = ca->f.paused ? max(out[NDM_OUT_CONGESTION], 0) :
						out[NDM_OUT_CONGESTION];
		ca->has_output = 1;
	}
	why = ndm_decide(sk, valid, x, out, lost, ack.app_limited);
	if (trace_ndm_tcp_round_enabled())
		ndm_trace_round(sk, valid, x, out, window, phase, why);
}

static bool ndm_was_quiet(struct sock *sk, u32 acked, bool app_limited)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct ndm *ca = inet_csk_ca(sk);

	return ndm_pass_quiet_round(&ca->f, app_limited, inet_csk(sk)->icsk_ca_state,
				    (u64)tcp_packets_in_flight(tp) + acked, tcp_snd_cwnd(tp),
				    tp->delivered, tp->srtt_us >> 3);
}

/*
 * The window during CWR and Recovery: proportional rate reduction, RFC 6937.
 * While more is in flight than ssthresh allows, ssthresh packets are sent for
 * every prior_cwnd that arrive, which spreads the cut over the round. When
 * losses took more than that, send what arrives and one packet in addition, up to
 * ssthresh, if this ACK went forward: SND.UNA advanced and nothing more was lost.
 * The core counts prr_out.
 */
static u32 ndm_reduce(struct tcp_sock *tp, u32 acked, bool forward)
{
	u32 in_flight = tcp_packets_in_flight(tp);
	s32 budget;

	tp->prr_delivered += acked;
	if (in_flight > tp->snd_ssthresh) {
		u32 prior = max(tp->prior_cwnd, 1U);
		u64 due = (u64)tp->snd_ssthresh * tp->prr_delivered + prior - 1;

		budget = (s32)((u32)div_u64(due, prior) - tp->prr_out);
	} else {
		budget = max_t(s32, tp->prr_delivered - tp->prr_out, acked) + forward;
		budget = min_t(s32, budget, tp->snd_ssthresh - in_flight);
	}
	/* The first ACK must let the fast retransmission go. */
	budget = max(budget, tp->prr_out ? 0 : 1);
	return max(in_flight + budget, 1U);
}

/* By how much slow start grows with an ACK, packets; RFC 9406's quarter behind a queue. */
static u32 ndm_growth(struct sock *sk, u32 acked)
{
	if (!tcp_is_cwnd_limited(sk))
		return 0;
	return ndm_start_queues(sk) ? (acked + (tcp_sk(sk)->delivered & 3)) >> 2 : acked;
}

/*
 * Move the window. Never by more than what this ACK delivered: upwards that is slow
 * start's pace; downwards a quarter less of an ACK for four packets or more, unless a queue
 * is to drain.
 */
static void ndm_update_cwnd(struct sock *sk, u32 acked, bool forward)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (!acked)
		return;
	switch (inet_csk(sk)->icsk_ca_state) {
	case TCP_CA_CWR:
	case TCP_CA_Recovery:
		/* Else spared, undone, or begun under another algorithm: as if open. */
		if (!ca->reducing)
			break;
		ndm_set_cwnd(sk, ndm_reduce(tp, acked, forward));
		return;
	case TCP_CA_Loss:
		/* From what the core left, in_flight + 1, up to ssthresh. */
		if (tcp_in_slow_start(tp) && tcp_is_cwnd_limited(sk))
			cwnd = min(cwnd + acked, tp->snd_ssthresh);
		ndm_jump(sk, cwnd);
		return;
	}
	if (tcp_in_slow_start(tp)) {
		acked = ndm_growth(sk, acked);
		if (acked || cwnd != ca->target)
			ndm_jump(sk, min(cwnd + acked, tp->snd_ssthresh));
		/* In a recovery: should it be undone or time out, this is the window. */
		if (ca->spared)
			tp->prior_cwnd = max(tp->prior_cwnd, tcp_snd_cwnd(tp));
		return;
	}
	/* Of four packets that one ACK delivers one is sent; ACKs for fewer send nothing. */
	if (cwnd > ca->target && ca->drain_rounds != NDM_DRAINING)
		cwnd -= min_t(u32, cwnd - ca->target, acked - (acked >> 2));
	else if (cwnd > ca->target)
		cwnd -= min_t(u32, cwnd - ca->target, acked);
	else if (cwnd < ca->target && tcp_is_cwnd_limited(sk))
		cwnd += min_t(u32, ca->target - cwnd, acked);
	else
		return;
	ndm_set_cwnd(sk, cwnd);
}

/*
 * Data was acknowledged for the first time. A request or a cookie, less than the window
 * and nothing behind it, is no round: start again after it.
 */
static NDM_RARE void ndm_open(struct sock *sk, const struct rate_sample *rs)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	if (rs->acked_sacked <= 0 || !tp->data_segs_out)
		return;
	if (!tp->is_cwnd_limited && !tp->packets_out) {
		ca->f.started = 0;
		ca->memory = (struct ndm_memory){};
	}
	ca->opening = 0;
}

static void ndm_ack_arrived(struct sock *sk, const struct rate_sample *rs, bool advanced)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct ndm_ack ack;

	if (ca->opening)
		ndm_open(sk, rs);
	ndm_note_rtt(sk, rs->rtt_us);
	ndm_fill_ack(sk, rs, &ack);
	if (ndm_features_take(&ca->f, &ack) && !ndm_was_quiet(sk, ack.acked, rs->is_app_limited))
		ndm_end_round(sk, rs);
	ca->f.callers_lost = (u16)tcp_sk(sk)->lost;
	ndm_update_cwnd(sk, ack.acked, advanced && rs->losses <= 0);
	ndm_update_pacing(sk);
}

static NDM_CONG_CONTROL(ndm_cong_control, ndm_ack_arrived)

/*
 * Whether ssthresh() is asked since a tail loss probe repaired a loss: nothing is missing.
 * Not seen behind a mark, nor if what follows loses packets itself; that costs a probe more.
 */
static bool ndm_tail_was_lost(const struct tcp_sock *tp)
{
	return tp->tlp_retrans && tp->prior_ssthresh && !tp->lost_out && !tp->sacked_out;
}

/*
 * The window to fall to. Called for a loss, but also for an ECN mark, a drop in
 * this host's own queue and a loss that a tail loss probe repaired; the caller
 * has noted the present window in prior_cwnd.
 *
 * prior_ssthresh is zero when the core rules out an undo, that is for ECN and
 * for local drops: that is congestion without doubt, and the network is not
 * asked. (A tail loss probe leaves it as it was, and may count as congestion.)
 * Neither is it asked before it has spoken, while the watchdog does not listen
 * to it, or when a retransmission timed out in a recovery from a timeout.
 */
static u32 ndm_ssthresh(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 window = cwnd >> 1;

	if (ndm_tail_was_lost(tp))
		ca->tail_lost = 1;
	/*
	 * A mark ends slow start; not so a loss while there is no queue: whether
	 * that was noise the network says when it has seen it.
	 */
	if (!tp->prior_ssthresh) {
		ca->starting = 0;
		window = ndm_marked_window(ca, cwnd);
	} else if (tcp_in_initial_slowstart(tp) && !ndm_srtt_exceeds(sk, 5)) {
		ca->spared = 1;
		return tp->snd_ssthresh;
	}
	if (ca->has_output && !ca->watchdog.left && tp->prior_ssthresh &&
	    inet_csk(sk)->icsk_ca_state != TCP_CA_Loss)
		window = ndm_cut(cwnd, ca->congestion);
	ca->reducing = 1;
	return max(window, ndm_min_ssthresh);
}

/*
 * The reduction was for nothing: back to the window before it. The features
 * keep the loss they saw, as the contract's record of ACKs has no undo either.
 */
static u32 ndm_undo_cwnd(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);

	ca->reducing = 0;
	ca->spared = 0;
	ndm_set_target(ca, max_t(u32, ca->target, tp->prior_cwnd));
	/* In slow start again, whose growth the rates of the recovery say nothing of. */
	if (ca->target < tp->prior_ssthresh)
		ca->watchdog.best_rate = 0;
	return max(tcp_snd_cwnd(tp), tp->prior_cwnd);
}

/*
 * A retransmission timed out: half of the window before the loss, whatever the
 * network said. ssthresh() cannot tell a timeout from the losses that it is
 * asked about, and it is not called when a recovery ends in a timeout.
 */
static void ndm_enter_loss(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	ca->reducing = 0;
	ca->starting = 0;
	ca->spared = 0;
	ndm_watchdog_forget(&ca->watchdog);
	/* Without undo_marker it is a smaller MTU, after which nothing was lost. */
	if (tp->undo_marker)
		ndm_set_ssthresh(tp, tp->prior_cwnd >> 1);
}

/* Called before icsk_ca_state changes. */
static void ndm_set_state(struct sock *sk, u8 new_state)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	switch (new_state) {
	case TCP_CA_Loss:
		ndm_enter_loss(sk);
		break;
	case TCP_CA_Recovery:
		/*
		 * RACK's timer retransmits right after this, without an ACK that
		 * would reduce the window: room for one packet, not for all that
		 * was lost. On an ACK ndm_reduce() follows.
		 */
		if (ca->reducing)
			ndm_set_cwnd(sk, tcp_packets_in_flight(tp) + 1);
		break;
	case TCP_CA_Open:
	case TCP_CA_Disorder:
		/* The reduction is complete: what is left of it at one stroke. */
		if (ca->reducing)
			ndm_jump(sk, tp->snd_ssthresh);
		ca->reducing = 0;
		break;
	}
}

/* The initial window of this route, packets. */
static u32 ndm_initial_window(struct sock *sk)
{
	const struct dst_entry *dst = __sk_dst_get(sk);
	u32 packets = dst ? dst_metric(dst, RTAX_INITCWND) : 0;

	return packets ? packets : TCP_INIT_CWND;
}

/*
 * Sending again after a silence: nobody knows the path any more. Halve the
 * window for every RTO of it, no further than to the initial window, and come
 * back by slow start; RFC 2861, and the same sysctl as for every other sender.
 */
static void ndm_leave_idle(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 floor = min_t(u32, cwnd, ndm_initial_window(sk));
	s32 idle = tcp_jiffies32 - tp->lsndtime;
	s32 rto = inet_csk(sk)->icsk_rto;

	if (READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_slow_start_after_idle) &&
	    !tp->packets_out && idle > rto) {
		WRITE_ONCE(tp->snd_ssthresh, tcp_current_ssthresh(sk));
		ndm_watchdog_forget(&ca->watchdog);
		ca->tail_lost = 0;
		ca->starting = 0;
		for (; idle > rto && cwnd > floor; idle -= rto)
			cwnd >>= 1;
		ndm_jump(sk, max(cwnd, floor));
	}
	/* Before the first packet leaves: the rate is the one of the newest ACK. */
	ndm_update_pacing(sk);
}

static NDM_TX_START(ndm_tx_start, ndm_leave_idle)

/*
 * With the handshake, or the first round would be missing, and the means, which begin
 * with it, be those of a slow start under way.
 */
static NDM_RARE void ndm_start_features(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 srtt_us = tp->srtt_us >> 3;
	struct ndm_ack ack = {
		.now_us		= tp->tcp_mstamp,
		.rtt_us		= srtt_us && !tp->data_segs_out ? (s32)srtt_us : -1,
		.srtt_us	= srtt_us,
		.delivered	= tp->delivered,
		.interval_us	= -1,
	};

	ca->f.callers_lost = (u16)tp->lost;
	ndm_features_take(&ca->f, &ack);
	ca->f.callers_lost = (u16)tp->lost;
	ca->opening = 1;
}

/*
 * The core has zeroed the private area, which the ACK of a SYN may have come to
 * before this. The socket need not be new: it may have
 * a window, a threshold and a recovery from another algorithm, all of which it
 * keeps.
 */
static void ndm_init(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	ndm_set_target(ca, tcp_snd_cwnd(tp));
	ca->starting = tcp_in_initial_slowstart(tp) ? ndm_start_rounds : 0;
	/* Not zero, a mark, where a tail loss probe repairs the very first loss. */
	if (!tp->undo_marker && inet_csk(sk)->icsk_ca_state == TCP_CA_Open)
		tp->prior_ssthresh = tp->snd_ssthresh;
	ndm_start_features(sk);
	ca->counted = 1;
	/* Flows that began together are not to probe together. */
	ca->phase = get_random_u32() % NDM_PROBE_ROUNDS;
	this_cpu_inc(ndm_counters.count[NDM_COUNT_FLOWS]);
	/* sch_fq paces if there is one, else TCP does; fq changes the status. */
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
	ndm_update_pacing(sk);
}

/* Called also for a socket that closes before init() was. */
static void ndm_release(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);

	if (ca->counted)
		this_cpu_dec(ndm_counters.count[NDM_COUNT_FLOWS]);
	/* Another algorithm takes a recovery over that kept slow start going. */
	if (ca->counted && ca->spared && inet_csk(sk)->icsk_ca_state == TCP_CA_Recovery)
		ndm_set_ssthresh(tcp_sk(sk), tcp_snd_cwnd(tcp_sk(sk)) >> 1);
	ca->counted = 0;
}

/* Three windows of buffer: data to send while a recovery slow-starts. */
static u32 ndm_sndbuf_expand(struct sock *sk)
{
	return 3;
}

static struct tcp_congestion_ops ndm_ops __read_mostly = {
	.name			= "ndm_tcp",
	.owner			= THIS_MODULE,
	.init			= ndm_init,
	.release		= ndm_release,
	.cong_control		= ndm_cong_control,
	.ssthresh		= ndm_ssthresh,
	.undo_cwnd		= ndm_undo_cwnd,
	.set_state		= ndm_set_state,
	.NDM_TX_START_MEMBER	= ndm_tx_start,
	.sndbuf_expand		= ndm_sndbuf_expand,
};

/*
 * /sys/module/ndm_tcp/parameters says which network runs. Not even the insmod
 * command line may say otherwise.
 */
static int ndm_refuse_parameter(const char *value, const struct kernel_param *param)
{
	return -EPERM;
}

static const struct kernel_param_ops ndm_hash_ops = {
	.set = ndm_refuse_parameter,
	.get = param_get_charp,
};

static char *model_hash = NDM_MODEL_HASH;
module_param_cb(model_hash, &ndm_hash_ops, &model_hash, 0444);
MODULE_PARM_DESC(model_hash, "hash of the network's integers (read only)");

static char *contract_hash = NDM_CONTRACT_HASH;
module_param_cb(contract_hash, &ndm_hash_ops, &contract_hash, 0444);
MODULE_PARM_DESC(contract_hash, "hash of the definition of its inputs and outputs (read only)");

static int ndm_get_counter(char *buffer, const struct kernel_param *param)
{
	const enum ndm_counter *counter = param->arg;
	long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(ndm_counters, cpu).count[*counter]);
	return scnprintf(buffer, PAGE_SIZE, "%ld\n", sum);
}

static const struct kernel_param_ops ndm_counter_ops = {
	.set = ndm_refuse_parameter,
	.get = ndm_get_counter,
};

static enum ndm_counter ndm_flows = NDM_COUNT_FLOWS;
module_param_cb(flows, &ndm_counter_ops, &ndm_flows, 0444);
MODULE_PARM_DESC(flows, "sockets that use it now (read only)");

static enum ndm_counter ndm_rounds = NDM_COUNT_ROUNDS;
module_param_cb(rounds, &ndm_counter_ops, &ndm_rounds, 0444);
MODULE_PARM_DESC(rounds, "round trips since it was loaded (read only)");

static enum ndm_counter ndm_fallbacks = NDM_COUNT_FALLBACKS;
module_param_cb(fallbacks, &ndm_counter_ops, &ndm_fallbacks, 0444);
MODULE_PARM_DESC(fallbacks, "how often the watchdog took over from the network (read only)");

static int __init ndm_register(void)
{
	struct ndm_selftest_result r;
	const char *failure;
	int err;

	BUILD_BUG_ON(sizeof(struct ndm) > ICSK_CA_PRIV_SIZE);
	BUILD_BUG_ON(TCP_CA_Recovery != NDM_CA_RECOVERY);
	BUILD_BUG_ON(TCP_CA_Loss != NDM_CA_LOSS);
	BUILD_BUG_ON(TCP_INFINITE_SSTHRESH != NDM_NO_SSTHRESH);
	/* struct ndm keeps the logit in 21 bits. */
	BUILD_BUG_ON(NDM_OUT_CONGESTION_HI >= 1 << 20 || NDM_OUT_CONGESTION_LO < -(1 << 20));

	failure = ndm_selftest(&r);
	if (failure) {
		pr_err("golden %s: index %u, element %u: want %d, got %d\n",
		       failure, r.index, r.element, r.want, r.got);
		return -EINVAL;
	}
	err = tcp_register_congestion_control(&ndm_ops);
	if (!err)
		pr_info("model %s, %u golden vectors\n", NDM_MODEL_HASH, (u32)NDM_VECTORS);
	return err;
}

static void __exit ndm_unregister(void)
{
	tcp_unregister_congestion_control(&ndm_ops);
}

module_init(ndm_register);
module_exit(ndm_unregister);

MODULE_AUTHOR("The NDM-TCP authors");
MODULE_DESCRIPTION("NDM-TCP: congestion control by a small integer neural network");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_ALIAS("tcp_ndm_tcp");
MODULE_INFO(model, NDM_MODEL_HASH);
