// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's loss recovery: RACK (RFC 8985), tail loss probes, PRR, timeouts, undo. */
#include "sim.h"

/* The list of packets in the order of their newest transmissions, without those that RACK lost. */
void sim_unlist(struct sim_flow *f, u32 packet)
{
	struct sim_packet *p = sim_packet(f, packet);

	if (!p->listed)
		return;
	if (p->older == SIM_NONE)
		f->oldest = p->newer;
	else
		sim_packet(f, p->older)->newer = p->newer;
	if (p->newer == SIM_NONE)
		f->newest = p->older;
	else
		sim_packet(f, p->newer)->older = p->older;
	p->listed = false;
}

void sim_list(struct sim_flow *f, u32 packet)
{
	struct sim_packet *p = sim_packet(f, packet);

	p->older = f->newest;
	p->newer = SIM_NONE;
	if (f->newest == SIM_NONE)
		f->oldest = packet;
	else
		sim_packet(f, f->newest)->newer = packet;
	f->newest = packet;
	p->listed = true;
}

static bool sent_after(u64 a_us, u32 a, u64 b_us, u32 b)
{
	return a_us > b_us || (a_us == b_us && (s32)(a - b) > 0);
}

void sim_rack_advance(struct sim_flow *f, const struct sim_packet *p, u32 packet)
{
	u64 rtt_us = f->tp.tcp_mstamp - p->sent_us;

	/* Perhaps the original arrived. */
	if (p->ever_retrans && rtt_us < tcp_min_rtt(&f->tp))
		return;
	f->rack_advanced = true;
	f->rack_rtt_us = rtt_us;
	if (sent_after(p->sent_us, packet, f->rack_us, f->rack_end)) {
		f->rack_us = p->sent_us;
		f->rack_end = packet;
	}
}

/* DSACKs widen the reordering window, once in a round trip, for sixteen recoveries. */
void sim_rack_window(struct sim_flow *f)
{
	if (f->rack_dsack && (s32)(f->una - f->rack_round) >= 0) {
		f->rack_steps = min(f->rack_steps + 1, 255U);
		f->rack_round = f->nxt;
		f->rack_persist = 16;
	}
	f->rack_dsack = false;
	if (!f->rack_persist)
		f->rack_steps = 1;
}

static u64 reordering_window_us(const struct sim_flow *f)
{
	const struct tcp_sock *tp = &f->tp;

	if (!tp->reord_seen &&
	    (sim_state(f) >= TCP_CA_Recovery || tp->sacked_out >= f->reordering))
		return 0;
	return min((u64)(tcp_min_rtt(tp) >> 2) * f->rack_steps, (u64)(tp->srtt_us >> 3));
}

static void mark_lost(struct sim_flow *f, u32 packet)
{
	struct sim_packet *p = sim_packet(f, packet);

	if (p->sacked || (p->lost && !p->retrans))
		return;
	f->tp.retrans_out -= p->retrans;
	f->tp.lost_out += !p->lost;
	f->tp.lost++;
	sim_record_lost(f, packet);
	p->lost = true;
	p->retrans = false;
	if ((s32)(packet - f->retransmit_from) < 0)
		f->retransmit_from = packet;
}

/* Is the timer armed? */
bool sim_rack(struct sim_flow *f)
{
	u64 now_us = f->tp.tcp_mstamp, window_us = reordering_window_us(f), longest_us = 0;
	u32 packet, next;

	if (!f->rack_advanced)
		return false;
	f->rack_advanced = false;
	for (packet = f->oldest; packet != SIM_NONE; packet = next) {
		struct sim_packet *p = sim_packet(f, packet);
		s64 left_us = f->rack_rtt_us + window_us - (now_us - p->sent_us);

		next = p->newer;
		if (p->lost && !p->retrans)	/* by a timeout */
			continue;
		if (!sent_after(f->rack_us, f->rack_end, p->sent_us, packet))
			break;
		if (left_us > 0) {
			longest_us = max(longest_us, (u64)left_us);
			continue;
		}
		mark_lost(f, packet);
		sim_unlist(f, packet);
	}
	if (!longest_us)
		return false;
	sim_arm(f, SIM_TIMER_REO, longest_us + 2000);
	return true;
}

