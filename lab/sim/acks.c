// SPDX-License-Identifier: GPL-2.0-only
/* What an ACK tells the kernel's sender: tcp_ack(), its RTTs and rate samples. */
#include "sim.h"

#define RTO_MAX_US	120000000U

static void estimate_rtt(struct sim_flow *f, long rtt_us)
{
	struct tcp_sock *tp = &f->tp;
	u32 srtt = tp->srtt_us;
	long m = rtt_us;

	if (!srtt) {
		tp->srtt_us = max(1L, m << 3);
		tp->mdev_us = m << 1;
		f->rttvar_us = max(tp->mdev_us, SIM_RTO_MIN_US);
		f->mdev_max_us = f->rttvar_us;
		f->rtt_seq = f->nxt;
		return;
	}
	m -= srtt >> 3;
	srtt += m;
	if (m < 0) {
		m = -m - (long)(tp->mdev_us >> 2);
		if (m > 0)
			m >>= 3;
	} else {
		m -= tp->mdev_us >> 2;
	}
	tp->mdev_us += m;
	if (tp->mdev_us > f->mdev_max_us) {
		f->mdev_max_us = tp->mdev_us;
		f->rttvar_us = max(f->rttvar_us, f->mdev_max_us);
	}
	if ((s32)(f->una - f->rtt_seq) > 0) {
		if (f->mdev_max_us < f->rttvar_us)
			f->rttvar_us -= (f->rttvar_us - f->mdev_max_us) >> 2;
		f->rtt_seq = f->nxt;
		f->mdev_max_us = SIM_RTO_MIN_US;
	}
	tp->srtt_us = max(1U, srtt);
}

void sim_take_rtt(struct sim_flow *f, long rtt_us, long newest_us)
{
	struct tcp_sock *tp = &f->tp;
	u32 rto_us;

	if (newest_us >= 0)
		tp->rtt_min.s[0].v = min(tp->rtt_min.s[0].v, (u32)max(newest_us, 1L));
	estimate_rtt(f, rtt_us);
	rto_us = (tp->srtt_us >> 3) + f->rttvar_us;
	tp->inet_conn.icsk_rto = (min(rto_us, RTO_MAX_US) + 999) / 1000;
}

/* Of one ACK. */
struct news {
	struct rate_sample rs;
	u32 flags, prior_una, prior_fack, lowest, acked, newest_packet;
	u64 newest_us;			/* of the rate sample's packet */
	u64 first_us, last_us;		/* sending times, packets acknowledged by number */
	u64 first_sacked_us, last_sacked_us;
	bool retransmitted;
};

static void take_rate(struct sim_flow *f, struct news *n, u32 packet)
{
	struct sim_packet *p = sim_packet(f, packet);

	if (!p->delivered_us)
		return;
	if (!n->rs.prior_delivered || p->sent_us > f->first_tx_us ||
	    (p->sent_us == f->first_tx_us && (s32)(packet - n->newest_packet) > 0)) {
		n->rs.prior_delivered = p->delivered;
		n->rs.prior_mstamp = p->delivered_us;
		n->rs.is_app_limited = p->app_limited;
		n->newest_packet = packet;
		f->first_tx_us = p->sent_us;
		n->rs.interval_us = p->sent_us - p->first_tx_us;
	}
	p->delivered_us = 0;
}

static void generate_rate(struct sim_flow *f, struct news *n, u32 delivered, u32 lost)
{
	struct tcp_sock *tp = &f->tp;
	struct rate_sample *rs = &n->rs;
	long acked_us;

	if (tp->app_limited && (s32)(tp->delivered - tp->app_limited) > 0)
		tp->app_limited = 0;
	if (delivered)
		tp->delivered_mstamp = tp->tcp_mstamp;
	rs->acked_sacked = delivered;
	rs->losses = lost;
	if (!rs->prior_mstamp) {
		rs->delivered = -1;
		rs->interval_us = -1;
		return;
	}
	rs->delivered = tp->delivered - rs->prior_delivered;
	acked_us = tp->tcp_mstamp - rs->prior_mstamp;
	rs->interval_us = max(rs->interval_us, acked_us);
	if (rs->interval_us < (long)tcp_min_rtt(tp))
		rs->interval_us = -1;
}

