// SPDX-License-Identifier: GPL-2.0-only
/*
 * The lab's witness: what the senders send and get, and every data packet that a
 * queueing discipline drops, with the device that dropped it.
 *
 * /proc/ndm_capture  records of a pcap file (nanoseconds, raw IP), without the
 *                    file's header. A packet that is sent is stamped before the
 *                    sender's own queueing discipline: on the loopback device
 *                    a packet socket would see it after its delay.
 * /proc/ndm_drops    struct ndm_drop, one per dropped packet
 *
 * The flows are those whose port at the sender is in [first_port, last_port].
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ip.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/proc_fs.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <linux/timekeeping.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <net/sch_generic.h>

#define NDM_CHUNK_ORDER	4
#define NDM_CHUNK	(PAGE_SIZE << NDM_CHUNK_ORDER)
#define NDM_CHUNKS	12288	/* 768 MiB */
#define NDM_SNAPLEN	80	/* IPv4, TCP, time stamps and three SACK blocks */
#define NDM_DEVICES	64

static char *sender = "s";
module_param(sender, charp, 0444);
MODULE_PARM_DESC(sender, "how the names of the senders' devices begin");

static bool capture = true;
module_param(capture, bool, 0444);
MODULE_PARM_DESC(capture, "keep the senders' packets");

static ushort first_port = 20001;
module_param(first_port, ushort, 0444);

static ushort last_port = 20999;
module_param(last_port, ushort, 0444);

/* Little endian, as the host reads it. */
struct ndm_drop {
	u64 t_ns;		/* CLOCK_REALTIME */
	u32 seq;
	u16 len;		/* payload, bytes */
	u16 sport;
	u16 dport;
	u16 reason;		/* enum skb_drop_reason */
	u32 qlen;		/* of the device's root discipline, packets */
	u32 limit;		/* its, 0 if it has none */
	char device[IFNAMSIZ];
} __packed;

struct ndm_packet {
	u32 s;
	u32 ns;
	u32 kept;
	u32 length;
	u8 data[NDM_SNAPLEN];
} __packed;

/* Bytes in order of arrival; there is one CPU and no preemption. */
struct ndm_log {
	u8 *chunk[NDM_CHUNKS];
	size_t size;
	u64 lost;
};

static struct ndm_log ndm_packets, ndm_drops;

static void ndm_log_add(struct ndm_log *log, const void *data, size_t len)
{
	size_t last = (log->size + len - 1) / NDM_CHUNK;
	unsigned long flags;

	local_irq_save(flags);
	if (last < NDM_CHUNKS && !log->chunk[last])
		log->chunk[last] = (u8 *)__get_free_pages(GFP_ATOMIC | __GFP_NOWARN,
							  NDM_CHUNK_ORDER);
	if (last >= NDM_CHUNKS || !log->chunk[last]) {
		log->lost++;
		len = 0;
	}
	while (len) {
		size_t at = log->size % NDM_CHUNK;
		size_t n = min(len, NDM_CHUNK - at);

		memcpy(log->chunk[log->size / NDM_CHUNK] + at, data, n);
		log->size += n;
		data += n;
		len -= n;
	}
	local_irq_restore(flags);
}

static ssize_t ndm_log_read(struct file *file, char __user *to, size_t len, loff_t *pos)
{
	const struct ndm_log *log = pde_data(file_inode(file));
	size_t at = *pos, n;

	if (log->lost)
		return -ENOSPC;
	if (at >= log->size)
		return 0;
	n = min3(len, log->size - at, NDM_CHUNK - at % NDM_CHUNK);
	if (copy_to_user(to, log->chunk[at / NDM_CHUNK] + at % NDM_CHUNK, n))
		return -EFAULT;
	*pos += n;
	return n;
}

static const struct proc_ops ndm_log_ops = {
	.proc_read = ndm_log_read,
	.proc_lseek = default_llseek,
};

static bool ndm_is_ours(__be16 port)
{
	return ntohs(port) >= first_port && ntohs(port) <= last_port;
}

/* The headers of a TCP packet over IPv4, from *offset in the buffer. */
static bool ndm_headers(const struct sk_buff *skb, int offset, struct iphdr *ip,
			struct tcphdr *tcp)
{
	if (skb->protocol != htons(ETH_P_IP) || offset < 0 ||
	    skb_copy_bits(skb, offset, ip, sizeof(*ip)) || ip->protocol != IPPROTO_TCP)
		return false;
	return !skb_copy_bits(skb, offset + ip->ihl * 4, tcp, sizeof(*tcp));
}

static void ndm_keep(const struct sk_buff *skb, int offset)
{
	struct timespec64 now;
	struct ndm_packet p;

	p.length = skb->len - offset;
	p.kept = min_t(u32, p.length, NDM_SNAPLEN);
	if (skb_copy_bits(skb, offset, p.data, p.kept))
		return;
	now = ktime_to_timespec64(ktime_get_real());
	p.s = now.tv_sec;
	p.ns = now.tv_nsec;
	ndm_log_add(&ndm_packets, &p, offsetof(struct ndm_packet, data) + p.kept);
}