bool sim_is_reducing(const struct sim_flow *f)
{
	return sim_state(f) == TCP_CA_CWR || sim_state(f) == TCP_CA_Recovery;
}

static void begin_undo(struct sim_flow *f)
{
	/* Zero would be none: the first packet's number is. */
	f->tp.undo_marker = f->tp.snd_una ? f->tp.snd_una : 1;
	f->undo_retrans = f->tp.retrans_out + (f->tp.tlp_high_seq && f->tp.tlp_retrans);
	if (!f->undo_retrans)
		f->undo_retrans = -1;
}

static void begin_reduction(struct sim_flow *f)
{
	struct tcp_sock *tp = &f->tp;

	f->high = f->nxt;
	tp->tlp_high_seq = 0;
	tp->snd_cwnd_cnt = 0;
	tp->prior_cwnd = tp->snd_cwnd;
	tp->prr_delivered = 0;
	tp->prr_out = 0;
	tp->snd_ssthresh = f->ops->ssthresh(sim_sk(f));
}

static void end_reduction(struct sim_flow *f)
{
	struct tcp_sock *tp = &f->tp;

	if (!f->ops->cong_control && tp->snd_ssthresh < TCP_INFINITE_SSTHRESH &&
	    (sim_state(f) == TCP_CA_CWR || tp->undo_marker))
		tp->snd_cwnd = tp->snd_ssthresh;
	if (f->ops->cwnd_event)
		f->ops->cwnd_event(sim_sk(f), CA_EVENT_COMPLETE_CWR);
}

/* Proportional rate reduction, RFC 6937, of algorithms that leave it to the core. */
void sim_reduce(struct sim_flow *f, u32 acked, u32 lost, u32 flags)
{
	struct tcp_sock *tp = &f->tp;
	int room = (int)tp->snd_ssthresh - (int)tcp_packets_in_flight(tp), send;

	if (!acked || !tp->prior_cwnd)
		return;
	tp->prr_delivered += acked;
	if (room < 0) {
		u64 share = (u64)tp->snd_ssthresh * tp->prr_delivered + tp->prior_cwnd - 1;

		send = (int)(share / tp->prior_cwnd) - (int)tp->prr_out;
	} else {
		send = max((int)tp->prr_delivered - (int)tp->prr_out, (int)acked);
		if (flags & SIM_ADVANCED && !lost)
			send++;
		send = min(send, room);
	}
	send = max(send, tp->prr_out ? 0 : 1);
	tp->snd_cwnd = tcp_packets_in_flight(tp) + send;
}

static void undo(struct sim_flow *f, bool none_lost)
{
	struct tcp_sock *tp = &f->tp;
	u32 packet;

	if (none_lost) {
		for (packet = f->una; packet != f->nxt; packet++)
			sim_packet(f, packet)->lost = false;
		tp->lost_out = 0;
	}
	if (tp->prior_ssthresh) {
		tp->snd_cwnd = f->ops->undo_cwnd(sim_sk(f));
		if (tp->prior_ssthresh > tp->snd_ssthresh)
			tp->snd_ssthresh = tp->prior_ssthresh;
	}
	tp->undo_marker = 0;
	f->rack_advanced = true;
}

static void keep_open(struct sim_flow *f)
{
	const struct tcp_sock *tp = &f->tp;
	u8 state = tp->sacked_out || tp->lost_out || tp->retrans_out ? TCP_CA_Disorder : TCP_CA_Open;

	if (sim_state(f) != state) {
		sim_set_state(f, state);
		f->high = f->nxt;
	}
}

void sim_enter_recovery(struct sim_flow *f)
{
	struct tcp_sock *tp = &f->tp;

	tp->prior_ssthresh = 0;
	begin_undo(f);
	if (!sim_is_reducing(f)) {
		tp->prior_ssthresh = tcp_current_ssthresh(sim_sk(f));
		begin_reduction(f);
	}
	sim_set_state(f, TCP_CA_Recovery);
}