static void take_sack(struct sim_flow *f, struct news *n, u32 packet)
{
	struct tcp_sock *tp = &f->tp;
	struct sim_packet *p = sim_packet(f, packet);

	take_rate(f, n, packet);
	sim_rack_advance(f, p, packet);
	if (p->retrans) {
		tp->lost_out -= p->lost;
		tp->retrans_out--;
		p->lost = p->retrans = false;
	} else {
		if (!p->ever_retrans) {
			if ((s32)(packet - n->prior_fack) < 0 && (s32)(packet - n->lowest) < 0)
				n->lowest = packet;
			if ((s32)(packet - f->high) < 0)
				n->flags |= SIM_ORIGINAL;
			if (!n->first_sacked_us || p->sent_us < n->first_sacked_us)
				n->first_sacked_us = p->sent_us;
			n->last_sacked_us = max(n->last_sacked_us, p->sent_us);
		}
		tp->lost_out -= p->lost;
		p->lost = false;
	}
	p->sacked = true;
	n->flags |= SIM_SACKED;
	tp->sacked_out++;
	tp->delivered++;
	sim_unlist(f, packet);
	if ((s32)(packet + 1 - f->fack) > 0)
		f->fack = packet + 1;
}

/* A duplicate that arrived: the receiver reports it. It counts as delivered, too. */
static void take_dsack(struct sim_flow *f, struct news *n, u32 packet)
{
	struct tcp_sock *tp = &f->tp;
	bool counts = (s32)(packet - n->prior_una) < 0 || sim_packet(f, packet)->ever_retrans;

	n->flags |= SIM_DSACK;
	tp->delivered++;
	if (tp->tlp_high_seq && (packet + 1) * SIM_MSS == tp->tlp_high_seq)
		n->flags |= SIM_TLP_DSACK;
	else if (tp->reord_seen)
		f->rack_dsack = true;
	/* Not one of a recovery before this. */
	if (tp->undo_marker && f->undo_retrans > 0 && counts &&
	    (s32)((packet + 1) * SIM_MSS - tp->undo_marker) > 0)
		f->undo_retrans--;
}

static void take_log(struct sim_flow *f, struct news *n, u32 ack, u64 log)
{
	u64 newest = f->seen + (u32)((u32)log - (u32)f->seen);

	for (; f->seen < newest; f->seen++) {
		u32 entry = f->in.log[f->seen & (SIM_RING - 1)], packet = entry & ~SIM_TWICE;

		if (entry & SIM_TWICE)
			take_dsack(f, n, packet);
		else if ((s32)(packet - ack) >= 0)
			take_sack(f, n, packet);
	}
}

static void take_acked(struct sim_flow *f, struct news *n)
{
	struct tcp_sock *tp = &f->tp;
	u32 packet = f->una;
	struct sim_packet *p = sim_packet(f, packet);

	if (p->ever_retrans) {
		tp->retrans_out -= p->retrans;
		n->retransmitted = true;
	} else if (!p->sacked) {
		n->last_us = p->sent_us;
		if (!n->first_us)
			n->first_us = p->sent_us;
		if ((s32)(packet - n->lowest) < 0)
			n->lowest = packet;
		if ((s32)(packet - f->high) < 0)
			n->flags |= SIM_ORIGINAL;
	}
	if (p->sacked) {
		tp->sacked_out--;
	} else {
		tp->delivered++;
		sim_rack_advance(f, p, packet);
	}
	tp->lost_out -= p->lost;
	tp->packets_out--;
	tp->bytes_acked += SIM_MSS;
	take_rate(f, n, packet);
	sim_unlist(f, packet);
	p->lost = p->retrans = false;
	n->acked++;
	f->una++;
	tp->snd_una = f->una * SIM_MSS;
}

/* tcp_ack_update_rtt(), and the callback for an algorithm that wants the RTT. */
static bool take_rtts(struct sim_flow *f, struct news *n, u64 echo_us)
{
	struct tcp_sock *tp = &f->tp;
	long now_us = tp->tcp_mstamp, oldest_us = -1, newest_us = -1, sacked_us = -1;

	if (n->first_us && !n->retransmitted) {
		oldest_us = now_us - n->first_us;
		newest_us = now_us - n->last_us;
	}
	if (n->first_sacked_us) {
		sacked_us = now_us - n->first_sacked_us;
		newest_us = now_us - n->last_sacked_us;
	}
	if (oldest_us < 0)
		oldest_us = sacked_us;
	/* By timestamps, of whole milliseconds. */
	if (oldest_us < 0 && n->acked)
		oldest_us = newest_us = max((now_us / 1000 - (long)echo_us / 1000) * 1000, 1000L);
	n->rs.rtt_us = newest_us;
	if (oldest_us < 0)
		return false;
	sim_take_rtt(f, oldest_us, newest_us);
	return true;
}

