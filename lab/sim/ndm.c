// SPDX-License-Identifier: GPL-2.0-only
/* The module, from its headers; the network's memory is a flow's own. */
#include "sim.h"

#include "kmod/ndm_policy.h"
#include "kmod/generated/ndm_model.h"

#define ndm_count(counter, by)			((void)0)
#define ndm_report(sk, r, phase, mode)		((void)(phase), (void)(mode))
#define ndm_predict(window, x, out)		ndm_infer(&ndm_model, x, out, NULL)
#include "kmod/ndm_hooks.h"

static void ndm_clear_memory(struct sock *sk)
{
	*((struct sim_flow *)sk)->memory = (struct ndm_memory){};
}

static NDM_RARE void ndm_end_round(struct sock *sk, const struct rate_sample *rs)
{
	struct sim_flow *f = (struct sim_flow *)sk;
	struct ndm_facts r = {};
	struct ndm_ack ack;

	ndm_finish_round(sk, rs, f->memory, &r, &ack);
	f->own_min_rtt_us = ack.min_rtt_us;
}

static void begin(struct sock *sk)
{
	struct sim_flow *f = (struct sim_flow *)sk;

	f->memory = calloc(1, sizeof(*f->memory));
	if (!f->memory)
		abort();
	ndm_init(sk);
}

static void take_ack(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	const struct ndm *ca = inet_csk_ca(sk);
	struct sim_flow *f = (struct sim_flow *)sk;

	f->own_min_rtt_us = 0;
	ndm_ack_arrived(sk, rs, flag & SIM_UNA_ADVANCED);
	if (!f->own_min_rtt_us)
		f->own_min_rtt_us = ca->f.callers_us;
}

static void take_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		ndm_leave_idle(sk);
}

static struct tcp_congestion_ops ops = {
	.name = "ndm_tcp",
	.init = begin,
	.cong_control = take_ack,
	.ssthresh = ndm_ssthresh,
	.undo_cwnd = ndm_undo_cwnd,
	.set_state = ndm_set_state,
	.cwnd_event = take_event,
	.sndbuf_expand = ndm_sndbuf_expand,
};

__attribute__((constructor)) static void add(void)
{
	tcp_register_congestion_control(&ops);
}
