// SPDX-License-Identifier: GPL-2.0-only
/* For tests: a congestion control outside the project, whose window is seven packets. */
#include <linux/module.h>
#include <net/tcp.h>

static void seven_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	tcp_snd_cwnd_set(tcp_sk(sk), 7);
}

static void seven_init(struct sock *sk)
{
	tcp_snd_cwnd_set(tcp_sk(sk), 7);
}

static struct tcp_congestion_ops seven __read_mostly = {
	.name		= "seven",
	.owner		= THIS_MODULE,
	.init		= seven_init,
	.ssthresh	= tcp_reno_ssthresh,
	.undo_cwnd	= tcp_reno_undo_cwnd,
	.cong_control	= seven_cong_control,
};

static int __init seven_register(void)
{
	return tcp_register_congestion_control(&seven);
}

static void __exit seven_unregister(void)
{
	tcp_unregister_congestion_control(&seven);
}

module_init(seven_register);
module_exit(seven_unregister);
MODULE_DESCRIPTION("A constant window of seven packets");
MODULE_LICENSE("GPL");
