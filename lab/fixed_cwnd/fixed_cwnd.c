// SPDX-License-Identifier: GPL-2.0-only
/*
 * A sender with a constant window, whatever happens. Swept over windows it tells
 * what the best possible window would have achieved on a path: the ceiling that
 * no algorithm passes by much. For the lab only; it ignores congestion.
 *
 * paced=1: sent as ndm_tcp sends it (ndm_pacing.h). Without, the first window leaves as
 * one burst, which overflows a short queue or a policer's bucket, whatever the window is
 * worth; but the ACKs alone clock a window of few packets best.
 */
#include <linux/module.h>
#include <net/tcp.h>

static uint cwnd = 10;
module_param(cwnd, uint, 0444);
MODULE_PARM_DESC(cwnd, "the window, packets");

static bool paced;
module_param(paced, bool, 0444);
MODULE_PARM_DESC(paced, "pace the window, as ndm_tcp does");

#define FIXED_PACING_PERCENT 120
#define FIXED_BURST_SHIFT 12

static void fixed_set(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 rate = (u64)tp->mss_cache * FIXED_PACING_PERCENT;

	tcp_snd_cwnd_set(tp, clamp(cwnd, 1U, tp->snd_cwnd_clamp));
	if (!paced || !tp->srtt_us)
		return;
	rate *= max(tcp_snd_cwnd(tp), tp->packets_out);
	rate = div_u64(rate * (USEC_PER_SEC / 100 * 8), tp->srtt_us);
	WRITE_ONCE(sk->sk_pacing_rate, min_t(u64, rate, READ_ONCE(sk->sk_max_pacing_rate)));
}

static void fixed_init(struct sock *sk)
{
	if (paced) {
		cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
		sk_pacing_shift_update(sk, FIXED_BURST_SHIFT);
	}
	fixed_set(sk);
}

/* In place of the core's window reduction too. */
static void fixed_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	fixed_set(sk);
}

static u32 fixed_ssthresh(struct sock *sk)
{
	return TCP_INFINITE_SSTHRESH;
}

static u32 fixed_undo_cwnd(struct sock *sk)
{
	return tcp_snd_cwnd(tcp_sk(sk));
}

static struct tcp_congestion_ops fixed_ops __read_mostly = {
	.name		= "fixed_cwnd",
	.owner		= THIS_MODULE,
	.init		= fixed_init,
	.cong_control	= fixed_cong_control,
	.ssthresh	= fixed_ssthresh,
	.undo_cwnd	= fixed_undo_cwnd,
};

static int __init fixed_register(void)
{
	return tcp_register_congestion_control(&fixed_ops);
}

static void __exit fixed_unregister(void)
{
	tcp_unregister_congestion_control(&fixed_ops);
}

module_init(fixed_register);
module_exit(fixed_unregister);

MODULE_AUTHOR("The NDM-TCP authors");
MODULE_DESCRIPTION("A constant congestion window, for the lab");
MODULE_LICENSE("GPL");
