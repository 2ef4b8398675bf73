// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's own BBR behind BPF callbacks, as "bbr_timed": so the statistics of BPF programs
 * time it in the same run as ndm_tcp_bpf. bbr_nothing is called for every ACK too and does
 * nothing: what the call and the statistics cost.
 */
#include <ndm_bpf_types.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

enum tcp_ca_event { CA_EVENT_TX_START };
/* Only their names count; libbpf wants them defined. */
struct sock {};
struct rate_sample {};
struct ack_sample {};

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	void (*cong_control)(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 (*sndbuf_expand)(struct sock *sk);
	char name[16];
	void (*init)(struct sock *sk);
};

extern void bbr_init(struct sock *sk) __ksym;
extern void bbr_main(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs) __ksym;
extern u32 bbr_sndbuf_expand(struct sock *sk) __ksym;
extern u32 bbr_undo_cwnd(struct sock *sk) __ksym;
extern void bbr_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
extern u32 bbr_ssthresh(struct sock *sk) __ksym;
extern void bbr_set_state(struct sock *sk, u8 new_state) __ksym;

char _license[] SEC("license") = "GPL";

SEC("struct_ops/bbr_ack")
void BPF_PROG(bbr_ack, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	bbr_main(sk, ack, flag, rs);
}

SEC("struct_ops/bbr_nothing")
void BPF_PROG(bbr_nothing, struct sock *sk, const struct ack_sample *sample)
{
}

SEC("struct_ops/bbr_start")
void BPF_PROG(bbr_start, struct sock *sk)
{
	bbr_init(sk);
}

SEC("struct_ops/bbr_buffer")
u32 BPF_PROG(bbr_buffer, struct sock *sk)
{
	return bbr_sndbuf_expand(sk);
}

SEC("struct_ops/bbr_undo")
u32 BPF_PROG(bbr_undo, struct sock *sk)
{
	return bbr_undo_cwnd(sk);
}

SEC("struct_ops/bbr_event")
void BPF_PROG(bbr_event, struct sock *sk, enum tcp_ca_event event)
{
	bbr_cwnd_event(sk, event);
}

SEC("struct_ops/bbr_loss")
u32 BPF_PROG(bbr_loss, struct sock *sk)
{
	return bbr_ssthresh(sk);
}

SEC("struct_ops/bbr_state")
void BPF_PROG(bbr_state, struct sock *sk, u8 new_state)
{
	bbr_set_state(sk, new_state);
}

SEC(".struct_ops")
struct tcp_congestion_ops bbr_ops = {
	.name = "bbr_timed",
	.init = (void *)bbr_start,
	.cong_control = (void *)bbr_ack,
	.pkts_acked = (void *)bbr_nothing,
	.ssthresh = (void *)bbr_loss,
	.undo_cwnd = (void *)bbr_undo,
	.set_state = (void *)bbr_state,
	.cwnd_event = (void *)bbr_event,
	.sndbuf_expand = (void *)bbr_buffer,
};
