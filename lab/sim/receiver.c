// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's receiver: delayed and compressed ACKs, and the window that it advertises. The
 * program reads as the lab's iperf3 does: it lets data gather between two reads.
 */
#include "sim.h"

#define DELACK_NS	(40 * SIM_NS_MS)	/* TCP_ATO_MIN */
#define COMPRESS_NS	SIM_NS_MS
#define QUICK_ACKS	16U	/* at most */
#define COMPRESSED_ACKS	44	/* one is sent at once */
#define DUP_ACKS	3
#define FIRST_WINDOW	65536U
#define MOST_WINDOW	3980000U	/* of tcp_rmem's 6 MiB, at 1500 bytes a packet */

static u8 *got(struct sim_receiver *r, u32 packet)
{
	return &r->got[packet & (SIM_RING - 1)];
}

void sim_receiver_begin(struct sim_flow *f, double rtt_us)
{
	struct sim_receiver *r = &f->in;

	r->got = calloc(SIM_RING, 1);
	r->log = calloc(SIM_RING, sizeof(*r->log));
	r->echo = calloc(SIM_RING, sizeof(*r->echo));
	if (!r->got || !r->log || !r->echo)
		abort();
	r->quick = QUICK_ACKS;
	r->data_at = sim_now;
	/* Its timeout after the handshake. */
	r->pause_ns = (u64)((rtt_us + max(2 * rtt_us, (double)SIM_RTO_MIN_US)) * 1e3);
	r->window = r->clamp = r->ssthresh = FIRST_WINDOW;
	r->space = 10 * SIM_MSS;
	r->space_at = sim_now + (u64)(rtt_us * 1e3);
}

/* tcp_space(): its buffer less what waits to be read, and behind holes; bytes. */
static u32 room(const struct sim_receiver *r)
{
	u32 held = (r->next - r->read + r->held) * SIM_MSS;

	return r->clamp > held ? r->clamp - held : 0;
}

/*
 * tcp_grow_window(). Not held back by the packet that arrives: in the lab one unread packet
 * lowers the window again. So packets behind a pause wait for the reader's ACK, and bursts stay
 * whole.
 */
static void grow_window(struct sim_receiver *r)
{
	u32 most = min(room(r) + SIM_MSS, r->clamp);

	if (r->ssthresh >= most)
		return;
	r->ssthresh = min(r->ssthresh + 2 * SIM_MSS, most);
	r->quick |= 1;
}

/* tcp_incr_quickack(). */
static void acknowledge_soon(struct sim_receiver *r)
{
	u32 packets = min(max(r->window / (2 * SIM_MSS), 2U), QUICK_ACKS);

	r->quick = max(r->quick, packets);
}

/* What it could advertise now, bytes. */
static u32 window(const struct sim_receiver *r)
{
	return min(r->ssthresh, room(r));
}

static void acknowledge(struct sim_flow *f)
{
	struct sim_receiver *r = &f->in;
	u32 end = r->acked + r->window / SIM_MSS;

	r->window = window(r);
	/* The right edge never goes back. */
	if ((s32)(r->next + r->window / SIM_MSS - end) < 0)
		r->window = (end - r->next) * SIM_MSS;
	r->acked = r->next;
	r->quick -= !!r->quick;
	r->compressed = 0;
	r->compress_at = 0;
	r->delack_at = 0;
	sim_send_ack(f->number, r->next, r->arrivals, r->next + r->window / SIM_MSS);
}

/* Packets wait behind a missing one. */
static bool has_holes(const struct sim_receiver *r)
{
	return (s32)(r->highest - r->next) > 0;
}

static void delay_ack(struct sim_flow *f)
{
	struct sim_receiver *r = &f->in;

	if (r->delack_at)
		return;
	r->delack_at = sim_now + DELACK_NS;
	sim_at(r->delack_at, SIM_DELACK, f->number, 0, r->delack_at);
}

