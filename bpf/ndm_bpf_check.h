/* SPDX-License-Identifier: GPL-2.0-only */
/* The programs that the loader runs itself: golden vectors, golden stream, replayed records. */
#ifndef _NDM_BPF_CHECK_H
#define _NDM_BPF_CHECK_H

/* One golden vector through the network that the callbacks run. */
SEC("syscall")
int ndm_check_infer(struct ndm_check_infer *check)
{
	struct ndm_shared *shared = ndm_get_shared();
	struct ndm_net *net = &ndm_scratch.net;
	u32 i;

	memcpy(net->x, check->x, sizeof(net->x));
	ndm_infer_by(check->slot, net);
	memcpy(check->out, net->out, sizeof(net->out));
	/* A context has constant offsets only. */
#pragma clang loop unroll(full)
	for (i = 0; i < NDM_MODEL_TRACE; i++)
		check->trace[i] = net->trace[i];
	if (shared) {
		memcpy(shared->model, NDM_MODEL_HASH, sizeof(NDM_MODEL_HASH));
		memcpy(shared->contract, NDM_CONTRACT_HASH, sizeof(NDM_CONTRACT_HASH));
	}
	return 0;
}

/* One ACK of the golden stream through features and memory. */
SEC("syscall")
int ndm_check_features(struct ndm_check_features *check)
{
	struct ndm_more *more = &ndm_scratch;

	if (check->restart) {
		memset(&ndm_check_flow, 0, sizeof(ndm_check_flow));
		memset(&ndm_check_memory, 0, sizeof(ndm_check_memory));
	}
	memcpy(&more->ack, &check->ack, sizeof(more->ack));
	check->valid = ndm_features_ack(&ndm_check_flow, &more->ack, more->net.x) ==
		       NDM_ROUND_VALID;
	if (check->valid)
		ndm_remember(&ndm_check_memory, more->net.x);
	memcpy(check->x, more->net.x, sizeof(check->x));
	return 0;
}

/* A socket of the running kernel's layout, and a rate sample. */
static u64 ndm_replay_socket[1024];
static u64 ndm_replay_sample[32];

/* A function, as the callback is: inlined it would not save and restore registers. */
static NDM_RARE int ndm_replay_ack(struct sock *sk, const struct rate_sample *rs, bool advanced)
{
	ndm_on_ack(sk, rs, advanced);
	return 0;
}

#define ndm_replay_hook_init(sk)	({ \
	memset(&ndm_scratch.shadow, 0, sizeof(ndm_scratch.shadow)); \
	memset(&ndm_scratch.memory, 0, sizeof(ndm_scratch.memory)); \
	ndm_init(sk); \
})
#define ndm_replay_memory		ndm_scratch.memory
#define ndm_replay_hook_ack		ndm_replay_ack
#define ndm_replay_hook_ssthresh	ndm_on_loss
#define ndm_replay_hook_undo		ndm_undo_cwnd
#define ndm_replay_hook_settle		ndm_settle
#define ndm_replay_hook_state		ndm_on_state
#define ndm_replay_hook_idle		ndm_on_idle
#include "ndm_bpf_replay.h"

SEC("syscall")
int ndm_replay(struct ndm_replay_record *record)
{
	u64 before;

	ndm_replay_jiffies = record->jiffies;
	ndm_replay_random = record->random;
	before = bpf_ktime_get_ns();
	ndm_replay_run((struct sock *)ndm_replay_socket, (struct rate_sample *)ndm_replay_sample,
		       record);
	if (record->ns)
		record->ns = (u32)(bpf_ktime_get_ns() - before);
	return 0;
}

#endif /* _NDM_BPF_CHECK_H */
