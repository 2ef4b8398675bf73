// SPDX-License-Identifier: GPL-2.0-only
/*
 * A recording: every ACK as the contract's record of it, for datasets/readers/simulated.py. What
 * the sender knows is kmod/ndm_measure.h's; for other algorithms it is as in a capture.
 */
#include <string.h>

#include "sim.h"

struct sim_record {
	u32 flow;
	u8 cause;	/* enum sim_cause, of the packets that were marked lost since the last ACK */
	u8 rwnd_limited;
	u16 unused;
	struct ndm_ack ack;
};

static FILE *recording;

void sim_record_to(const char *path)
{
	recording = fopen(path, "wb");
	if (!recording) {
		perror(path);
		exit(1);
	}
}

void sim_record_end(void)
{
	if (recording && fclose(recording)) {
		perror("recording");
		exit(1);
	}
}

/* A packet is dropped on its way to the receiver. */
void sim_dropped(u32 flow, u32 packet, enum sim_cause cause)
{
	struct sim_flow *f = &sim_flow[flow];

	if (cause == SIM_CAUSE_QUEUE)
		f->queue_lost++;
	else
		f->random_lost++;
	if (!(packet & SIM_MESSAGE))
		sim_packet(f, packet)->cause = cause;
}

/* A packet counts as lost; one that was not dropped was overtaken. */
void sim_record_lost(struct sim_flow *f, u32 packet)
{
	f->cause = max(f->cause, max(sim_packet(f, packet)->cause, (u8)SIM_CAUSE_NONE));
}

/* BBR's window is only a cap: as of a capture, the most packets of the last two rounds. */
static u32 window(struct sim_flow *f)
{
	return strcmp(f->ops->name, "bbr") ? f->tp.snd_cwnd : max(max(f->peak, f->last_peak), 1U);
}

static s32 us(long value)
{
	return value >= 0 && value <= S32_MAX ? value : -1;
}

/* Before the algorithm sees the ACK. rs: NULL at the handshake. */
struct ndm_ack sim_record_ack(struct sim_flow *f, const struct rate_sample *rs)
{
	const struct tcp_sock *tp = &f->tp;
	struct ndm_ack ack = {
		.now_us = tp->tcp_mstamp, .rtt_us = tp->srtt_us >> 3, .interval_us = -1,
		.inflight = tcp_packets_in_flight(tp), .cwnd = window(f),
		.ssthresh = tp->snd_ssthresh, .srtt_us = tp->srtt_us >> 3,
		.rttvar_us = tp->mdev_us >> 2, .delivered = tp->delivered, .ca_state = sim_state(f),
	};

	if (!rs)
		return ack;
	ack.rtt_us = us(rs->rtt_us);
	ack.acked = rs->acked_sacked;
	ack.lost = tp->lost - f->recorded_lost;
	ack.prior_delivered = rs->prior_delivered;
	ack.interval_us = rs->delivered < 0 ? -1 : us(rs->interval_us);
	ack.app_limited = rs->is_app_limited;
	return ack;
}

/*
 * The lowest RTT, or what ndm_tcp took for it. Timestamps count whole milliseconds, rounded down:
 * the RTT of a retransmitted packet is no minimum.
 */
static u32 min_rtt_us(struct sim_flow *f, const struct ndm_ack *ack)
{
	if (ack->rtt_us > 0 && !(f->tp.total_retrans && ack->rtt_us % 1000 == 0))
		f->min_rtt_us = min(f->min_rtt_us ? f->min_rtt_us : ~0U, (u32)ack->rtt_us);
	return f->own_min_rtt_us ? f->own_min_rtt_us : f->min_rtt_us;
}

/* A round ended as in a capture, and with it the peak of packets in flight. */
static void note_peak(struct sim_flow *f, const struct ndm_ack *ack)
{
	if (ack->interval_us < 0 || (s32)(ack->prior_delivered - f->peak_mark) < 0)
		return;
	f->last_peak = f->peak;
	f->peak = ack->inflight;
	f->peak_mark = ack->delivered;
}

/* After it. */
void sim_record_keep(struct sim_flow *f, const struct ndm_ack *ack)
{
	struct sim_record record = {
		.flow = f->number, .cause = ack->lost ? f->cause : 0,
		.rwnd_limited = (s32)(f->wnd_end - f->nxt) <= 0, .ack = *ack,
	};

	record.ack.min_rtt_us = min_rtt_us(f, ack);
	note_peak(f, ack);
	f->recorded_lost = f->tp.lost;
	f->cause = 0;
	if (recording && fwrite(&record, sizeof(record), 1, recording) != 1) {
		perror("recording");
		exit(1);
	}
}
