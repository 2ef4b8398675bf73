// SPDX-License-Identifier: GPL-2.0-only
/*
 * NDM-TCP as BPF struct_ops: the module's headers, compiled once for every kernel (CO-RE).
 *
 * struct ndm stays in the socket's private area, as in the module. What would not fit the
 * 512 bytes of stack of a BPF call chain is in the socket's storage: a per-CPU map would be
 * wrong, since ACKs of the backlog run preemptible.
 *
 * The loader runs ndm_check_infer and ndm_check_features with the golden vectors before it
 * registers the callbacks; all share ndm_bpf_infer(), byte for byte.
 */
#include "kmod/ndm_types.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/*
 * Tables without types: small ones go to sections of mergeable constants (.rodata.cst32),
 * while clang's types place all in .rodata, and the kernel refuses offsets that are none.
 */
#pragma clang attribute push(__attribute__((nodebug)), apply_to = variable(unless(is_parameter)))
#include "kmod/ndm_policy.h"
#include "kmod/generated/ndm_model.h"
#include "kmod/ndm_weights.h"
#pragma clang attribute pop
#include "ndm_bpf.h"

#define NDM_FLAG_SND_UNA_ADVANCED	0x400	/* FLAG_SND_UNA_ADVANCED, in no header */
#define AF_INET6	10

char _license[] SEC("license") = "GPL";

/* The loader sets it for the test that replays records without a socket. */
const volatile bool ndm_replays = false;

/* What the network works in; `trace` has every layer's pre-activations. */
struct ndm_net {
	s16 x[NDM_N_DENSE];
	s32 out[NDM_N_OUTPUTS];
	u64 in[NDM_MAX_WIDTH];
	s32 trace[NDM_MODEL_TRACE + 1];
};

/* Per socket: all that the private area has no room for. */
struct ndm_more {
	struct ndm_shadow shadow;
	struct ndm_memory memory;
	struct ndm_facts facts;
	struct ndm_ack ack;
	struct ndm_net net;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct ndm_more);
} ndm_sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ndm_shared);
} ndm_shared SEC(".maps");

/* Networks that were swapped in, by slot less 1; nothing is written to the slot that runs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NDM_SLOTS);
	__type(key, u32);
	__type(value, struct ndm_weights);
} ndm_models SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ndm_active);
} ndm_active SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ndm_events SEC(".maps");

/* In the place of a socket's, for the programs that the loader runs. */
static struct ndm_more ndm_scratch;
static struct ndm_features ndm_check_flow;
static struct ndm_memory ndm_check_memory;
static u32 ndm_replay_jiffies, ndm_replay_random;

static __always_inline bool ndm_is_replay(void)
{
	return ndm_replays;
}

static u32 ndm_jiffies(void)
{
	return ndm_replays ? ndm_replay_jiffies : (u32)bpf_jiffies64();
}

static u32 ndm_random(void)
{
	return ndm_replays ? ndm_replay_random : bpf_get_prandom_u32();
}

static __always_inline struct ndm_more *ndm_more_of(const void *sk, u64 flags)
{
	return ndm_replays ? &ndm_scratch : bpf_sk_storage_get(&ndm_sockets, (void *)sk, 0, flags);
}

static __always_inline struct ndm_shadow *ndm_shadow_of(const void *sk)
{
	struct ndm_more *more = ndm_more_of(sk, 0);

	return more ? &more->shadow : NULL;
}

static void ndm_clear_memory(struct sock *sk)
{
	struct ndm_more *more = ndm_more_of(sk, 0);

	if (more)
		more->memory = (struct ndm_memory){};
}

static __always_inline struct ndm_shared *ndm_get_shared(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&ndm_shared, &zero);
}

static __always_inline void ndm_count(enum ndm_counter counter, int by)
{
	struct ndm_shared *shared = ndm_get_shared();

	if (shared && !ndm_replays)
		__sync_fetch_and_add(&shared->count[counter], by);
}

/*
 * ndm_infer(), but in the memory that it is given: 768 bytes of stack are more than BPF has.
 * The compiler must know the layers: a model's tables of pointers do not reach the kernel.
 * weights: of a slot; NULL: the compiled ones.
 */