static void leave_recovery(struct sim_flow *f)
{
	if (f->tp.undo_marker && !f->undo_retrans)
		undo(f, false);
	else
		f->rack_persist -= !!f->rack_persist;
	sim_set_state(f, TCP_CA_Open);
}

/* F-RTO, RFC 5682. 0: nothing else; 1: retransmit; 2: new data first. */
static int process_loss(struct sim_flow *f, u32 flags)
{
	bool recovered = (s32)(f->una - f->high) >= 0;

	if (flags & SIM_ADVANCED && f->tp.undo_marker && !f->undo_retrans) {
		undo(f, true);
		f->retransmits = 0;
		f->frto = false;
		sim_set_state(f, TCP_CA_Open);
		return 0;
	}
	if (f->frto) {
		if (flags & SIM_ORIGINAL) {
			undo(f, true);
			f->retransmits = 0;
			sim_set_state(f, TCP_CA_Open);
			return 0;
		}
		if ((s32)(f->nxt - f->high) > 0) {
			if (flags & SIM_SACKED || !(flags & SIM_ADVANCED))
				f->frto = false;
		} else if (flags & SIM_ADVANCED && !recovered) {
			f->high = f->nxt;
			if ((s32)(f->wnd_end - f->nxt) > 0)
				return 2;
			f->frto = false;
		}
	}
	if (recovered) {
		leave_recovery(f);
		return 0;
	}
	return 1;
}

static bool identify_losses(struct sim_flow *f)
{
	u32 before = f->tp.retrans_out;

	sim_rack(f);
	return before > f->tp.retrans_out;
}

/* tcp_fastretrans_alert(): what to send, see process_loss(). */
int sim_recover(struct sim_flow *f, u32 flags)
{
	struct tcp_sock *tp = &f->tp;
	bool lost_again;
	int sends;

	if (sim_state(f) != TCP_CA_Open && (s32)(f->una - f->high) >= 0) {
		if (sim_state(f) == TCP_CA_CWR && f->una != f->high) {
			end_reduction(f);
			sim_set_state(f, TCP_CA_Open);
		} else if (sim_state(f) == TCP_CA_Recovery) {
			leave_recovery(f);
			end_reduction(f);
		}
	}
	if (sim_state(f) == TCP_CA_Recovery) {
		if (tp->undo_marker && !f->undo_retrans) {
			undo(f, false);
			keep_open(f);
		}
		identify_losses(f);
		if (sim_state(f) == TCP_CA_Recovery)
			return 1;
		if (!tp->lost_out)
			return 0;
		sim_enter_recovery(f);
		return 1;
	}
	if (sim_state(f) == TCP_CA_Loss) {
		sends = process_loss(f, flags);
		lost_again = identify_losses(f);
		if (sim_state(f) != TCP_CA_Open && !lost_again)
			return sends;
	}
	if (sim_state(f) <= TCP_CA_Disorder && tp->undo_marker && !f->undo_retrans)
		undo(f, false);
	identify_losses(f);
	if (!tp->lost_out) {
		if (sim_state(f) != TCP_CA_CWR)
			keep_open(f);
		return 0;
	}
	sim_enter_recovery(f);
	return 1;
}

void sim_process_tlp(struct sim_flow *f, u32 flags, u32 ack)
{
	struct tcp_sock *tp = &f->tp;
	s32 ahead = (s32)(ack * SIM_MSS - tp->tlp_high_seq);

	if (ahead < 0)
		return;
	if (!tp->tlp_retrans || flags & SIM_TLP_DSACK) {
		tp->tlp_high_seq = 0;
	} else if (ahead > 0) {
		begin_reduction(f);
		sim_set_state(f, TCP_CA_CWR);
		end_reduction(f);
		keep_open(f);
	} else if (!(flags & (SIM_ADVANCED | SIM_SACKED | SIM_WINDOW))) {
		tp->tlp_high_seq = 0;
	}
}

static void retransmit(struct sim_flow *f, u32 packet)
{
	struct sim_packet *p = sim_packet(f, packet);

	sim_transmit(f, packet);
	p->ever_retrans = true;
	f->tp.total_retrans++;
	f->retransmitted++;
}

