// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's sender: transmissions, pacing, timers. One packet is one skb. */
#include "sim.h"

#define TIMEOUT_MIN_US	2000U
#define UNPACED_PACKETS	10

void sim_refresh(struct sim_flow *f)
{
	f->tp.tcp_clock_cache = sim_now + SIM_NS_S;
	f->tp.tcp_mstamp = sim_us();
}

void sim_set_state(struct sim_flow *f, u8 state)
{
	if (f->ops->set_state)
		f->ops->set_state(sim_sk(f), state);
	f->tp.inet_conn.icsk_ca_state = state;
}

/* When the kernel's timer wheel expires, jiffies of a millisecond: never early, far ones late. */
static u64 expiry(u64 now, u64 wait)
{
	u32 shift = wait < 63 ? 0 : wait < 504 ? 3 : wait < 4032 ? 6 : 9;

	return (((now + wait) >> shift) + 1) << shift;
}

void sim_arm(struct sim_flow *f, enum sim_timer timer, u64 wait_us)
{
	const struct tcp_sock *tp = &f->tp;
	u64 jiffies = (wait_us + 999) / 1000;

	/* tcp_pacing_delay() */
	if (timer != SIM_TIMER_REO && tp->tcp_wstamp_ns > tp->tcp_clock_cache)
		jiffies += (tp->tcp_wstamp_ns - tp->tcp_clock_cache) / SIM_NS_MS;
	f->timer = timer;
	f->timer_at = expiry(sim_now / SIM_NS_MS, jiffies) * SIM_NS_MS;
	sim_at(f->timer_at, SIM_TIMER, f->number, 0, f->timer_at);
}

/* Until the timeout of the oldest packet; not positive: it is due. */
static s64 rto_left_us(const struct sim_flow *f)
{
	u64 rto_us = (u64)f->tp.inet_conn.icsk_rto * 1000;

	return (s64)(sim_packet(f, f->una)->sent_us + rto_us - f->tp.tcp_mstamp);
}

void sim_arm_rto(struct sim_flow *f)
{
	s64 wait_us = (s64)f->tp.inet_conn.icsk_rto * 1000;

	if (!f->tp.packets_out) {
		f->timer = SIM_TIMER_OFF;
		return;
	}
	if (f->timer == SIM_TIMER_TLP || f->timer == SIM_TIMER_REO)
		wait_us = max(rto_left_us(f), (s64)1);
	sim_arm(f, SIM_TIMER_RTO, wait_us);
}

/* tcp_schedule_loss_probe(). */
bool sim_arm_probe(struct sim_flow *f, bool advancing)
{
	const struct tcp_sock *tp = &f->tp;
	s64 left_us, wait_us;

	if (!tp->packets_out || (sim_state(f) != TCP_CA_Open && sim_state(f) != TCP_CA_CWR))
		return false;
	wait_us = (tp->srtt_us >> 2) + (tp->packets_out == 1 ? SIM_RTO_MIN_US : TIMEOUT_MIN_US);
	left_us = advancing ? (s64)tp->inet_conn.icsk_rto * 1000 : rto_left_us(f);
	if (left_us > 0)
		wait_us = min(wait_us, left_us);
	sim_arm(f, SIM_TIMER_TLP, wait_us);
	return true;
}

bool sim_paces(struct sim_flow *f)
{
	struct sock *sk = sim_sk(f);
	u64 at = f->tp.tcp_wstamp_ns;

	if (sk->sk_pacing_status != SK_PACING_NEEDED || at <= f->tp.tcp_clock_cache)
		return false;
	if (!f->pacing) {
		f->pacing = true;
		sim_at(at - SIM_NS_S, SIM_PACE, f->number, 0, 0);
	}
	return true;
}

/* tcp_update_skb_after_send(): when the next packet may leave. */
static void pace(struct sim_flow *f, u64 before_ns)
{
	struct tcp_sock *tp = &f->tp;
	struct sock *sk = sim_sk(f);
	u64 length_ns, credit_ns;

	if (sk->sk_pacing_status == SK_PACING_NONE || !sk->sk_pacing_rate ||
	    sk->sk_pacing_rate == ~0UL || tp->data_segs_out < UNPACED_PACKETS)
		return;
	length_ns = SIM_MSS * SIM_NS_S / sk->sk_pacing_rate;
	credit_ns = tp->tcp_wstamp_ns - before_ns;
	tp->tcp_wstamp_ns += length_ns - min(length_ns / 2, credit_ns);
}

/* A new packet or a retransmission leaves. */
void sim_transmit(struct sim_flow *f, u32 packet)
{
	struct tcp_sock *tp = &f->tp;
	struct sim_packet *p = sim_packet(f, packet);
	u64 before_ns = tp->tcp_wstamp_ns;

	tp->tcp_wstamp_ns = max(before_ns, tp->tcp_clock_cache);
	if (!tcp_packets_in_flight(tp) && f->ops->cwnd_event)
		f->ops->cwnd_event(sim_sk(f), CA_EVENT_TX_START);
	tp->lsndtime = tcp_jiffies32;
	tp->data_segs_out++;
	p->sent_us = tp->tcp_wstamp_ns / SIM_NS_US;
	pace(f, before_ns);
	sim_unlist(f, packet);
	sim_list(f, packet);
	if (!tp->packets_out)
		f->first_tx_us = tp->delivered_mstamp = p->sent_us;
	p->first_tx_us = f->first_tx_us;
	p->delivered_us = tp->delivered_mstamp;
	p->delivered = tp->delivered;
	p->app_limited = tp->app_limited;
	f->sent++;
	p->cause = 0;
	ndm_peaks_sent(&f->peaks, tcp_packets_in_flight(tp) + 1);
	sim_send(f->number, packet, p->sent_us);
}

