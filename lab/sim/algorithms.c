// SPDX-License-Identifier: GPL-2.0-only
/*
 * The algorithms by name. Linux's own register themselves here, and use these functions of the
 * core: Reno's, of RFC 5681.
 */
#include <string.h>

#include "sim.h"

static const struct tcp_congestion_ops *algorithm[8];
static u32 algorithms;

int tcp_register_congestion_control(struct tcp_congestion_ops *ops)
{
	algorithm[algorithms++] = ops;
	return 0;
}

const struct tcp_congestion_ops *sim_algorithm(const char *name)
{
	for (u32 i = 0; i < algorithms; i++)
		if (!strcmp(algorithm[i]->name, name))
			return algorithm[i];
	return NULL;
}

/* Parameters of modules, by name. */
static struct {
	const char *name;
	void *value;
	u32 bytes;
} param[32];
static u32 params;

void sim_add_param(const char *name, void *value, u32 bytes)
{
	if (params == sizeof(param) / sizeof(*param) || bytes > sizeof(u32))
		abort();
	param[params].name = name;
	param[params].value = value;
	param[params++].bytes = bytes;
}

/* False: no module has it. */
bool sim_set_param(const char *name, u32 value)
{
	for (u32 i = 0; i < params; i++) {
		if (strcmp(param[i].name, name))
			continue;
		memcpy(param[i].value, &value, param[i].bytes);	/* little endian */
		return true;
	}
	return false;
}

/* Up to the threshold; what is left of the packets is returned. */
u32 tcp_slow_start(struct tcp_sock *tp, u32 acked)
{
	u32 cwnd = min(tp->snd_cwnd + acked, tp->snd_ssthresh);

	acked -= cwnd - tp->snd_cwnd;
	tp->snd_cwnd = min(cwnd, tp->snd_cwnd_clamp);
	return acked;
}

/* One packet for `w` that arrived. */
void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked)
{
	if (tp->snd_cwnd_cnt >= w) {
		tp->snd_cwnd_cnt = 0;
		tp->snd_cwnd++;
	}
	tp->snd_cwnd_cnt += acked;
	if (tp->snd_cwnd_cnt >= w) {
		u32 more = tp->snd_cwnd_cnt / w;

		tp->snd_cwnd_cnt -= more * w;
		tp->snd_cwnd += more;
	}
	tp->snd_cwnd = min(tp->snd_cwnd, tp->snd_cwnd_clamp);
}

void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(tp, tp->snd_cwnd, acked);
}

u32 tcp_reno_ssthresh(struct sock *sk)
{
	return max(tcp_sk(sk)->snd_cwnd >> 1, 2U);
}

u32 tcp_reno_undo_cwnd(struct sock *sk)
{
	return max(tcp_sk(sk)->snd_cwnd, tcp_sk(sk)->prior_cwnd);
}

static void nothing(struct sock *sk)
{
}

static struct tcp_congestion_ops reno = {
	.name = "reno",
	.init = nothing,
	.ssthresh = tcp_reno_ssthresh,
	.cong_avoid = tcp_reno_cong_avoid,
	.undo_cwnd = tcp_reno_undo_cwnd,
};

__attribute__((constructor)) static void add_reno(void)
{
	tcp_register_congestion_control(&reno);
}