static __always_inline void ndm_run_layers(struct ndm_net *net, const struct ndm_weights *weights)
{
	const u64 *pair = weights ? weights->pair : NULL;
	const u8 *shift = weights ? weights->shift : NULL;
	s32 *pre = net->trace, *out = net->out;
	u32 i, l;

	for (i = 0; i < NDM_N_DENSE; i++)
		net->in[i] = (u64)net->x[i];
#pragma clang loop unroll(full)
	for (l = 0; l < sizeof(ndm_model_layer) / sizeof(*ndm_model_layer); l++) {
		struct ndm_layer layer = ndm_model_layer[l];
		const u32 pairs = (layer.n_out + 1U) / 2;

		if (l) {
			ndm_activate(&ndm_model_layer[l - 1], pre, net->in);
			pre += ndm_model_layer[l - 1].n_out;
		}
		if (weights) {
			layer.weight = pair;
			layer.bias = pair + pairs * layer.n_in;
			layer.shift = shift;
			pair += pairs * (layer.n_in + 1U);
			shift += 2 * pairs;
		}
		ndm_layer_forward(&layer, net->in, pre);
	}
	out[NDM_OUT_CWND_GAIN] = ndm_clamp(pre[NDM_OUT_CWND_GAIN], NDM_OUT_CWND_GAIN_LO,
					   NDM_OUT_CWND_GAIN_HI);
	out[NDM_OUT_CONGESTION] = ndm_clamp(pre[NDM_OUT_CONGESTION], NDM_OUT_CONGESTION_LO,
					    NDM_OUT_CONGESTION_HI);
}

__attribute__((noinline)) int ndm_bpf_infer(struct ndm_net *net)
{
	if (!net)
		return 1;
	ndm_run_layers(net, NULL);
	return 0;
}

/* The verifier walks this once, and not again in every program that calls it. */
__attribute__((noinline)) int ndm_bpf_infer_slot(struct ndm_net *net,
						 const struct ndm_weights *weights)
{
	if (!net || !weights)
		return 1;
	ndm_run_layers(net, weights);
	return 0;
}

/* Of a slot from 1 on; NULL: there is no such slot. */
static __always_inline struct ndm_weights *ndm_weights_of(u32 slot)
{
	u32 entry = slot - 1;

	return bpf_map_lookup_elem(&ndm_models, &entry);
}

/* The network of a slot on net->x. */
static __always_inline void ndm_infer_by(u32 slot, struct ndm_net *net)
{
	struct ndm_weights *weights = slot ? ndm_weights_of(slot) : NULL;

	if (weights)
		ndm_bpf_infer_slot(net, weights);
	else
		ndm_bpf_infer(net);
}

/* Read once in a round: all of an inference is by one network. */
static __always_inline u32 ndm_active_slot(void)
{
	u32 zero = 0;
	struct ndm_active *active = bpf_map_lookup_elem(&ndm_active, &zero);

	return active ? *(volatile u32 *)&active->slot : 0;
}

/* x is that of the facts in a socket's storage. */
static __always_inline void ndm_predict(u32 window, const s16 *x, s32 *out)
{
	struct ndm_more *more = (void *)x - __builtin_offsetof(struct ndm_more, facts.x);

	memcpy(more->net.x, x, sizeof(more->net.x));
	ndm_infer_by(ndm_active_slot(), &more->net);
	memcpy(out, more->net.out, sizeof(more->net.out));
}

static __always_inline void ndm_fill_addresses(struct ndm_event *e, const struct sock *sk)
{
	const struct sock_common *c = &sk->__sk_common;

	e->family = c->skc_family;
	e->sport = c->skc_num;
	e->dport = bpf_ntohs(c->skc_dport);
	e->cookie = (u64)c->skc_cookie.counter;
	if (e->family == AF_INET6 && bpf_core_field_exists(c->skc_v6_daddr)) {
		bpf_probe_read_kernel(e->saddr, sizeof(e->saddr), &c->skc_v6_rcv_saddr);
		bpf_probe_read_kernel(e->daddr, sizeof(e->daddr), &c->skc_v6_daddr);
		return;
	}
	memset(e->saddr, 0, sizeof(e->saddr));
	memset(e->daddr, 0, sizeof(e->daddr));
	memcpy(e->saddr, &(u32){ c->skc_rcv_saddr }, sizeof(u32));
	memcpy(e->daddr, &(u32){ c->skc_daddr }, sizeof(u32));
}