static void send_new(struct sim_flow *f)
{
	struct tcp_sock *tp = &f->tp;
	struct sim_packet *p = sim_packet(f, f->nxt);

	if (f->nxt - f->una >= SIM_RING / 2) {
		fprintf(stderr, "a window of %u packets: too large\n", f->nxt - f->una);
		exit(1);
	}
	*p = (struct sim_packet){};
	sim_transmit(f, f->nxt);
	f->nxt++;
	tp->snd_nxt = f->nxt * SIM_MSS;
	tp->write_seq = tp->snd_nxt + SIM_MSS; /* there is always more to send */
	if (!tp->packets_out++ || f->timer == SIM_TIMER_TLP)
		sim_arm_rto(f);
}

static void validate(struct sim_flow *f, bool limited)
{
	struct tcp_sock *tp = &f->tp;

	if ((s32)(f->una - f->usage_seq) >= 0 || limited ||
	    (!tp->is_cwnd_limited && tp->packets_out > tp->max_packets_out)) {
		tp->is_cwnd_limited = limited;
		tp->max_packets_out = tp->packets_out;
		f->usage_seq = f->nxt;
	}
}

/* The program fills the buffer once a third of it is free. */
static void fill(struct sim_flow *f)
{
	struct tcp_sock *tp = &f->tp;
	u32 in_flight = tcp_packets_in_flight(tp);

	if (f->written - f->una > SIM_BUFFER * 2 / 3)
		return;
	if (f->written == f->nxt && in_flight < tp->snd_cwnd &&
	    tp->lost_out <= tp->retrans_out)
		tp->app_limited = max(tp->delivered + in_flight, 1U);
	f->written = f->una + SIM_BUFFER;
}

/* tcp_write_xmit(). probe: one packet, even above the window. */
void sim_write(struct sim_flow *f, bool probe)
{
	struct tcp_sock *tp = &f->tp;
	bool limited;
	u32 sent = 0;

	sim_refresh(f);
	if (f->sends)
		fill(f);
	while (f->nxt != f->written && !sim_paces(f) && (s32)(f->wnd_end - f->nxt) > 0) {
		if (tcp_packets_in_flight(tp) >= tp->snd_cwnd && !probe)
			break;
		send_new(f);
		sent++;
		if (probe)
			break;
	}
	limited = tcp_packets_in_flight(tp) >= tp->snd_cwnd;
	if (sent || limited)
		validate(f, limited);
	if (!sent)
		return;
	if (sim_is_reducing(f))
		tp->prr_out += sent;
	if (!probe)
		sim_arm_probe(f, false);
}

void sim_timer_fires(struct sim_flow *f)
{
	enum sim_timer timer = f->timer;

	sim_refresh(f);
	f->timer = SIM_TIMER_OFF;
	if (!f->tp.packets_out)
		return;
	if (timer == SIM_TIMER_TLP) {
		sim_probe(f);
	} else if (timer == SIM_TIMER_RTO) {
		sim_timeout(f);
	} else if (timer == SIM_TIMER_REO) {
		u32 before = tcp_packets_in_flight(&f->tp);

		f->rack_advanced = true;
		sim_rack(f);
		if (tcp_packets_in_flight(&f->tp) != before) {
			if (sim_state(f) != TCP_CA_Recovery) {
				sim_enter_recovery(f);
				if (!f->ops->cong_control)
					sim_reduce(f, 1, 0, 0);
			}
			sim_retransmit(f);
		}
		if (f->timer != SIM_TIMER_REO)
			sim_arm_rto(f);
	}
}

/* The pacing's timer: retransmissions, then new data. */
void sim_pace(struct sim_flow *f)
{
	f->pacing = false;
	sim_refresh(f);
	if (f->tp.lost_out > f->tp.retrans_out && f->tp.snd_cwnd > tcp_packets_in_flight(&f->tp))
		sim_retransmit(f);
	sim_write(f, false);
}

/* The handshake has ended, and took so long. */
void sim_open(struct sim_flow *f, long rtt_us)
{
	struct tcp_sock *tp = &f->tp;
	struct sock *sk = sim_sk(f);
	static struct net net = { .ipv4 = { 1 } };
	struct ndm_ack ack;

	f->ring = calloc(SIM_RING, sizeof(*f->ring));
	if (!f->ring)
		abort();
	sk->__sk_common.skc_net.net = &net;
	sk->sk_max_pacing_rate = sk->sk_pacing_rate = ~0UL;
	sk->sk_pacing_shift = 10;
	sk->sk_gso_max_size = 65536;
	f->oldest = f->newest = SIM_NONE;
	f->reordering = 3;
	f->rack_steps = 1;
	f->wnd_end = 65536 / SIM_MSS;
	tp->snd_cwnd = TCP_INIT_CWND;
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	tp->snd_cwnd_clamp = ~0U;
	tp->mss_cache = SIM_MSS;
	tp->rtt_min.s[0].v = ~0U;
	sim_refresh(f);
	tp->tcp_wstamp_ns = tp->tcp_clock_cache;
	tp->lsndtime = tcp_jiffies32;
	tp->delivered = 1;	/* the SYN */
	tp->delivered_mstamp = tp->tcp_mstamp;
	sim_take_rtt(f, rtt_us, rtt_us);
	sim_receiver_begin(f, rtt_us);
	ndm_peaks_begin(&f->peaks);
	f->ops->init(sk);
	ack = sim_record_ack(f, NULL);
	sim_record_keep(f, NULL, &ack);
}
