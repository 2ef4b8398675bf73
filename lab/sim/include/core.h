/* SPDX-License-Identifier: GPL-2.0-only */
/* What algorithms use of the kernel's core: algorithms.c has it. */
#ifndef _NDM_SIM_CORE_H
#define _NDM_SIM_CORE_H

#include <net/tcp.h>

#define SIM_UNA_ADVANCED	0x400	/* FLAG_SND_UNA_ADVANCED, in no header */

void sim_add_param(const char *name, void *value, u32 bytes);
int tcp_register_congestion_control(struct tcp_congestion_ops *ops);
u32 tcp_slow_start(struct tcp_sock *tp, u32 acked);
void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked);
void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked);
u32 tcp_reno_ssthresh(struct sock *sk);
u32 tcp_reno_undo_cwnd(struct sock *sk);
u32 sim_random(void);
u32 sim_jiffies(void);

static inline __attribute__((unused)) u32 ndm_jiffies(void)
{
	return sim_jiffies();
}

static inline __attribute__((unused)) u32 ndm_random(void)
{
	return sim_random();
}

#endif /* _NDM_SIM_CORE_H */