/* Devices that queued a packet of ours: only these can have dropped one. */
static const struct net_device *ndm_devices[NDM_DEVICES];

static bool ndm_is_known(const struct net_device *dev)
{
	int i;

	for (i = 0; i < NDM_DEVICES && ndm_devices[i]; i++)
		if (ndm_devices[i] == dev)
			return true;
	return false;
}

static void ndm_know(const struct net_device *dev)
{
	int i;

	for (i = 0; i < NDM_DEVICES; i++) {
		if (!ndm_devices[i])
			ndm_devices[i] = dev;
		if (ndm_devices[i] == dev)
			return;
	}
}

/* Called for every packet before it enters a device's queueing discipline. */
static void ndm_on_queue(void *unused, struct sk_buff *skb)
{
	int offset = skb_network_offset(skb);
	struct tcphdr tcp;
	struct iphdr ip;

	if (!ndm_headers(skb, offset, &ip, &tcp) || !ndm_is_ours(tcp.source))
		return;
	ndm_know(skb->dev);
	if (capture && str_has_prefix(skb->dev->name, sender))
		ndm_keep(skb, offset);
}

/* Called for every packet that comes in; data begins with the IP header. */
static void ndm_on_receive(void *unused, struct sk_buff *skb)
{
	struct tcphdr tcp;
	struct iphdr ip;

	if (!str_has_prefix(skb->dev->name, sender))
		return;
	if (ndm_headers(skb, 0, &ip, &tcp) && ndm_is_ours(tcp.dest))
		ndm_keep(skb, 0);
}

/*
 * Called for every packet that is dropped. TCP's own drops have reasons of their
 * own, and their skb->dev may be part of a tree: look at the reason first and
 * compare the pointer before following it.
 */
static void ndm_on_drop(void *unused, struct sk_buff *skb, void *location,
			enum skb_drop_reason reason, struct sock *rx_sk)
{
	int offset = skb_network_offset(skb);
	struct ndm_drop drop = {};
	const struct Qdisc *root;
	struct tcphdr tcp;
	struct iphdr ip;

	if (reason != SKB_DROP_REASON_NOT_SPECIFIED &&
	    (reason < SKB_DROP_REASON_QDISC_DROP || reason > SKB_DROP_REASON_FQ_FLOW_LIMIT))
		return;
	if (!ndm_is_known(skb->dev) || !ndm_headers(skb, offset, &ip, &tcp) ||
	    !ndm_is_ours(tcp.source))
		return;
	drop.len = ntohs(ip.tot_len) - ip.ihl * 4 - tcp.doff * 4;
	if (!drop.len)
		return;
	root = rcu_dereference_raw(netdev_get_tx_queue(skb->dev, 0)->qdisc);
	drop.t_ns = ktime_get_real_ns();
	drop.seq = ntohl(tcp.seq);
	drop.sport = ntohs(tcp.source);
	drop.dport = ntohs(tcp.dest);
	drop.reason = reason;
	drop.qlen = root->q.qlen;
	drop.limit = root->limit;
	strscpy(drop.device, skb->dev->name, sizeof(drop.device));
	ndm_log_add(&ndm_drops, &drop, sizeof(drop));
}

struct ndm_probe {
	const char *name;
	void *function;
	struct tracepoint *point;
};

static struct ndm_probe ndm_probes[] = {
	{ "net_dev_queue", ndm_on_queue },
	{ "kfree_skb", ndm_on_drop },
	{ "netif_receive_skb", ndm_on_receive },
};

static void ndm_find(struct tracepoint *point, void *unused)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(ndm_probes); i++)
		if (!strcmp(point->name, ndm_probes[i].name))
			ndm_probes[i].point = point;
}

static int __init ndm_watch_init(void)
{
	int count = ARRAY_SIZE(ndm_probes) - !capture;
	int i, err;

	for_each_kernel_tracepoint(ndm_find, NULL);
	if (!proc_create_data("ndm_capture", 0400, NULL, &ndm_log_ops, &ndm_packets) ||
	    !proc_create_data("ndm_drops", 0400, NULL, &ndm_log_ops, &ndm_drops))
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		struct ndm_probe *probe = &ndm_probes[i];

		err = probe->point ?
		      tracepoint_probe_register(probe->point, probe->function, NULL) : -ENOENT;
		if (err) {
			pr_err("no tracepoint %s\n", probe->name);
			return err;
		}
	}
	/* The lab's kernel ends with the run: nothing is ever unloaded. */
	__module_get(THIS_MODULE);
	return 0;
}
module_init(ndm_watch_init);

MODULE_AUTHOR("The NDM-TCP authors");
MODULE_DESCRIPTION("The lab's capture of senders and of dropped packets");
MODULE_LICENSE("GPL");
