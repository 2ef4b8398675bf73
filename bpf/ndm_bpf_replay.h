/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs one record (ndm_bpf_record.h). The BPF program ndm_replay and the module's code in
 * user space (tests/bpf/replay.c) include this after ndm_hooks.h.
 */
#ifndef _NDM_BPF_REPLAY_H
#define _NDM_BPF_REPLAY_H

#include "ndm_bpf_record.h"

/* Bit fields: their place is the running kernel's. */
#ifdef __bpf__
#define NDM_REPLAY_PUT(s, field, value) do { \
	u64 *at = (void *)(s) + __CORE_RELO(s, field, BYTE_OFFSET); \
	u32 left = __CORE_RELO(s, field, LSHIFT_U64), right = __CORE_RELO(s, field, RSHIFT_U64); \
	u64 mask = ~0ULL >> right << (right - left); \
	*at = (*at & ~mask) | (((u64)(value) << (right - left)) & mask); \
} while (0)
#else
#define NDM_REPLAY_PUT(s, field, value)	((s)->field = (value))
#endif

static __always_inline void ndm_replay_fill(struct tcp_sock *tp, struct rate_sample *rs,
					    const struct ndm_replay_record *r)
{
	tp->tcp_mstamp = r->mstamp;
	tp->bytes_acked = r->bytes_acked;
	tp->packets_out = r->packets_out;
	tp->sacked_out = r->sacked_out;
	tp->lost_out = r->lost_out;
	tp->retrans_out = r->retrans_out;
	tp->max_packets_out = r->max_packets_out;
	tp->prr_out = r->prr_out;
	tp->mss_cache = r->mss_cache;
	tp->srtt_us = r->srtt_us;
	tp->mdev_us = r->mdev_us;
	tp->rtt_min.s[0].v = r->min_rtt_us;
	tp->delivered = r->delivered;
	tp->delivered_ce = r->delivered_ce;
	tp->lost = r->lost;
	tp->total_retrans = r->total_retrans;
	tp->reord_seen = r->reord_seen;
	tp->data_segs_out = r->data_segs_out;
	tp->undo_marker = r->undo_marker;
	tp->tlp_high_seq = r->tlp_high_seq;
	tp->lsndtime = r->lsndtime;
	inet_csk(tp)->icsk_rto = r->rto;
	NDM_REPLAY_PUT(tp, is_cwnd_limited, r->cwnd_limited);
	NDM_REPLAY_PUT(tp, tlp_retrans, r->tlp_retrans);
	NDM_REPLAY_PUT(inet_csk(tp), icsk_mtup.probe_size, r->probing_mtu);
	rs->prior_mstamp = r->prior_mstamp;
	rs->prior_delivered = r->prior_delivered;
	rs->delivered = r->rs_delivered;
	rs->interval_us = r->interval_us;
	rs->rtt_us = r->rtt_us;
	rs->losses = r->losses;
	rs->acked_sacked = r->acked_sacked;
	rs->is_app_limited = r->app_limited;
}

static __always_inline void ndm_replay_init(struct sock *sk, const struct ndm_replay_record *r)
{
	struct tcp_sock *tp = tcp_sk(sk);

	memset(inet_csk(sk)->icsk_ca_priv, 0, 104);
	tp->snd_cwnd = r->cwnd;
	tp->snd_ssthresh = r->ssthresh;
	tp->snd_cwnd_clamp = ~0U;
	tp->prior_cwnd = 0;
	tp->prior_ssthresh = 0;
	tp->prr_delivered = 0;
	sk->sk_max_pacing_rate = ~0UL;
	sk->sk_pacing_status = SK_PACING_NONE;
	NDM_REPLAY_PUT(inet_csk(sk), icsk_ca_state, TCP_CA_Open);
	ndm_replay_hook_init(sk);
}

/* tcp_init_cwnd_reduction(), and what tcp_enter_loss() does of it. */
static __always_inline void ndm_replay_cut(struct sock *sk, const struct ndm_replay_record *r)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (r->arg != NDM_REPLAY_CUT_TLP)
		tp->prior_ssthresh = r->arg == NDM_REPLAY_CUT_LOSS ? tcp_current_ssthresh(sk) : 0;
	tp->prior_cwnd = tp->snd_cwnd;
	tp->prr_delivered = 0;
	tp->snd_ssthresh = ndm_replay_hook_ssthresh(sk);
}

static __always_inline void ndm_replay_undo(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (!tp->prior_ssthresh)
		return;
	tp->snd_cwnd = ndm_replay_hook_undo(sk);
	if (tp->prior_ssthresh > tp->snd_ssthresh)
		tp->snd_ssthresh = tp->prior_ssthresh;
	ndm_replay_hook_settle(sk);
}

static __always_inline void ndm_replay_state(struct sock *sk, u8 state)
{
	ndm_replay_hook_state(sk, state);
	NDM_REPLAY_PUT(inet_csk(sk), icsk_ca_state, state);
	if (state == TCP_CA_Loss)
		tcp_sk(sk)->snd_cwnd = tcp_packets_in_flight(tcp_sk(sk)) + 1;
}

static __always_inline void ndm_replay_run(struct sock *sk, struct rate_sample *rs,
					   struct ndm_replay_record *r)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 *private = inet_csk(sk)->icsk_ca_priv;
	u32 i;

	ndm_replay_fill(tp, rs, r);
	switch (r->op) {
	case NDM_REPLAY_INIT:
		ndm_replay_init(sk, r);
		break;
	case NDM_REPLAY_ACK:
		ndm_replay_hook_ack(sk, rs, r->advanced);
		break;
	case NDM_REPLAY_CUT:
		ndm_replay_cut(sk, r);
		break;
	case NDM_REPLAY_STATE:
		ndm_replay_state(sk, r->arg);
		break;
	case NDM_REPLAY_UNDO:
		ndm_replay_undo(sk);
		break;
	case NDM_REPLAY_IDLE:
		ndm_replay_hook_idle(sk);
		break;
	}
	r->out_cwnd = tp->snd_cwnd;
	r->out_ssthresh = tp->snd_ssthresh;
	r->out_prior_cwnd = ndm_prior_cwnd(tp);
	r->out_prior_ssthresh = ndm_prior_ssthresh(tp);
	r->out_state = ndm_ca_state(sk);
	r->out_pacing = sk->sk_pacing_rate;
#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (i = 0; i < 13; i++)
		r->out_private[i] = private[i];
#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (i = 0; i < NDM_N_MEANS; i++)
		r->out_memory.state[i] = ndm_replay_memory.state[i];
}

#endif /* _NDM_BPF_REPLAY_H */
