/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included before Linux's net/ipv4/tcp_cubic.c, tcp_bbr.c and lib/win_minmax.c, which compile
 * as they are; the files in linux/ are empty.
 */
#ifndef _NDM_SIM_KERNEL_H
#define _NDM_SIM_KERNEL_H

#include <stdlib.h>

#include "core.h"

#define HZ			1000
#define NSEC_PER_USEC		1000UL
#define NSEC_PER_SEC		1000000000UL
#define GSO_MAX_SIZE		65536
#define GSO_LEGACY_MAX_SIZE	65536U
#define MAX_TCP_HEADER		320
#define ICSK_CA_PRIV_SIZE	104
#define U32_MAX			(~0U)
#define BITS_PER_U64		64

#define __init
#define __exit
#define __read_mostly
#define __bpf_kfunc
#define likely(x)		__builtin_expect(!!(x), 1)
#define BUILD_BUG_ON(x)		_Static_assert(!(x), #x)
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof(*(a)))
#define fallthrough		__attribute__((fallthrough))
#define min3(a, b, c)		min(min(a, b), c)
#define max3(a, b, c)		max(max(a, b), c)
#define do_div(n, base)		({ u32 _r = (n) % (base); (n) /= (base); _r; })
#define div64_u64(a, b)		((a) / (b))
#define div64_ul(a, b)		((a) / (b))
#define div64_long(a, b)	((a) / (b))
#define fls64(x)		((x) ? 64 - __builtin_clzll(x) : 0)
#define ilog2(x)		(31 - __builtin_clz(x))
#define abs(x)			({ typeof(x) _x = (x); _x < 0 ? -_x : _x; })
#define before(a, b)		((s32)((a) - (b)) < 0)
#define after(a, b)		before(b, a)
#define get_random_u32_below(n)	((u32)(((u64)sim_random() * (n)) >> 32))
#define usecs_to_jiffies(us)	(((us) + 999) / 1000)
#define msecs_to_jiffies(ms)	(ms)
#define jiffies_to_usecs(j)	((j) * 1000)
#define tcp_stamp_us_delta(a, b)	((u32)max((s64)((a) - (b)), (s64)0))
#define tcp_snd_cwnd_clamp(tp)	((tp)->snd_cwnd_clamp)
#define tcp_warn_once(...)	((void)0)
#define WARN_ONCE(x, ...)	(x)
#define pr_info(...)		((void)0)
#define pr_debug(...)		((void)0)
#define NET_INC_STATS(net, what)	((void)0)
#define NET_ADD_STATS(net, what, by)	((void)0)
#define TCP_CONG_NON_RESTRICTED	1
#define BPF_PROG_TYPE_STRUCT_OPS	0
#define BTF_KFUNCS_START(name)	static const int name;
#define BTF_KFUNCS_END(name)
#define BTF_ID_FLAGS(...)
#define register_btf_kfunc_id_set(type, set)	0
#define tcp_unregister_congestion_control(ops)	((void)(ops))
#define THIS_MODULE		NULL
#define EXPORT_SYMBOL(x)
#define EXPORT_SYMBOL_GPL(x)
#define module_param(name, type, mode)	\
	__attribute__((constructor)) static void sim_param_##name(void)	\
	{ sim_add_param(#name, &name, sizeof(name)); }
#define MODULE_PARM_DESC(name, text)
#define MODULE_AUTHOR(x)
#define MODULE_LICENSE(x)
#define MODULE_DESCRIPTION(x)
#define MODULE_VERSION(x)
#define module_exit(f)
#define module_init(f)	\
	__attribute__((constructor)) static void sim_register(void) { f(); }

struct btf_kfunc_id_set {
	void *owner;
	const int *set;
};

enum {
	INET_DIAG_VEGASINFO = 3,
	INET_DIAG_BBRINFO = 16,
};

struct tcp_bbr_info {
	u32 bbr_bw_lo, bbr_bw_hi, bbr_min_rtt, bbr_pacing_gain, bbr_cwnd_gain;
};

union tcp_cc_info {
	struct tcp_bbr_info bbr;
};

static inline u32 minmax_get(const struct minmax *m)
{
	return m->s[0].v;
}

static inline u32 minmax_reset(struct minmax *m, u32 t, u32 value)
{
	m->s[0] = m->s[1] = m->s[2] = (struct minmax_sample){ t, value };
	return value;
}

u32 minmax_running_max(struct minmax *m, u32 win, u32 t, u32 value);
u32 minmax_running_min(struct minmax *m, u32 win, u32 t, u32 value);

#endif /* _NDM_SIM_KERNEL_H */
