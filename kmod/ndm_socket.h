/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The fields of a socket that BPF can only reach in another way: bit fields, whose place
 * differs between kernels, and what the verifier lets no program write. bpf/ndm_bpf_socket.h
 * defines the same functions for BPF.
 */
#ifndef _NDM_SOCKET_H
#define _NDM_SOCKET_H

#include <net/tcp.h>

#ifdef __bpf__
#include <ndm_bpf_socket.h>
#else

/* Of enum tcp_ca_state. */
static inline u8 ndm_ca_state(const struct sock *sk)
{
	return inet_csk(sk)->icsk_ca_state;
}

/* Was the window full when the newest packets left? */
static inline bool ndm_was_cwnd_limited(const struct tcp_sock *tp)
{
	return tp->is_cwnd_limited;
}

/* The newest tail loss probe was a retransmission. */
static inline bool ndm_tlp_retransmitted(const struct tcp_sock *tp)
{
	return tp->tlp_retrans;
}

/* Is a probe for a larger MTU under way? */
static inline bool ndm_probes_mtu(const struct sock *sk)
{
	return inet_csk(sk)->icsk_mtup.probe_size;
}

/* Packets; the window before the newest reduction. */
static inline u32 ndm_prior_cwnd(const struct tcp_sock *tp)
{
	return tp->prior_cwnd;
}

static inline void ndm_set_prior_cwnd(struct tcp_sock *tp, u32 packets)
{
	tp->prior_cwnd = packets;
}

/* Packets; the threshold that an undo restores, 0: none can. */
static inline u32 ndm_prior_ssthresh(const struct tcp_sock *tp)
{
	return tp->prior_ssthresh;
}

static inline void ndm_set_prior_ssthresh(struct tcp_sock *tp, u32 packets)
{
	tp->prior_ssthresh = packets;
}

/* Packets that arrived in this recovery, with those of this ACK. */
static inline u32 ndm_prr_delivers(struct tcp_sock *tp, u32 acked)
{
	return tp->prr_delivered += acked;
}

/* Of the route, packets; 0: none is set. */
static inline u32 ndm_route_initcwnd(struct sock *sk)
{
	const struct dst_entry *dst = __sk_dst_get(sk);

	return dst ? dst_metric(dst, RTAX_INITCWND) : 0;
}

static inline bool ndm_slow_starts_after_idle(const struct sock *sk)
{
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_slow_start_after_idle);
}

/* What the core does after undo_cwnd(), the callback need not. */
static inline void ndm_undone(struct sock *sk)
{
}

#endif

#endif /* _NDM_SOCKET_H */