static NDM_RARE void ndm_send_event(const struct sock *sk, const struct ndm_facts *r, u8 phase,
				    u8 why)
{
	const struct ndm *ca = inet_csk_ca(sk);
	struct ndm_shared *shared = ndm_get_shared();
	struct ndm_event *e;

	if (!shared || !shared->reader)
		return;
	e = bpf_ringbuf_reserve(&ndm_events, sizeof(*e), 0);
	if (!e) {
		__sync_fetch_and_add(&shared->events_lost, 1);
		return;
	}
	e->t_ns = bpf_ktime_get_ns();
	memcpy(e->report.x, r->x, sizeof(e->report.x));
	memcpy(e->report.out, r->out, sizeof(e->report.out));
	e->report.cwnd = r->window;
	e->report.target = ca->target;
	e->report.ssthresh = tcp_sk(sk)->snd_ssthresh;
	e->report.valid = r->valid;
	e->report.state = ndm_ca_state(sk);
	e->report.phase = phase;
	e->report.why = why;
	ndm_fill_addresses(e, sk);
	bpf_ringbuf_submit(e, 0);
}

static __always_inline void ndm_report(const struct sock *sk, const struct ndm_facts *r, u8 phase,
				       enum ndm_mode why)
{
	if (!ndm_replays)
		ndm_send_event(sk, r, phase, why);
}

#include "kmod/ndm_hooks.h"

/* A flow without memory does as Reno: a packet a round, half after a loss (ndm_on_loss()). */
static __always_inline void ndm_end_without_memory(struct sock *sk, const struct rate_sample *rs)
{
	struct ndm *ca = inet_csk_ca(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 window = tcp_snd_cwnd(tp);
	struct ndm_ack ack;

	ndm_fill_ack(sk, rs, &ack);
	ndm_pass_round(&ca->f, &ack);
	ca->f.round_lost = 0;
	if (!tcp_in_slow_start(tp) && ndm_ca_state(sk) <= TCP_CA_Disorder)
		ndm_set_target(ca, window + ndm_window_is_used(sk, window));
	ndm_count(NDM_COUNT_ROUNDS, 1);
	ndm_count(NDM_COUNT_NO_MEMORY, 1);
}

static NDM_RARE void ndm_end_round(struct sock *sk, const struct rate_sample *rs)
{
	struct ndm_more *more = ndm_more_of(sk, BPF_SK_STORAGE_GET_F_CREATE);

	if (!more) {
		ndm_end_without_memory(sk, rs);
		return;
	}
	memset(&more->facts, 0, sizeof(more->facts));
	ndm_finish_round(sk, rs, &more->memory, &more->facts, &more->ack);
}

/* The excursions of a module that explores have no other use in BPF. */
#define NDM_UNDONE	watchdog.explore_rounds

/*
 * After undo_cwnd() the core restores its own prior_ssthresh. Where the module would have
 * written a lower one, the next callback corrects the threshold.
 */
static __always_inline void ndm_undone(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct ndm_shadow *s = ndm_shadow_of(sk);
	struct ndm *ca = inet_csk_ca(sk);
	u32 restored;

	if (!s)
		return;
	restored = ndm_unshadow(&s->prior_ssthresh, tp->prior_ssthresh);
	if (restored >= tp->prior_ssthresh)
		return;
	s->undo_ssthresh = max(restored, tp->snd_ssthresh);
	ca->NDM_UNDONE = 1;
}

static __always_inline void ndm_settle(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);
	struct ndm_shadow *s;

	if (!ca->NDM_UNDONE)
		return;
	ca->NDM_UNDONE = 0;
	s = ndm_shadow_of(sk);
	if (s)
		tcp_sk(sk)->snd_ssthresh = s->undo_ssthresh;
}

static NDM_COMMON void ndm_on_ack(struct sock *sk, const struct rate_sample *rs, bool advanced)
{
	ndm_settle(sk);
	ndm_ack_arrived(sk, rs, advanced);
}

