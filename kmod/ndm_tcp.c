// SPDX-License-Identifier: GPL-2.0-only
/*
 * NDM-TCP: congestion control by a small integer neural network.
 *
 * Once per packet-timed round the network sees ten dimensionless inputs and the means of
 * eight of them (ndm_features.h) and predicts two outputs: the factor by which the window
 * should change in the next round, and the probability that a loss now is overflow loss,
 * not random loss. The first sets a target that the window approaches as ACKs arrive, the
 * second the depth of the cut after a loss.
 *
 * The network proposes, classic rules dispose. Rules, not the network, decide how slow start
 * grows, and on retransmission timeouts, ECN, the restart after a silence, drains of the
 * queue, the ceiling over a window that overflowed the path, and that an unused window does
 * not grow. The network's second output may end the first slow start, or let slow start
 * return. In a recovery from losses the network still sets the window to reach, and RFC
 * 6937 how the flow gets there.
 *
 * This file has the hooks of struct tcp_congestion_ops, the registration and the
 * parameters. ndm_policy.h decides at the end of a round and draws the modes; ndm_path.h
 * defines queue, scatter, full pipe and pausing hosts.
 *
 * The weights are fixed when the module is built (generated/ndm_model.h). Before it
 * registers, the module computes the exporter's golden vectors and refuses to load if one
 * bit differs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/percpu.h>
#include <net/tcp.h>

#include "compat.h"
#include "ndm_policy.h"
#include "ndm_selftest.h"

#define CREATE_TRACE_POINTS
#include "ndm_trace.h"

/* Counters since the module was loaded; each CPU counts for itself. */
enum ndm_counter {
	NDM_COUNT_FLOWS,	/* sockets that use the module now */
	NDM_COUNT_ROUNDS,
	NDM_COUNT_FALLBACKS,	/* how often the watchdog took over */
	NDM_N_COUNTERS,
};

struct ndm_counters {
	long count[NDM_N_COUNTERS];
};

static DEFINE_PER_CPU(struct ndm_counters, ndm_counters);

static NDM_RARE void ndm_trace_round(const struct sock *sk, const struct ndm_facts *r, u8 phase,
				     enum ndm_mode why)
{
	const struct ndm *ca = inet_csk_ca(sk);
	struct ndm_round_report report = {
		.cwnd		= r->window,
		.target		= ca->target,
		.ssthresh	= tcp_sk(sk)->snd_ssthresh,
		.valid		= r->valid,
		.state		= inet_csk(sk)->icsk_ca_state,
		.phase		= phase,
		.why		= why,
	};

	memcpy(report.x, r->x, sizeof(report.x));
	memcpy(report.out, r->out, sizeof(report.out));
	trace_ndm_tcp_round(sk, &report);
}

/*
 * The network's outputs. A test builds with NDM_TEST_OUTPUTS=y (Kbuild) and puts its own
 * ndm_predict() into ndm_test_outputs.h.
 */
#ifdef NDM_TEST_OUTPUTS
#include "ndm_test_outputs.h"
#else
static inline void ndm_predict(u32 window, const s16 *x, s32 *out)
{
	ndm_infer(&ndm_model, x, out, NULL);
}
#endif

/* With ACKs held back an overflow does not show in the RTT: the loss may be one. */
static void ndm_note_output(struct ndm *ca, const s32 *out)
{
	ca->congestion = ca->f.paused ? max(out[NDM_OUT_CONGESTION], 0) : out[NDM_OUT_CONGESTION];
	ca->has_output = 1;
}

