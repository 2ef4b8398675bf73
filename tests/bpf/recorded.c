// SPDX-License-Identifier: GPL-2.0-only
/*
 * In the place of lab/sim/ndm.c: the simulator's module, which writes what the first flow's
 * callbacks read and leave to the file that NDM_RECORDS names, as records of
 * bpf/ndm_bpf_record.h.
 *
 * A record has one random number, so each callback draws one before it begins, whether it needs
 * it or not. The module's headers call recorded_random() for it; core_random() is the
 * simulator's own function. So a run differs from one without records.
 */
#define sim_random recorded_random
#include "../../lab/sim/sim.h"
#undef sim_random

#include <string.h>

u32 core_random(void) __asm__("sim_random");

static u32 drawn;

u32 recorded_random(void)
{
	return drawn;
}

#include "../../lab/sim/ndm.c"
#include "../../bpf/ndm_bpf_record.h"

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
		.tlp_retrans = tp->tlp_retrans,
		.ns = 1,	/* a replay may time it */
	};
}

/* cwnd and ssthresh: what the core has next; of most callbacks they are in the socket. */
static void leave(struct sock *sk, struct ndm_replay_record *r, u32 cwnd, u32 ssthresh)
{
	const struct sim_flow *f = (struct sim_flow *)sk;

	if (f->number)
		return;
	r->out_cwnd = cwnd;
	r->out_ssthresh = ssthresh;
	r->out_pacing = sk->sk_pacing_rate;
	memcpy(r->out_private, inet_csk_ca(sk), sizeof(r->out_private));
	r->out_memory = *f->memory;
	fwrite(r, sizeof(*r), 1, records);
}

static void after(struct sock *sk, struct ndm_replay_record *r)
{
	leave(sk, r, tcp_sk(sk)->snd_cwnd, tcp_sk(sk)->snd_ssthresh);
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

	leave(sk, &r, tcp_sk(sk)->snd_cwnd, threshold);
	return threshold;
}

static u32 recorded_undo(struct sock *sk)
{
	struct ndm_replay_record r = before(sk, NDM_REPLAY_UNDO, 0);
	u32 cwnd = ndm_undo_cwnd(sk);

	leave(sk, &r, cwnd, max(tcp_sk(sk)->prior_ssthresh, tcp_sk(sk)->snd_ssthresh));
	return cwnd;
}

static void recorded_event(struct sock *sk, enum tcp_ca_event event)
{
	struct ndm_replay_record r;

	if (event != CA_EVENT_TX_START)
		return;
	r = before(sk, NDM_REPLAY_IDLE, 0);
	take_event(sk, event);
	after(sk, &r);
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
	if (!records) {
		fprintf(stderr, "NDM_RECORDS: no file that can be written; name one\n");
		exit(1);
	}
	ops.init = recorded_init;
	ops.cong_control = recorded_ack;
	ops.ssthresh = recorded_ssthresh;
	ops.undo_cwnd = recorded_undo;
	ops.set_state = recorded_state;
	ops.cwnd_event = recorded_event;
}

__attribute__((destructor)) static void end(void)
{
	if (records && (ferror(records) || fclose(records)))
		abort();
}
