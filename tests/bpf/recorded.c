// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulator's module, which also writes what the first flow's callbacks read and leave, as
 * records of bpf/ndm_bpf_record.h, to the file that NDM_RECORDS names. In the place of
 * lab/sim/ndm.c.
 */
#define sim_random recorded_random
#include "sim.h"
#undef sim_random

#include <string.h>

u32 core_random(void) __asm__("sim_random");

/* A record has one number: all that a callback draws. */
static u32 drawn;

u32 recorded_random(void)
{
	return drawn;
}

#include "ndm.c"
#include "bpf/ndm_bpf_record.h"

static FILE *records;

static struct ndm_replay_record before(struct sock *sk, u32 op, u32 arg)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	drawn = core_random();
	return (struct ndm_replay_record){
		.op = op, .arg = arg, .mstamp = tp->tcp_mstamp, .bytes_acked = tp->bytes_acked,
		.cwnd = tp->snd_cwnd, .ssthresh = tp->snd_ssthresh, .random = drawn,
		.jiffies = sim_jiffies(), .packets_out = tp->packets_out,
		.sacked_out = tp->sacked_out, .lost_out = tp->lost_out,
		.retrans_out = tp->retrans_out, .max_packets_out = tp->max_packets_out,
		.prr_out = tp->prr_out, .mss_cache = tp->mss_cache, .srtt_us = tp->srtt_us,
		.mdev_us = tp->mdev_us, .min_rtt_us = tcp_min_rtt(tp),
		.delivered = tp->delivered, .delivered_ce = tp->delivered_ce, .lost = tp->lost,
		.total_retrans = tp->total_retrans, .reord_seen = tp->reord_seen,
		.data_segs_out = tp->data_segs_out, .undo_marker = tp->undo_marker,
		.tlp_high_seq = tp->tlp_high_seq, .lsndtime = tp->lsndtime,
		.rto = inet_csk(sk)->icsk_rto, .cwnd_limited = tp->is_cwnd_limited,
		.tlp_retrans = tp->tlp_retrans, .ns = 1,
	};
}

static void after(struct sock *sk, struct ndm_replay_record *r)
{
	const struct sim_flow *f = (struct sim_flow *)sk;

	r->out_cwnd = tcp_sk(sk)->snd_cwnd;
	r->out_pacing = sk->sk_pacing_rate;
	memcpy(r->out_private, inet_csk_ca(sk), sizeof(r->out_private));
	r->out_memory = *f->memory;
	if (!f->number && fwrite(r, sizeof(*r), 1, records) != 1)
		abort();
}

static void recorded_init(struct sock *sk)
{
	struct ndm_replay_record r = before(sk, NDM_REPLAY_INIT, 0);

	begin(sk);
	after(sk, &r);
}

static void recorded_ack(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct ndm_replay_record r = before(sk, NDM_REPLAY_ACK, 0);

	r.prior_mstamp = rs->prior_mstamp;
	r.prior_delivered = rs->prior_delivered;
	r.rs_delivered = rs->delivered;
	r.interval_us = rs->interval_us;
	r.rtt_us = rs->rtt_us;
	r.losses = rs->losses;
	r.acked_sacked = rs->acked_sacked;
	r.app_limited = rs->is_app_limited;
	r.advanced = !!(flag & SIM_UNA_ADVANCED);
	take_ack(sk, ack, flag, rs);
	after(sk, &r);
}

static u32 recorded_ssthresh(struct sock *sk)
{
	struct ndm_replay_record r = before(sk, NDM_REPLAY_CUT, NDM_REPLAY_CUT_LOSS);
	u32 threshold = ndm_ssthresh(sk);

	after(sk, &r);
	return threshold;
}

static void recorded_state(struct sock *sk, u8 state)
{
	struct ndm_replay_record r = before(sk, NDM_REPLAY_STATE, state);

	ndm_set_state(sk, state);
	after(sk, &r);
}

/* After the constructor of ndm.c, which hands `ops` over. */
__attribute__((constructor(65535))) static void record(void)
{
	const char *name = getenv("NDM_RECORDS");

	records = name ? fopen(name, "wb") : NULL;
	if (!records)
		abort();
	ops.init = recorded_init;
	ops.cong_control = recorded_ack;
	ops.ssthresh = recorded_ssthresh;
	ops.set_state = recorded_state;
}
