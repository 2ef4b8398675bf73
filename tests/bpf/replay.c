// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module's code in user space: records of bpf/ndm_bpf_record.h from stdin to stdout,
 * with all that came out of them. `ndm_bpf replay` does the same in the kernel.
 */
#include <stdio.h>
#include <time.h>

#include "kmod/ndm_types.h"
#include "kmod/ndm_policy.h"
#include "kmod/generated/ndm_model.h"

static u32 jiffies, random_number;
static struct ndm_memory memory;

static u32 ndm_jiffies(void)
{
	return jiffies;
}

static u32 ndm_random(void)
{
	return random_number;
}

#define ndm_count(counter, by)			((void)0)
#define ndm_report(sk, r, phase, mode)		((void)(phase), (void)(mode))
#define ndm_predict(window, x, out)		ndm_infer(&ndm_model, x, out, NULL)
#include "kmod/ndm_hooks.h"

static void ndm_clear_memory(struct sock *sk)
{
	memory = (struct ndm_memory){};
}

static NDM_RARE void ndm_end_round(struct sock *sk, const struct rate_sample *rs)
{
	struct ndm_facts r = {};
	struct ndm_ack ack;

	ndm_finish_round(sk, rs, &memory, &r, &ack);
}

/* A function, as in the kernel: inlined into main() it would know where the socket lies. */
static __attribute__((noinline)) void ack_arrived(struct sock *sk, const struct rate_sample *rs,
						  bool advanced)
{
	asm volatile("" : "+r"(sk), "+r"(rs));
	ndm_ack_arrived(sk, rs, advanced);
}

#define ndm_replay_hook_init(sk)	(memory = (struct ndm_memory){}, ndm_init(sk))
#define ndm_replay_memory		memory
#define ndm_replay_hook_ack		ack_arrived
#define ndm_replay_hook_ssthresh	ndm_ssthresh
#define ndm_replay_hook_undo		ndm_undo_cwnd
#define ndm_replay_hook_settle(sk)	((void)0)
#define ndm_replay_hook_state		ndm_set_state
#define ndm_replay_hook_idle		ndm_leave_idle
#include "bpf/ndm_bpf_replay.h"

static_assert(sizeof(struct ndm) <= 104, "it fits the kernel's private area");

int main(void)
{
	static struct net net = { .ipv4 = { 1 } };
	static struct tcp_sock tp;
	static struct rate_sample rs;
	struct ndm_replay_record record;
	struct sock *sk = (struct sock *)&tp;
	struct timespec before, after;

	sk->__sk_common.skc_net.net = &net;
	while (fread(&record, sizeof(record), 1, stdin) == 1) {
		jiffies = record.jiffies;
		random_number = record.random;
		clock_gettime(CLOCK_MONOTONIC, &before);
		ndm_replay_run(sk, &rs, &record);
		clock_gettime(CLOCK_MONOTONIC, &after);
		if (record.ns)
			record.ns = (u32)((after.tv_sec - before.tv_sec) * 1000000000L +
					  after.tv_nsec - before.tv_nsec);
		fwrite(&record, sizeof(record), 1, stdout);
	}
	return ferror(stdout);
}
