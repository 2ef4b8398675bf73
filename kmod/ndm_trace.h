/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ndm_tcp:ndm_tcp_round, one event per round: the inputs, the outputs and
 * the rule that set the window. The numbers are the kernel's integers, so that the outputs can be
 * computed again from the text of a trace, bit by bit.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ndm_tcp

#if !defined(_NDM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _NDM_TRACE_H

#include <linux/tracepoint.h>
#include <net/inet_sock.h>
#include <net/ipv6.h>
#include <trace/events/net_probe_common.h>

#include "ndm_round.h"

static_assert(NDM_N_DENSE == 18, "ndm_tcp_round prints these inputs");

TRACE_DEFINE_ENUM(NDM_MODE_NETWORK);
TRACE_DEFINE_ENUM(NDM_MODE_BLIND);
TRACE_DEFINE_ENUM(NDM_MODE_SLOW_START);
TRACE_DEFINE_ENUM(NDM_MODE_GOES_ON);
TRACE_DEFINE_ENUM(NDM_MODE_RECOVERY);
TRACE_DEFINE_ENUM(NDM_MODE_WATCHDOG);
TRACE_DEFINE_ENUM(NDM_MODE_DRAIN);

#define ndm_show_why(why)				\
	__print_symbolic(why,				\
		{ NDM_MODE_NETWORK,	"network" },	\
		{ NDM_MODE_BLIND,	"blind" },	\
		{ NDM_MODE_SLOW_START,	"slow_start" },	\
		{ NDM_MODE_GOES_ON,	"goes_on" },	\
		{ NDM_MODE_RECOVERY,	"recovery" },	\
		{ NDM_MODE_WATCHDOG,	"watchdog" },	\
		{ NDM_MODE_DRAIN,	"drain" })

TRACE_EVENT(ndm_tcp_round,
	    TP_PROTO(const struct sock *sk, const struct ndm_round_report *report),
	    TP_ARGS(sk, report),

	    TP_STRUCT__entry(__array(s16, x, NDM_N_DENSE)
			     __array(s32, out, NDM_N_OUTPUTS)
			     __field(u32, cwnd)
			     __field(u32, target)
			     __field(u32, ssthresh)
			     __array(u8, saddr, sizeof(struct sockaddr_in6))
			     __array(u8, daddr, sizeof(struct sockaddr_in6))
			     __field(u64, cookie)
			     __field(u16, family)
			     __field(u16, sport)
			     __field(u16, dport)
			     __field(u8, valid)
			     __field(u8, state)
			     __field(u8, phase)
			     __field(u8, why)),

	    TP_fast_assign(const struct inet_sock *inet = inet_sk(sk);

			   memset(__entry->saddr, 0, sizeof(struct sockaddr_in6));
			   memset(__entry->daddr, 0, sizeof(struct sockaddr_in6));
			   TP_STORE_ADDR_PORTS(__entry, inet, sk);
			   __entry->cookie = atomic64_read(&sk->sk_cookie);
			   __entry->family = sk->sk_family;
			   memcpy(__entry->x, report->x, sizeof(__entry->x));
			   memcpy(__entry->out, report->out, sizeof(__entry->out));
			   __entry->cwnd = report->cwnd;
			   __entry->target = report->target;
			   __entry->ssthresh = report->ssthresh;
			   __entry->sport = ntohs(inet_sk(sk)->inet_sport);
			   __entry->dport = ntohs(inet_sk(sk)->inet_dport);
			   __entry->valid = report->valid;
			   __entry->state = report->state;
			   __entry->phase = report->phase;
			   __entry->why = report->why;),

	    TP_printk("family=%u src=%pISpc dest=%pISpc sock_cookie=%llx sport=%u dport=%u valid=%u x=%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d gain=%d congestion=%d phase=%u state=%u cwnd=%u target=%u ssthresh=%u why=%s",
		      __entry->family, __entry->saddr, __entry->daddr, __entry->cookie,
		      __entry->sport, __entry->dport, __entry->valid,
		      __entry->x[NDM_IN_RTT_RATIO], __entry->x[NDM_IN_LOSS_RATE],
		      __entry->x[NDM_IN_BDP_RATIO], __entry->x[NDM_IN_ENTROPY],
		      __entry->x[NDM_IN_SLOW_START], __entry->x[NDM_IN_PLASTICITY],
		      __entry->x[NDM_IN_RTT_VARIATION], __entry->x[NDM_IN_RTT_GRADIENT],
		      __entry->x[NDM_IN_DELIVERY_RATIO], __entry->x[NDM_IN_QUEUE_FLOOR],
		      __entry->x[NDM_IN_RTT_RATIO_MEAN], __entry->x[NDM_IN_LOSS_RATE_MEAN],
		      __entry->x[NDM_IN_BDP_RATIO_MEAN], __entry->x[NDM_IN_PLASTICITY_MEAN],
		      __entry->x[NDM_IN_RTT_VARIATION_MEAN],
		      __entry->x[NDM_IN_RTT_GRADIENT_MEAN],
		      __entry->x[NDM_IN_DELIVERY_RATIO_MEAN],
		      __entry->x[NDM_IN_QUEUE_FLOOR_MEAN],
		      __entry->out[NDM_OUT_CWND_GAIN], __entry->out[NDM_OUT_CONGESTION],
		      __entry->phase, __entry->state, __entry->cwnd, __entry->target,
		      __entry->ssthresh, ndm_show_why(__entry->why))
);

#endif /* _NDM_TRACE_H */

/* Kbuild adds this folder to the paths that are searched. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE ndm_trace
#include <trace/define_trace.h>
