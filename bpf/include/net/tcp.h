/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the algorithm uses of the kernel's net/tcp.h: members by name, which libbpf looks up
 * in the running kernel (CO-RE), and the inline functions once more. Without __bpf__ the
 * same names as plain C: tests and the simulator (lab/sim) compile the module's code for user
 * space, and the simulator Linux's own algorithms, which use some more members.
 */
#ifndef _NDM_BPF_NET_TCP_H
#define _NDM_BPF_NET_TCP_H

#include "kmod/ndm_types.h"

#define TCP_INFINITE_SSTHRESH	0x7fffffff
#define TCP_INIT_CWND		10
#define USEC_PER_SEC		1000000UL
#define USEC_PER_MSEC		1000UL
#define S32_MAX			0x7fffffff
#define BIT(n)			(1UL << (n))

#define READ_ONCE(x)		(*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v)	(*(volatile typeof(x) *)&(x) = (v))
#define unlikely(x)		__builtin_expect(!!(x), 0)

#define min(a, b)	({ typeof(a) _a = (a); typeof(b) _b = (b); _a < _b ? _a : _b; })
#define max(a, b)	({ typeof(a) _a = (a); typeof(b) _b = (b); _a > _b ? _a : _b; })
#define min_t(t, a, b)	min((t)(a), (t)(b))
#define max_t(t, a, b)	max((t)(a), (t)(b))
#define clamp(v, lo, hi)	min(max(v, lo), hi)
#define div_u64(a, b)	((u64)(a) / (u32)(b))
#undef __always_inline
#define __always_inline	inline __attribute__((always_inline))

enum tcp_ca_state {
	TCP_CA_Open,
	TCP_CA_Disorder,
	TCP_CA_CWR,
	TCP_CA_Recovery,
	TCP_CA_Loss,
};

enum tcp_ca_event {
	CA_EVENT_TX_START,
	CA_EVENT_CWND_RESTART,
	CA_EVENT_COMPLETE_CWR,
	CA_EVENT_LOSS,
};

enum {
	SK_PACING_NONE,
	SK_PACING_NEEDED,
	SK_PACING_FQ,
};

#ifdef __bpf__
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

struct in6_addr {
	u8 s6_addr[16];		/* in6_u; only its address is taken */
};

struct netns_ipv4 {
	u8 sysctl_tcp_slow_start_after_idle;
};

struct net {
	struct netns_ipv4 ipv4;
};

typedef struct {
	struct net *net;
} possible_net_t;

typedef struct {
	s64 counter;
} atomic64_t;

struct sock_common {
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	u16 skc_dport;
	u16 skc_num;
	unsigned short skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
};

struct dst_entry {
	unsigned long _metrics;
};

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
	u8 sk_pacing_shift;
#ifndef __bpf__
	u32 sk_gso_max_size;
#endif
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u32 icsk_rto;
	u8 icsk_ca_state:5;
	struct {
		u32 probe_size:31;
	} icsk_mtup;
	u64 icsk_ca_priv[13];
};

struct minmax_sample {
	u32 t;
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u64 tcp_mstamp;
	u64 bytes_acked;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 prior_ssthresh;
	u32 prr_delivered;
	u32 prr_out;
	u32 packets_out;
	u32 retrans_out;
	u32 max_packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 lost;
	u32 delivered;
	u32 delivered_ce;
	u32 total_retrans;
	u32 data_segs_out;
	u32 reord_seen;
	u32 undo_marker;
	u32 tlp_high_seq;
	u32 mss_cache;
	u32 srtt_us;
	u32 mdev_us;
	u32 lsndtime;
	u32 snd_nxt;
	u32 write_seq;
	struct minmax rtt_min;
	u8 is_cwnd_limited:1;
	u8 tlp_retrans:1;
#ifndef __bpf__
	u64 tcp_clock_cache;
	u64 tcp_wstamp_ns;
	u64 delivered_mstamp;
	u32 app_limited;
	u32 snd_una;
	u32 snd_cwnd_cnt;
#endif
};

struct rate_sample {
	u64 prior_mstamp;
	u32 prior_delivered;
	s32 delivered;
	long interval_us;
	long rtt_us;
	int losses;
	u32 acked_sacked;
	bool is_app_limited;
#ifndef __bpf__
	bool is_ack_delayed;
	u32 prior_in_flight;
#endif
};

#ifndef __bpf__
struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
};

union tcp_cc_info;
#endif

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 (*sndbuf_expand)(struct sock *sk);
	char name[16];
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	void (*cwnd_event_tx_start)(struct sock *sk);	/* from 7.1 on */
#ifndef __bpf__
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*min_tso_segs)(struct sock *sk);
	size_t (*get_info)(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info);
	u32 flags;
	void *owner;
#endif
};

#ifdef __bpf__
#pragma clang attribute pop
#endif

#define tcp_sk(sk)		((struct tcp_sock *)(sk))
#define inet_csk(sk)		(&tcp_sk(sk)->inet_conn)
#define inet_csk_ca(sk)		((void *)inet_csk(sk)->icsk_ca_priv)
#define tcp_snd_cwnd(tp)	((tp)->snd_cwnd)
#define tcp_snd_cwnd_set(tp, v)	((tp)->snd_cwnd = (v))
#define tcp_min_rtt(tp)		((tp)->rtt_min.s[0].v)
#define tcp_jiffies32		ndm_jiffies()
#define get_random_u32		ndm_random
/* BPF knows no cmpxchg() of the core's fields; fq sets the status when it is attached. */
#define cmpxchg(at, old, new)	({ if (*(at) == (old)) *(at) = (new); })
/* Nor may it set how much data a burst has. */
#ifdef __bpf__
#define sk_pacing_shift_update(sk, to)	((void)(sk), (void)(to))
#else
#define sk_pacing_shift_update(sk, to)	((sk)->sk_pacing_shift = (to))
#endif

static u32 ndm_jiffies(void);
static u32 ndm_random(void);

static inline bool tcp_in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

static inline bool tcp_in_initial_slowstart(const struct tcp_sock *tp)
{
	return tp->snd_ssthresh >= TCP_INFINITE_SSTHRESH;
}

static inline u32 tcp_packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) + tp->retrans_out;
}

#ifdef __bpf__
static __always_inline bool ndm_was_cwnd_limited(const struct tcp_sock *tp);
static __always_inline u8 ndm_ca_state(const struct sock *sk);
#else
#define ndm_was_cwnd_limited(tp)	((tp)->is_cwnd_limited)
#define ndm_ca_state(sk)		(inet_csk(sk)->icsk_ca_state)
#endif

static inline bool tcp_is_cwnd_limited(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (ndm_was_cwnd_limited(tp))
		return true;
	return tcp_in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

static inline u32 tcp_current_ssthresh(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u8 state = ndm_ca_state(sk);

	if (state == TCP_CA_CWR || state == TCP_CA_Recovery)
		return tp->snd_ssthresh;
	return max(tp->snd_ssthresh, (tp->snd_cwnd >> 1) + (tp->snd_cwnd >> 2));
}

#ifndef __bpf__
#undef ndm_was_cwnd_limited
#undef ndm_ca_state
#define sock_net(sk)		((sk)->__sk_common.skc_net.net)
#define __sk_dst_get(sk)	((sk)->sk_dst_cache)
#define dst_metric(dst, metric)	((u32)(dst)->_metrics)
#endif

#endif /* _NDM_BPF_NET_TCP_H */