static void note_reordering(struct sim_flow *f, const struct news *n)
{
	if ((s32)(n->lowest - n->prior_fack) >= 0)
		return;
	f->reordering = min(max(f->reordering, n->prior_fack - n->lowest), 300U);
	f->tp.reord_seen++;
}

static void control(struct sim_flow *f, const struct news *n, u32 ack)
{
	struct tcp_sock *tp = &f->tp;
	struct sock *sk = sim_sk(f);
	u64 rate;
	u32 percent;

	if (f->ops->cong_control) {
		f->ops->cong_control(sk, ack * SIM_MSS, n->flags & SIM_ADVANCED ? SIM_UNA_ADVANCED : 0,
				     &n->rs);
		return;
	}
	if (sim_is_reducing(f))
		sim_reduce(f, n->rs.acked_sacked, n->rs.losses, n->flags);
	else if (n->acked || (f->reordering > 3 && n->flags & SIM_SACKED))
		f->ops->cong_avoid(sk, ack * SIM_MSS, n->rs.acked_sacked);
	percent = tp->snd_cwnd < tp->snd_ssthresh / 2 ? 200 : 120;
	rate = (u64)SIM_MSS * max(tp->snd_cwnd, tp->packets_out) * percent * 80000;
	sk->sk_pacing_rate = min(rate / tp->srtt_us, sk->sk_max_pacing_rate);
}

static void control_recorded(struct sim_flow *f, const struct news *n, u32 ack)
{
	struct ndm_ack record = sim_record_ack(f, &n->rs);

	control(f, n, ack);
	sim_record_keep(f, &n->rs, &record);
}

/* tcp_ack(), and what it lets out. */
void sim_ack(struct sim_flow *f, u32 ack, u64 log, u32 window_end)
{
	struct tcp_sock *tp = &f->tp;
	struct news n = { .prior_una = f->una, .prior_fack = f->fack, .lowest = f->fack };
	u32 delivered = tp->delivered, lost = tp->lost, out = tp->packets_out;
	u64 echo_us = f->in.echo[(u32)(log - 1) & (SIM_RING - 1)];
	bool arms, rtt;
	int retransmits = 0;

	sim_refresh(f);
	n.rs.prior_in_flight = tcp_packets_in_flight(tp);
	if ((s32)(window_end - f->wnd_end) > 0) {
		f->wnd_end = window_end;
		n.flags |= SIM_WINDOW;
	}
	take_log(f, &n, ack, log);
	if (!out) {
		/* The window may have opened. */
		sim_write(f, false);
		return;
	}
	while ((s32)(ack - f->una) > 0)
		take_acked(f, &n);
	if (n.acked) {
		n.flags |= SIM_ADVANCED;
		f->retransmits = 0;
		if ((s32)(f->fack - f->una) < 0)
			f->fack = f->una;
	}
	note_reordering(f, &n);
	rtt = take_rtts(f, &n, echo_us);
	arms = n.acked || (rtt && n.first_sacked_us &&
			   n.first_sacked_us < sim_packet(f, f->una)->sent_us);
	if (f->ops->pkts_acked) {
		struct ack_sample sample = { n.acked, n.rs.rtt_us, n.rs.prior_in_flight };

		f->ops->pkts_acked(sim_sk(f), &sample);
	}
	sim_rack_window(f);
	if (tp->tlp_high_seq)
		sim_process_tlp(f, n.flags, ack);
	if (sim_state(f) != TCP_CA_Open || n.flags & (SIM_SACKED | SIM_DSACK) ||
	    !(n.acked || n.flags & SIM_WINDOW)) {
		retransmits = sim_recover(f, n.flags);
		arms &= f->timer != SIM_TIMER_REO;
	}
	if (arms && !sim_arm_probe(f, true))
		sim_arm_rto(f);
	generate_rate(f, &n, tp->delivered - delivered, tp->lost - lost);
	control_recorded(f, &n, ack);
	if (retransmits == 2) {
		sim_write(f, false);
		if ((s32)(f->nxt - f->high) > 0)
			return;
		f->frto = false;
	}
	if (retransmits)
		sim_retransmit(f);
	sim_write(f, false);
}
