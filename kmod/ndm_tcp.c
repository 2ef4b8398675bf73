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
 * This file has the registration and the parameters, ndm_hooks.h the callbacks of struct
 * tcp_congestion_ops and the way of an ACK. ndm_policy.h decides at the end of a round and
 * draws the modes; ndm_path.h defines queue, scatter, full pipe and pausing hosts.
 *
 * The weights are those that the module was built with (generated/ndm_model.h), until root
 * swaps in others (ndm_swap.h). Before it registers, the module computes the exporter's
 * golden vectors and refuses to load if one bit differs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "compat.h"
#include "ndm_policy.h"
#include "ndm_selftest.h"
#include "ndm_swap.h"

#define CREATE_TRACE_POINTS
#include "ndm_trace.h"

/* Each CPU counts for itself. */
struct ndm_counters {
	long count[NDM_N_COUNTERS];
};

static DEFINE_PER_CPU(struct ndm_counters, ndm_counters);

static inline void ndm_count(enum ndm_counter counter, int by)
{
	this_cpu_add(ndm_counters.count[counter], by);
}

static NDM_RARE void ndm_trace_round(const struct sock *sk, const struct ndm_facts *r, u8 phase,
				     enum ndm_mode why)
{
	const struct ndm *ca = inet_csk_ca(sk);
	struct ndm_round_report report = {
		.cwnd		= r->window,
		.target		= ca->target,
		.ssthresh	= tcp_sk(sk)->snd_ssthresh,
		.valid		= r->valid,
		.state		= ndm_ca_state(sk),
		.phase		= phase,
		.why		= why,
	};

	memcpy(report.x, r->x, sizeof(report.x));
	memcpy(report.out, r->out, sizeof(report.out));
	trace_ndm_tcp_round(sk, &report);
}

static inline void ndm_report(const struct sock *sk, const struct ndm_facts *r, u8 phase,
			      enum ndm_mode why)
{
	if (trace_ndm_tcp_round_enabled())
		ndm_trace_round(sk, r, phase, why);
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
	ndm_infer_swapped(x, out);
}
#endif

#include "ndm_hooks.h"

static NDM_RARE void ndm_end_round(struct sock *sk, const struct rate_sample *rs)
{
	const struct ndm *ca = inet_csk_ca(sk);
	struct ndm_facts r = {};
	struct ndm_ack ack;

	ndm_finish_round(sk, rs, ca->memory, &r, &ack);
}

static void ndm_clear_memory(struct sock *sk)
{
	const struct ndm *ca = inet_csk_ca(sk);

	if (ca->memory)
		*ca->memory = (struct ndm_memory){};
}

/* The private area would limit the size of the network's memory, so it is a block. */
static struct kmem_cache *ndm_memories;

static void ndm_begin(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);

	ca->memory = kmem_cache_zalloc(ndm_memories, GFP_NOWAIT | __GFP_NOWARN);
	ndm_init(sk);
}

/* Perhaps twice, or without ndm_begin(). */
static void ndm_end(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);

	ndm_release(sk);
	if (ca->memory)
		kmem_cache_free(ndm_memories, ca->memory);
	ca->memory = NULL;
}

static NDM_CONG_CONTROL(ndm_cong_control, ndm_ack_arrived)

static NDM_TX_START(ndm_tx_start, ndm_leave_idle)

static struct tcp_congestion_ops ndm_ops __read_mostly = {
	.name			= "ndm_tcp",
	.owner			= THIS_MODULE,
	.init			= ndm_begin,
	.release		= ndm_end,
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

static const struct kernel_param_ops ndm_model_hash_ops = {
	.set = ndm_refuse_parameter,
	.get = ndm_get_hash,
};

module_param_cb(model_hash, &ndm_model_hash_ops, NULL, 0444);
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

static enum ndm_counter ndm_guarded = NDM_COUNT_GUARDED;
module_param_cb(guarded, &ndm_counter_ops, &ndm_guarded, 0444);
MODULE_PARM_DESC(guarded, "rounds in which the guard held the window (read only)");

static enum ndm_counter ndm_no_memory = NDM_COUNT_NO_MEMORY;
module_param_cb(no_memory, &ndm_counter_ops, &ndm_no_memory, 0444);
MODULE_PARM_DESC(no_memory, "rounds without the network, for want of memory (read only)");

static void ndm_free(void)
{
	ndm_swap_ends();
	kmem_cache_destroy(ndm_memories);
}

static int __init ndm_register(void)
{
	struct ndm_selftest_result r;
	const char *failure;
	int err;

	BUILD_BUG_ON(sizeof(struct ndm) > ICSK_CA_PRIV_SIZE);
	BUILD_BUG_ON(TCP_CA_Recovery != NDM_CA_RECOVERY);
	BUILD_BUG_ON(TCP_CA_Loss != NDM_CA_LOSS);
	BUILD_BUG_ON(TCP_INFINITE_SSTHRESH != NDM_NO_SSTHRESH);
	/* struct ndm keeps the logit in 20 bits, below HI: ndm_note_output(). */
	BUILD_BUG_ON(NDM_OUT_CONGESTION_HI > 1 << 19 || NDM_OUT_CONGESTION_LO < -(1 << 19));

	ndm_memories = KMEM_CACHE(ndm_memory, 0);
	failure = ndm_selftest(&r);
	if (failure) {
		pr_err("golden %s: index %u, element %u: want %d, got %d\n",
		       failure, r.index, r.element, r.want, r.got);
		err = -EINVAL;
	} else if (!ndm_memories) {
		err = -ENOMEM;
	} else {
		err = ndm_swap_begins();
		if (!err)
			err = tcp_register_congestion_control(&ndm_ops);
	}
	if (err)
		ndm_free();
	else
		pr_info("model %s, %u golden vectors\n", NDM_MODEL_HASH, (u32)NDM_VECTORS);
	return err;
}

static void __exit ndm_unregister(void)
{
	tcp_unregister_congestion_control(&ndm_ops);
	ndm_free();
}

module_init(ndm_register);
module_exit(ndm_unregister);

MODULE_AUTHOR("The NDM-TCP authors");
MODULE_DESCRIPTION("NDM-TCP: congestion control by a small integer neural network");
MODULE_LICENSE("GPL");
MODULE_VERSION("0.1.0");
MODULE_ALIAS("tcp_ndm_tcp");
MODULE_INFO(model, NDM_MODEL_HASH);
