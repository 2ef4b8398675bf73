/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of a flow, and the only functions that set its window, threshold and target.
 */
#ifndef _NDM_FLOW_H
#define _NDM_FLOW_H

#include <net/tcp.h>

#include "ndm_ceiling.h"
#include "ndm_control.h"
#include "ndm_drain.h"
#include "ndm_features.h"
#include "ndm_memory.h"
#include "ndm_socket.h"
#include "ndm_watchdog.h"

/*
 * Packets; the smallest window that the network may choose. A receiver that acknowledges
 * every second packet needs four in flight to keep two ACKs under way; with fewer, only a
 * timeout repairs a lost packet.
 */
static const u32 ndm_min_cwnd = 4;

/*
 * Packets; the lowest slow start threshold, RFC 5681's (equation 4). Below ndm_min_cwnd,
 * because a loss may cut deeper than the network.
 */
static const u32 ndm_min_ssthresh = 2;

/* Per-flow state, in the socket's private area of ICSK_CA_PRIV_SIZE bytes. */
struct ndm {
	struct ndm_features f;
	struct ndm_memory *memory;	/* the network's; BPF has it in the socket's storage */
	u32 target:20,		/* window to approach as ACKs arrive, packets */
	    ceiling_rounds:5,	/* for which a ceiling holds */
	    drain_rounds:5,	/* of struct ndm_drain, as the next; .shortest is the */
	    drain_alone:2;	/* features' spare byte, .draining the watchdog's bit */
	struct ndm_watchdog watchdog;
	s32 congestion:20;	/* the network's newest logit, Q16, below 8 */
	u32 has_output:1,	/* congestion is set */
	    unrivalled:1,	/* its losses leave Reno a sixteenth of the window: ndm_rivals.h */
	    reducing:1,		/* ssthresh() began a reduction that still runs */
	    counted:1,		/* among the flows in use */
	    phase:3,		/* of the probe */
	    starting:2,		/* credits of slow start: rounds in which it may return */
	    spared:1,		/* slow start survived losses that the network has not seen */
	    opening:1,		/* no data acknowledged yet */
	    tail_lost:1;	/* the last packet of a flight was: no more bursts */
};

/* The flags that the features keep for the module. */
#define NDM_MARKED	BIT(0)	/* a mark or a local drop; one round without growth follows */
#define NDM_WAS_FULL	BIT(1)	/* in the last round slow start found the pipe full */

/*
 * 20 bits: a receiver offers 1 GiB at most, and that is as many packets of 1 KiB. Any new
 * target ends a drain: the flow does not get back the window that the drain took.
 */
static void ndm_set_target(struct ndm *ca, u32 packets)
{
	ca->target = min(packets, (1U << 20) - 1);
	ca->watchdog.draining = 0;
}

/* Only downwards. No infinite threshold remains: packets comes from a window. */
static void ndm_set_ssthresh(struct tcp_sock *tp, u32 packets)
{
	WRITE_ONCE(tp->snd_ssthresh, min(tp->snd_ssthresh, max(packets, ndm_min_ssthresh)));
}

static void ndm_set_cwnd(struct sock *sk, u32 cwnd)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tcp_snd_cwnd_set(tp, min(cwnd, tp->snd_cwnd_clamp));
}

/* Set the window, and keep it until the next round ends. */
static void ndm_jump(struct sock *sk, u32 cwnd)
{
	struct ndm *ca = inet_csk_ca(sk);

	ndm_set_cwnd(sk, cwnd);
	ndm_set_target(ca, tcp_snd_cwnd(tcp_sk(sk)));
}

/*
 * Set the target of the next round. A window below ssthresh would be in slow start and
 * double again; but in a recovery ndm_reduce() approaches ssthresh.
 */
static void ndm_aim(struct sock *sk, u32 packets, bool recovery)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	ndm_set_target(ca, min(max(packets, ndm_min_cwnd), tp->snd_cwnd_clamp));
	if (recovery || ca->target < tp->snd_ssthresh)
		WRITE_ONCE(tp->snd_ssthresh, max_t(u32, ca->target, ndm_min_ssthresh));
}

/* The flow's window, packets: in a recovery the one that it ends with. */
static u32 ndm_window_of(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return ndm_window(ndm_ca_state(sk), tcp_snd_cwnd(tp), tp->snd_ssthresh);
}

/*
 * Only a used window may grow. A recovery always uses cwnd, but cwnd is not the window
 * there: half of the window must be out, as in slow start.
 */
static bool ndm_window_is_used(const struct sock *sk, u32 window)
{
	return tcp_is_cwnd_limited(sk) &&
	       (ndm_ca_state(sk) != TCP_CA_Recovery ||
		tcp_sk(sk)->packets_out >= window >> 1);
}

/* The highest rate of the last rounds, in the units of the features. */
static u32 ndm_max_rate(const struct ndm *ca)
{
	return max(ca->f.max_rate[0], ca->f.max_rate[1]);
}

#endif /* _NDM_FLOW_H */
