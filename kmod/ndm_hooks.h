/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way of an ACK, and the callbacks of struct tcp_congestion_ops. ndm_tcp.c registers
 * them as a module, bpf/ndm_tcp.bpf.c as BPF. Either defines before this:
 *
 *   ndm_count(counter, by)		count for all flows
 *   ndm_predict(window, x, out)	the network's outputs
 *   ndm_report(sk, r, phase, mode)	the event of a round
 *
 * and after it ndm_clear_memory() and ndm_end_round(), with the memory that ndm_finish_round()
 * works in.
 */
#ifndef _NDM_HOOKS_H
#define _NDM_HOOKS_H

#include "ndm_policy.h"

static void ndm_end_round(struct sock *sk, const struct rate_sample *rs);

/*
 * With ACKs held back an overflow does not show in the RTT: the loss may be one. It takes a
 * quarter of the window if srtt is above the baseline RTT, which contains the pauses.
 */
static void ndm_note_output(struct ndm *ca, const s32 *out)
{
	s32 logit = min(out[NDM_OUT_CONGESTION], NDM_OUT_CONGESTION_HI - 1);

	ca->congestion = ndm_rate_bounds(ca) ? max(logit, 0) : logit;
	ca->has_output = 1;
}

/*
 * A round ended: run the network, decide, report. r and ack: memory for that, r all zero.
 * Without the network's memory the flow does as Reno, as under the watchdog.
 */
static __always_inline void ndm_finish_round(struct sock *sk, const struct rate_sample *rs,
					     struct ndm_memory *memory, struct ndm_facts *r,
					     struct ndm_ack *ack)
{
	struct ndm *ca = inet_csk_ca(sk);
	u8 phase = ca->phase;
	enum ndm_mode mode;

	r->lost = ca->f.round_lost;
	r->window = ndm_window_of(sk);
	if (unlikely(ca->watchdog.probing_mtu != ndm_probes_mtu(sk)))
		ndm_note_mtu_probe(sk);
	/* Again, and all of it: the common ACK does without what only a round's end needs. */
	ndm_fill_ack(sk, rs, ack);
	ack->min_rtt_us = ndm_update_min_rtt(sk);
	r->min_rtt_us = ack->min_rtt_us;
	r->app_limited = ack->app_limited;
	r->valid = ndm_features_end_round(&ca->f, ack, r->x) == NDM_ROUND_VALID;
	ndm_count(NDM_COUNT_ROUNDS, 1);
	if (!memory) {
		ca->watchdog.left = NDM_WATCHDOG_ROUNDS;
		ndm_count(NDM_COUNT_NO_MEMORY, 1);
	} else if (r->valid) {
		ndm_remember(memory, r->x);
		ndm_predict(r->window, r->x, r->out);
		ndm_note_output(ca, r->out);
	}
	mode = ndm_decide(sk, r);
	if (r->took_over)
		ndm_count(NDM_COUNT_FALLBACKS, 1);
	if (ndm_was_guarded(r, mode))
		ndm_count(NDM_COUNT_GUARDED, 1);
	ndm_report(sk, r, phase, mode);
}

/*
 * Move the window towards the target, by at most the packets that this ACK delivered:
 * upwards that is the pace of slow start. Downwards an ACK for four packets or more takes a
 * quarter less, so that it sends one packet for four, unless the flow drains.
 */
static void ndm_approach_target(struct sock *sk, u32 acked)
{
	struct ndm *ca = inet_csk_ca(sk);
	u32 cwnd = tcp_snd_cwnd(tcp_sk(sk));

	if (cwnd > ca->target && !ca->watchdog.draining)
		cwnd -= min_t(u32, cwnd - ca->target, acked - (acked >> 2));
	else if (cwnd > ca->target)
		cwnd -= min_t(u32, cwnd - ca->target, acked);
	else if (cwnd < ca->target && tcp_is_cwnd_limited(sk))
		cwnd += min_t(u32, ca->target - cwnd, acked);
	else
		return;
	ndm_set_cwnd(sk, cwnd);
}

