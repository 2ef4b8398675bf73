/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * kmod/ndm_socket.h for BPF. The verifier lets no program write prior_cwnd, prior_ssthresh
 * and prr_delivered: a shadow holds the value that the module would have written, for as
 * long as the core does not write the field itself. The core writes them right before it
 * calls ssthresh(), where ndm_begin_reduction() drops the shadows, or sets prior_ssthresh to
 * zero, which shows.
 */
#ifndef _NDM_BPF_SOCKET_H
#define _NDM_BPF_SOCKET_H

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define NDM_RTAX_INITCWND	11	/* RTAX_INITCWND, whose metrics begin at 1 */
#define NDM_METRICS_FLAGS	3UL	/* DST_METRICS_FLAGS, in the pointer's low bits */

/* A field as the core left it, and the value in its place. */
struct ndm_shadowed {
	u32 seen;
	u32 value;
	u32 set;
};

struct ndm_shadow {
	struct ndm_shadowed prior_cwnd;
	struct ndm_shadowed prior_ssthresh;
	u32 prr_delivered;
	u32 undo_ssthresh;	/* see ndm_settle() */
};

/* NULL: the kernel had no memory for this socket. */
static __always_inline struct ndm_shadow *ndm_shadow_of(const void *sk);
static __always_inline bool ndm_is_replay(void);
static __always_inline void ndm_undone(struct sock *sk);

static __always_inline u8 ndm_ca_state(const struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD(inet_csk(sk), icsk_ca_state);
}

static __always_inline bool ndm_was_cwnd_limited(const struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited);
}

static __always_inline bool ndm_tlp_retransmitted(const struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(tp, tlp_retrans);
}

static __always_inline bool ndm_probes_mtu(const struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD(inet_csk(sk), icsk_mtup.probe_size);
}

/*
 * The core's value is read before the shadow is looked at: else the compiler merges the two
 * loads, and one instruction may not load from two kinds of pointers.
 */
static __always_inline u32 ndm_unshadow(const struct ndm_shadowed *s, u32 core)
{
	return s->set && s->seen == core ? s->value : core;
}

static __always_inline void ndm_shadow_set(struct ndm_shadowed *s, u32 core, u32 value)
{
	*s = (struct ndm_shadowed){ core, value, 1 };
}

static __always_inline u32 ndm_prior_cwnd(const struct tcp_sock *tp)
{
	const struct ndm_shadow *s = ndm_shadow_of(tp);
	u32 core = READ_ONCE(tp->prior_cwnd);

	return s ? ndm_unshadow(&s->prior_cwnd, core) : core;
}

static __always_inline void ndm_set_prior_cwnd(struct tcp_sock *tp, u32 packets)
{
	struct ndm_shadow *s = ndm_shadow_of(tp);

	if (s)
		ndm_shadow_set(&s->prior_cwnd, tp->prior_cwnd, packets);
}

static __always_inline u32 ndm_prior_ssthresh(const struct tcp_sock *tp)
{
	const struct ndm_shadow *s = ndm_shadow_of(tp);
	u32 core = READ_ONCE(tp->prior_ssthresh);

	return s ? ndm_unshadow(&s->prior_ssthresh, core) : core;
}

static __always_inline void ndm_set_prior_ssthresh(struct tcp_sock *tp, u32 packets)
{
	struct ndm_shadow *s = ndm_shadow_of(tp);

	if (s)
		ndm_shadow_set(&s->prior_ssthresh, tp->prior_ssthresh, packets);
}

static __always_inline u32 ndm_prr_delivers(struct tcp_sock *tp, u32 acked)
{
	struct ndm_shadow *s = ndm_shadow_of(tp);

	return s ? s->prr_delivered += acked : acked;
}

static __always_inline u32 ndm_route_initcwnd(struct sock *sk)
{
	unsigned long metrics = BPF_CORE_READ(sk, sk_dst_cache, _metrics) & ~NDM_METRICS_FLAGS;
	u32 packets = 0;

	if (metrics)
		bpf_probe_read_kernel(&packets, sizeof(packets),
				      (const u32 *)metrics + NDM_RTAX_INITCWND - 1);
	return packets;
}

static __always_inline bool ndm_slow_starts_after_idle(const struct sock *sk)
{
	return ndm_is_replay() ||
	       BPF_CORE_READ(sk, __sk_common.skc_net.net, ipv4.sysctl_tcp_slow_start_after_idle);
}

/*
 * Right before ssthresh(). ndm_init()'s shadow of prior_ssthresh is for a tail loss probe that
 * repairs the first loss. A mark leaves the same zero in the field, but is counted; a drop in
 * this host's own queue after such a probe is mistaken for another.
 */
static __always_inline void ndm_begin_reduction(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct ndm_shadow *s = ndm_shadow_of(sk);

	if (!s)
		return;
	s->prr_delivered = 0;
	s->prior_cwnd.set = 0;
	if (tp->prior_ssthresh || s->prior_ssthresh.seen || !ndm_tlp_retransmitted(tp) ||
	    tp->lost_out || tp->sacked_out || tp->delivered_ce)
		s->prior_ssthresh.set = 0;
}

#endif /* _NDM_BPF_SOCKET_H */