/* A round ended: run the network, decide, report. */
static NDM_RARE void ndm_end_round(struct sock *sk, const struct rate_sample *rs)
{
	struct ndm *ca = inet_csk_ca(sk);
	s32 out[NDM_N_OUTPUTS] = {};
	s16 x[NDM_N_DENSE] = {};
	struct ndm_facts r = {
		.x	= x,
		.out	= out,
		.lost	= ca->f.round_lost,
		.window	= ndm_window_of(sk),
	};
	u8 phase = ca->phase;
	struct ndm_ack ack;
	enum ndm_mode mode;

	if (unlikely(ca->watchdog.probing_mtu != !!inet_csk(sk)->icsk_mtup.probe_size))
		ndm_note_mtu_probe(sk);
	/* Again, and all of it: the common ACK does without what only a round's end needs. */
	ndm_fill_ack(sk, rs, &ack);
	ack.min_rtt_us = ndm_update_min_rtt(sk);
	r.min_rtt_us = ack.min_rtt_us;
	r.app_limited = ack.app_limited;
	r.valid = ndm_features_end_round(&ca->f, &ack, x) == NDM_ROUND_VALID;
	this_cpu_inc(ndm_counters.count[NDM_COUNT_ROUNDS]);
	if (r.valid) {
		ndm_remember(&ca->memory, x);
		ndm_predict(r.window, x, out);
		ndm_note_output(ca, out);
	}
	mode = ndm_decide(sk, &r);
	if (r.took_over)
		this_cpu_inc(ndm_counters.count[NDM_COUNT_FALLBACKS]);
	if (trace_ndm_tcp_round_enabled())
		ndm_trace_round(sk, &r, phase, mode);
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

/* An ACK delivered packets. forward: it made progress, see ndm_reduce(). */
static void ndm_update_cwnd(struct sock *sk, u32 acked, bool forward)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (!acked)
		return;
	switch (inet_csk(sk)->icsk_ca_state) {
	case TCP_CA_CWR:
	case TCP_CA_Recovery:
		/* Else spared, undone, or begun under another algorithm: as if open. */
		if (!ca->reducing)
			break;
		ndm_set_cwnd(sk, ndm_reduce(tp, acked, forward));
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

	return ndm_round_is_quiet(&ca->f, app_limited, inet_csk(sk)->icsk_ca_state,
				  (u64)tcp_packets_in_flight(tp) + acked, tcp_snd_cwnd(tp));
}

static void ndm_ack_arrived(struct sock *sk, const struct rate_sample *rs, bool advanced)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	struct ndm_ack ack;

	if (ca->opening)
		ndm_open(sk, rs);
	ndm_note_rtt(sk, rs->rtt_us);
	ndm_fill_ack(sk, rs, &ack);
	if (ndm_features_take(&ca->f, &ack)) {
		if (ndm_is_quiet(sk, ack.acked, rs->is_app_limited))
			ndm_pass_round(&ca->f, tp->delivered, tp->srtt_us >> 3);
		else
			ndm_end_round(sk, rs);
	}
	ca->f.callers_lost = (u16)tp->lost;
	ndm_update_cwnd(sk, ack.acked, advanced && rs->losses <= 0);
	ndm_update_pacing(sk);
}

static NDM_CONG_CONTROL(ndm_cong_control, ndm_ack_arrived)

static void ndm_leave_idle(struct sock *sk)
{
	ndm_restart(sk);
	/* Before the first packet leaves: the rate is the one of the newest ACK. */
	ndm_update_pacing(sk);
}

static NDM_TX_START(ndm_tx_start, ndm_leave_idle)

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
	if (!tp->undo_marker && inet_csk(sk)->icsk_ca_state == TCP_CA_Open)
		tp->prior_ssthresh = tp->snd_ssthresh;
	ndm_start_features(sk);
	ca->counted = 1;
	/* Flows that began together must not probe together. */
	ca->phase = get_random_u32() % NDM_PROBE_ROUNDS;
	this_cpu_inc(ndm_counters.count[NDM_COUNT_FLOWS]);
	/* sch_fq paces if there is one, else TCP does; fq changes the status. */
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
	ndm_update_pacing(sk);
}

/* The core calls this for a socket that closes before init(), too. */
static void ndm_release(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);

	if (ca->counted)
		this_cpu_dec(ndm_counters.count[NDM_COUNT_FLOWS]);
	/* Another algorithm takes over a recovery whose losses slow start survived. */
	if (ca->counted && ca->spared && inet_csk(sk)->icsk_ca_state == TCP_CA_Recovery)
		ndm_set_ssthresh(tcp_sk(sk), tcp_snd_cwnd(tcp_sk(sk)) >> 1);
	ca->counted = 0;
}

/* Three windows of buffer: data to send while a recovery slow-starts. */
static u32 ndm_sndbuf_expand(struct sock *sk)
{
	return 3;
}