static NDM_RARE u32 ndm_on_loss(struct sock *sk)
{
	struct ndm *ca = inet_csk_ca(sk);

	ndm_settle(sk);
	ndm_begin_reduction(sk);
	if (ndm_shadow_of(sk))
		return ndm_ssthresh(sk);
	/* Without memory no round would end a slow start that this loss does not. */
	ca->starting = 0;
	ca->reducing = 1;
	return max(tcp_snd_cwnd(tcp_sk(sk)) >> 1, ndm_min_ssthresh);
}

static NDM_RARE void ndm_on_state(struct sock *sk, u8 new_state)
{
	ndm_settle(sk);
	ndm_set_state(sk, new_state);
}

static NDM_RARE void ndm_on_idle(struct sock *sk)
{
	ndm_settle(sk);
	ndm_leave_idle(sk);
}

/* From 6.10 on; older kernels call cong_control() with the rate sample alone. */
SEC("struct_ops/ndm_bpf_ack")
void BPF_PROG(ndm_bpf_ack, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	ndm_on_ack(sk, rs, flag & NDM_FLAG_SND_UNA_ADVANCED);
}

SEC("struct_ops/ndm_bpf_ack_old")
void BPF_PROG(ndm_bpf_ack_old, struct sock *sk, const struct rate_sample *rs)
{
	ndm_on_ack(sk, rs, true);
}

SEC("struct_ops/ndm_bpf_ssthresh")
u32 BPF_PROG(ndm_bpf_ssthresh, struct sock *sk)
{
	return ndm_on_loss(sk);
}

SEC("struct_ops/ndm_bpf_undo")
u32 BPF_PROG(ndm_bpf_undo, struct sock *sk)
{
	return ndm_undo_cwnd(sk);
}

SEC("struct_ops/ndm_bpf_state")
void BPF_PROG(ndm_bpf_state, struct sock *sk, u8 new_state)
{
	ndm_on_state(sk, new_state);
}

SEC("struct_ops/ndm_bpf_event")
void BPF_PROG(ndm_bpf_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		ndm_on_idle(sk);
}

/* From 7.1 on, in the place of that event. */
SEC("struct_ops/ndm_bpf_tx_start")
void BPF_PROG(ndm_bpf_tx_start, struct sock *sk)
{
	ndm_on_idle(sk);
}

SEC("struct_ops/ndm_bpf_init")
void BPF_PROG(ndm_bpf_init, struct sock *sk)
{
	ndm_more_of(sk, BPF_SK_STORAGE_GET_F_CREATE);
	ndm_init(sk);
}

SEC("struct_ops/ndm_bpf_release")
void BPF_PROG(ndm_bpf_release, struct sock *sk)
{
	ndm_release(sk);
	bpf_sk_storage_delete(&ndm_sockets, sk);
}

SEC("struct_ops/ndm_bpf_sndbuf")
u32 BPF_PROG(ndm_bpf_sndbuf, struct sock *sk)
{
	return ndm_sndbuf_expand(sk);
}

#define NDM_OPS(ack, idle_member, idle) { \
	.name = "ndm_tcp_bpf", \
	.init = (void *)ndm_bpf_init, \
	.release = (void *)ndm_bpf_release, \
	.cong_control = (void *)(ack), \
	.ssthresh = (void *)ndm_bpf_ssthresh, \
	.undo_cwnd = (void *)ndm_bpf_undo, \
	.set_state = (void *)ndm_bpf_state, \
	.idle_member = (void *)(idle), \
	.sndbuf_expand = (void *)ndm_bpf_sndbuf, \
}

SEC(".struct_ops")
struct tcp_congestion_ops ndm_ops = NDM_OPS(ndm_bpf_ack, cwnd_event, ndm_bpf_event);

SEC(".struct_ops")
struct tcp_congestion_ops ndm_ops_old = NDM_OPS(ndm_bpf_ack_old, cwnd_event, ndm_bpf_event);

SEC(".struct_ops")
struct tcp_congestion_ops ndm_ops_new =
	NDM_OPS(ndm_bpf_ack, cwnd_event_tx_start, ndm_bpf_tx_start);

#include "ndm_bpf_check.h"