static void consider(struct sim_flow *f, bool now)
{
	struct sim_receiver *r = &f->in;
	u64 rtt_us = f->tp.srtt_us >> 3, wait_ns;

	if (now || r->quick || (r->next - r->acked >= 2 && window(r) >= r->window)) {
		acknowledge(f);
		return;
	}
	if (!has_holes(r)) {
		delay_ack(f);
		return;
	}
	if (r->dup_acks < DUP_ACKS || r->compressed >= COMPRESSED_ACKS) {
		r->dup_acks++;
		acknowledge(f);
		return;
	}
	r->compressed++;
	if (r->compress_at)
		return;
	wait_ns = rtt_us * SIM_NS_US / 20;
	r->compress_at = sim_now + min(wait_ns, COMPRESS_NS);
	sim_at(r->compress_at, SIM_COMPRESS, f->number, 0, r->compress_at);
}

/* tcp_rcv_space_adjust(): the window grows with what a round trip brings. */
static void adjust_space(struct sim_flow *f)
{
	struct sim_receiver *r = &f->in;
	u64 rtt_ns = (u64)(f->tp.srtt_us >> 3) * SIM_NS_US, wanted, grow;
	u32 copied;

	if (sim_now - r->space_at < rtt_ns)
		return;
	copied = (r->read - r->space_read) * SIM_MSS;
	if (copied > r->space) {
		wanted = 2ULL * copied + 16 * SIM_MSS;
		grow = wanted * (copied - r->space) / r->space;
		wanted = min(wanted + 2 * grow, (u64)MOST_WINDOW);
		r->clamp = max(r->clamp, (u32)wanted);
		r->space = copied;
	}
	r->space_read = r->read;
	r->space_at = sim_now;
}

/* tcp_cleanup_rbuf(): less than half of the window was left, and reading has doubled that. */
static bool window_opens(const struct sim_receiver *r)
{
	u32 left = r->acked * SIM_MSS + r->window - r->next * SIM_MSS, now = window(r);

	return 2 * left <= r->clamp && now && now >= 2 * left;
}

void sim_read(struct sim_flow *f)
{
	struct sim_receiver *r = &f->in;

	r->reads = false;
	if (r->read == r->next)
		return;
	r->read = r->next;
	r->read_at = sim_now + r->read_ns;
	adjust_space(f);
	if (r->next - r->acked >= 2 || window_opens(r))
		acknowledge(f);
}

static void data_is_ready(struct sim_flow *f)
{
	struct sim_receiver *r = &f->in;

	if (r->reads || r->read == r->next)
		return;
	r->reads = true;
	sim_at(max(r->read_at, sim_now), SIM_READ, f->number, 0, 0);
}

void sim_delack(struct sim_flow *f, u64 at)
{
	struct sim_receiver *r = &f->in;

	if (r->delack_at != at)
		return;
	r->delack_at = 0;
	if (r->next != r->acked)
		acknowledge(f);
}

void sim_compressed(struct sim_flow *f, u64 at)
{
	if (f->in.compress_at != at)
		return;
	f->in.compress_at = 0;
	if (f->in.compressed)
		acknowledge(f);
}

/* A packet arrives. sent_us: when this transmission of it left. */
void sim_receive(struct sim_flow *f, u32 packet, u64 sent_us)
{
	struct sim_receiver *r = &f->in;
	bool holes = has_holes(r), old;

	if (sim_now - r->data_at > r->pause_ns)
		acknowledge_soon(r);
	r->data_at = sim_now;
	old = (s32)(packet - r->next) < 0 || *got(r, packet);
	/* tcp_replace_ts_recent() */
	if ((s32)(packet - r->acked) <= 0 && sent_us >= r->recent_us)
		r->recent_us = sent_us;
	r->echo[r->arrivals & (SIM_RING - 1)] = r->recent_us;
	r->log[r->arrivals++ & (SIM_RING - 1)] = packet | (old ? SIM_TWICE : 0);
	if (old) {
		if ((s32)(packet - r->next) < 0)
			acknowledge_soon(r);
		consider(f, true);
		return;
	}
	if (packet != r->next) {
		*got(r, packet) = 1;
		r->held++;
		if ((s32)(packet + 1 - r->highest) > 0)
			r->highest = packet + 1;
		grow_window(r);
		consider(f, false);
		return;
	}
	r->next++;
	for (; *got(r, r->next); r->next++, r->held--)
		*got(r, r->next) = 0;
	if ((s32)(r->next - r->highest) > 0)
		r->highest = r->next;
	r->dup_acks = 0;
	grow_window(r);
	consider(f, holes && !has_holes(r));
	data_is_ready(f);
}
