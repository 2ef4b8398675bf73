/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All differences between kernels. Kbuild reads the kernel's own net/tcp.h and defines
 * NDM_HAVE_*: version numbers hide backports and patched trees. Only this file and Kbuild
 * depend on the kernel's version.
 */
#ifndef _NDM_COMPAT_H
#define _NDM_COMPAT_H

#include <net/tcp.h>

/*
 * 6.10 gave cong_control() the ACK number and the flags of tcp_input.c, of which one is used: the
 * ACK acknowledged data in order. Older kernels pass no flags. NDM_CONG_CONTROL defines the
 * callback that runs body with it.
 */
#ifdef NDM_HAVE_CONG_CONTROL_ACK
#define NDM_FLAG_SND_UNA_ADVANCED	0x400	/* FLAG_SND_UNA_ADVANCED, in no header */
#define NDM_CONG_CONTROL(name, body) \
	void name(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs) \
	{ body(sk, rs, flag & NDM_FLAG_SND_UNA_ADVANCED); }
#else
#define NDM_CONG_CONTROL(name, body) \
	void name(struct sock *sk, const struct rate_sample *rs) \
	{ body(sk, rs, true); }
#endif

/*
 * 7.1 took CA_EVENT_TX_START out of cwnd_event() into a callback of its own.
 * NDM_TX_START defines the callback that runs body when a sender leaves idle,
 * NDM_TX_START_MEMBER is where it goes.
 */
#ifdef NDM_HAVE_CWND_EVENT_TX_START
#define NDM_TX_START_MEMBER cwnd_event_tx_start
#define NDM_TX_START(name, body) \
	void name(struct sock *sk) { body(sk); }
#else
#define NDM_TX_START_MEMBER cwnd_event
#define NDM_TX_START(name, body) \
	void name(struct sock *sk, enum tcp_ca_event event) \
	{ if (event == CA_EVENT_TX_START) body(sk); }
#endif

#endif /* _NDM_COMPAT_H */