/* An ACK delivered packets. advanced: SND.UNA did. */
static void ndm_update_cwnd(struct sock *sk, const struct rate_sample *rs, u32 acked, bool advanced)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 delivered;

	if (!acked)
		return;
	switch (ndm_ca_state(sk)) {
	case TCP_CA_CWR:
	case TCP_CA_Recovery:
		/* Without a reduction, too: a mark may begin one that counts this ACK. */
		delivered = ndm_prr_delivers(tp, acked);
		/* Spared, over, undone, or begun under another algorithm: as if open. */
		if (!ca->reducing)
			break;
		ndm_set_cwnd(sk, ndm_reduce(tp, acked, delivered, advanced && rs->losses <= 0));
		return;
	case TCP_CA_Loss:
		/* From the core's window, in_flight + 1, up to ssthresh. */
		if (tcp_in_slow_start(tp) && tcp_is_cwnd_limited(sk))
			cwnd = min(cwnd + acked, tp->snd_ssthresh);
		ndm_jump(sk, cwnd);
		return;
	}
	if (tcp_in_slow_start(tp))
		ndm_grow(sk, acked);
	else
		ndm_approach_target(sk, acked);
}

static bool ndm_is_quiet(const struct sock *sk, u32 acked, bool app_limited)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct ndm *ca = inet_csk_ca(sk);

	return ndm_round_is_quiet(&ca->f, app_limited, ndm_ca_state(sk),
				  (u64)tcp_packets_in_flight(tp) + acked, tcp_snd_cwnd(tp));
}

static NDM_COMMON void ndm_ack_arrived(struct sock *sk, const struct rate_sample *rs, bool advanced)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	struct ndm_ack ack;

	if (ca->opening)
		ndm_open(sk, rs);
	ndm_note_rtt(sk, rs->rtt_us);
	ndm_fill_ack(sk, rs, &ack);
	if (ndm_features_take(&ca->f, &ack)) {
		/* The ACK of a SYN whose timer expired may come before init(). */
		if (!ca->counted || ndm_is_quiet(sk, ack.acked, rs->is_app_limited))
			ndm_pass_round(&ca->f, &ack);
		else
			ndm_end_round(sk, rs);
	}
	ca->f.callers_lost = (u16)tp->lost;
	ndm_update_cwnd(sk, rs, ack.acked, advanced);
	ndm_update_pacing(sk);
}

static void ndm_leave_idle(struct sock *sk)
{
	ndm_restart(sk);
	/* Before the first packet leaves: the rate is the one of the newest ACK. */
	ndm_update_pacing(sk);
}

/*
 * The core has zeroed the private area; the ACK of a SYN may have changed it before this.
 * The socket need not be new: it keeps the window, threshold and recovery of another
 * algorithm.
 */
static void ndm_init(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	ndm_set_target(ca, tcp_snd_cwnd(tp));
	ca->starting = tcp_in_initial_slowstart(tp) ? ndm_start_credits : 0;
	/* Not zero, a mark, where a tail loss probe repairs the very first loss. */
	if (!tp->undo_marker && ndm_ca_state(sk) == TCP_CA_Open)
		ndm_set_prior_ssthresh(tp, tp->snd_ssthresh);
	ndm_start_features(sk);
	ca->counted = 1;
	/* Flows that began together must not probe together. */
	ca->phase = get_random_u32() % NDM_PROBE_ROUNDS;
	ndm_count(NDM_COUNT_FLOWS, 1);
	/* sch_fq paces if there is one, else TCP does; fq changes the status. */
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
	ndm_set_burst(sk, ndm_core_burst_shift, ndm_burst_shift);
	ndm_update_pacing(sk);
}

/* The core calls this for a socket that closes before init(), too. */
static void ndm_release(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);

	if (!ca->counted)
		return;
	ndm_count(NDM_COUNT_FLOWS, -1);
	/* Another algorithm takes over a recovery whose losses slow start survived. */
	if (ca->spared && ndm_ca_state(sk) == TCP_CA_Recovery)
		ndm_set_ssthresh(tcp_sk(sk), tcp_snd_cwnd(tcp_sk(sk)) >> 1);
	ndm_set_burst(sk, ndm_burst_shift, ndm_core_burst_shift);
	ca->counted = 0;
}

/* Three windows of buffer: data to send while a recovery slow-starts. */
static u32 ndm_sndbuf_expand(struct sock *sk)
{
	return 3;
}

#endif /* _NDM_HOOKS_H */