static struct tcp_congestion_ops ndm_ops __read_mostly = {
	.name			= "ndm_tcp",
	.owner			= THIS_MODULE,
	.init			= ndm_init,
	.release		= ndm_release,
	.cong_control		= ndm_cong_control,
	.ssthresh		= ndm_ssthresh,
	.undo_cwnd		= ndm_undo_cwnd,
	.set_state		= ndm_set_state,
	.NDM_TX_START_MEMBER	= ndm_tx_start,
	.sndbuf_expand		= ndm_sndbuf_expand,
};

/*
 * /sys/module/ndm_tcp/parameters shows which network runs. Not even the insmod command line
 * may change it.
 */
static int ndm_refuse_parameter(const char *value, const struct kernel_param *param)
{
	return -EPERM;
}

static const struct kernel_param_ops ndm_hash_ops = {
	.set = ndm_refuse_parameter,
	.get = param_get_charp,
};

static char *model_hash = NDM_MODEL_HASH;
module_param_cb(model_hash, &ndm_hash_ops, &model_hash, 0444);
MODULE_PARM_DESC(model_hash, "hash of the network's integers (read only)");

static char *contract_hash = NDM_CONTRACT_HASH;
module_param_cb(contract_hash, &ndm_hash_ops, &contract_hash, 0444);
MODULE_PARM_DESC(contract_hash, "hash of the definition of its inputs and outputs (read only)");

static int ndm_get_counter(char *buffer, const struct kernel_param *param)
{
	const enum ndm_counter *counter = param->arg;
	long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(ndm_counters, cpu).count[*counter]);
	return scnprintf(buffer, PAGE_SIZE, "%ld\n", sum);
}

static const struct kernel_param_ops ndm_counter_ops = {
	.set = ndm_refuse_parameter,
	.get = ndm_get_counter,
};

static enum ndm_counter ndm_flows = NDM_COUNT_FLOWS;
module_param_cb(flows, &ndm_counter_ops, &ndm_flows, 0444);
MODULE_PARM_DESC(flows, "sockets that use the module now (read only)");

static enum ndm_counter ndm_rounds = NDM_COUNT_ROUNDS;
module_param_cb(rounds, &ndm_counter_ops, &ndm_rounds, 0444);
MODULE_PARM_DESC(rounds, "rounds since the module was loaded (read only)");

static enum ndm_counter ndm_fallbacks = NDM_COUNT_FALLBACKS;
module_param_cb(fallbacks, &ndm_counter_ops, &ndm_fallbacks, 0444);
MODULE_PARM_DESC(fallbacks, "how often the watchdog took over from the network (read only)");

static int __init ndm_register(void)
{
	struct ndm_selftest_result r;
	const char *failure;
	int err;

	BUILD_BUG_ON(sizeof(struct ndm) > ICSK_CA_PRIV_SIZE);
	BUILD_BUG_ON(TCP_CA_Recovery != NDM_CA_RECOVERY);
	BUILD_BUG_ON(TCP_CA_Loss != NDM_CA_LOSS);
	BUILD_BUG_ON(TCP_INFINITE_SSTHRESH != NDM_NO_SSTHRESH);
	/* struct ndm keeps the logit in 21 bits. */
	BUILD_BUG_ON(NDM_OUT_CONGESTION_HI >= 1 << 20 || NDM_OUT_CONGESTION_LO < -(1 << 20));

	failure = ndm_selftest(&r);
	if (failure) {
		pr_err("golden %s: index %u, element %u: want %d, got %d\n",
		       failure, r.index, r.element, r.want, r.got);
		return -EINVAL;
	}
	err = tcp_register_congestion_control(&ndm_ops);
	if (!err)
		pr_info("model %s, %u golden vectors\n", NDM_MODEL_HASH, (u32)NDM_VECTORS);
	return err;
}

static void __exit ndm_unregister(void)
{
	tcp_unregister_congestion_control(&ndm_ops);
}

module_init(ndm_register);
module_exit(ndm_unregister);

MODULE_AUTHOR("The NDM-TCP authors");
MODULE_DESCRIPTION("NDM-TCP: congestion control by a small integer neural network");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_ALIAS("tcp_ndm_tcp");
MODULE_INFO(model, NDM_MODEL_HASH);