static void mark_retransmitted(struct sim_flow *f, u32 packet)
{
	sim_packet(f, packet)->retrans = true;
	f->tp.retrans_out++;
	f->undo_retrans = max(f->undo_retrans, 0) + 1;
}

/* tcp_xmit_retransmit_queue(). */
void sim_retransmit(struct sim_flow *f)
{
	struct tcp_sock *tp = &f->tp;
	bool arms = false;
	u32 packet;

	if (!tp->packets_out)
		return;
	if ((s32)(f->retransmit_from - f->una) < 0)
		f->retransmit_from = f->una;
	for (packet = f->retransmit_from; (s32)(f->nxt - packet) > 0; packet++) {
		const struct sim_packet *p = sim_packet(f, packet);

		if (sim_paces(f) || tp->snd_cwnd <= tcp_packets_in_flight(tp) ||
		    tp->retrans_out >= tp->lost_out)
			break;
		if (!p->lost || p->sacked || p->retrans) {
			if (packet == f->retransmit_from)
				f->retransmit_from++;
			continue;
		}
		retransmit(f, packet);
		mark_retransmitted(f, packet);
		if (sim_is_reducing(f))
			tp->prr_out++;
		arms |= packet == f->una && f->timer != SIM_TIMER_REO;
	}
	if (arms)
		sim_arm(f, SIM_TIMER_RTO, (u64)tp->inet_conn.icsk_rto * 1000);
}

/* tcp_send_loss_probe(). */
void sim_probe(struct sim_flow *f)
{
	struct tcp_sock *tp = &f->tp;
	u32 out = tp->packets_out;

	/* Without a probe the timeout counts from when the oldest packet left. */
	f->timer = SIM_TIMER_TLP;
	if (!tp->tlp_high_seq) {
		tp->tlp_retrans = 0;
		if ((s32)(f->wnd_end - f->nxt) <= 0 || f->nxt == f->written) {
			retransmit(f, f->nxt - 1);
			tp->tlp_retrans = 1;
		} else {
			sim_write(f, true);
		}
		if (tp->tlp_retrans || tp->packets_out > out) {
			tp->tlp_high_seq = tp->snd_nxt;
			f->timer = SIM_TIMER_OFF;
		}
	}
	sim_arm_rto(f);
}

/* tcp_retransmit_timer(). */
void sim_timeout(struct sim_flow *f)
{
	struct tcp_sock *tp = &f->tp;
	bool first = sim_state(f) < TCP_CA_Recovery;
	u32 packet;

	ndm_peaks_timeout(&f->peaks);
	for (packet = f->una; packet != f->nxt; packet++) {
		struct sim_packet *p = sim_packet(f, packet);

		if (packet != f->una &&
		    (s64)(f->rack_rtt_us - (tp->tcp_mstamp - p->sent_us)) > 0)
			continue;
		mark_lost(f, packet);
	}
	if (sim_state(f) <= TCP_CA_Disorder || (s32)(f->high - f->una) <= 0 ||
	    (sim_state(f) == TCP_CA_Loss && !f->retransmits)) {
		tp->prior_ssthresh = tcp_current_ssthresh(sim_sk(f));
		tp->prior_cwnd = tp->snd_cwnd;
		tp->snd_ssthresh = f->ops->ssthresh(sim_sk(f));
		if (f->ops->cwnd_event)
			f->ops->cwnd_event(sim_sk(f), CA_EVENT_LOSS);
		begin_undo(f);
	}
	tp->snd_cwnd = tcp_packets_in_flight(tp) + 1;
	tp->snd_cwnd_cnt = 0;
	sim_set_state(f, TCP_CA_Loss);
	f->high = f->nxt;
	tp->tlp_high_seq = 0;
	f->frto = first || f->retransmits;
	f->retransmits++;
	retransmit(f, f->una);
	mark_retransmitted(f, f->una);
	tp->inet_conn.icsk_rto = min(tp->inet_conn.icsk_rto << 1, 120000U);
	sim_arm(f, SIM_TIMER_RTO, (u64)tp->inet_conn.icsk_rto * 1000);
}
