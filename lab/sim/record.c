// SPDX-License-Identifier: GPL-2.0-only
/*
 * A recording: every ACK as the contract's record of it, for datasets/readers/simulated.py. It is
 * what ndm_tcp sees (kmod/ndm_measure.h), or would see in the place of Reno and CUBIC. BBR's
 * window is only a cap, so its window and threshold are those of a capture (datasets/native).
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

_Static_assert(sizeof(struct sim_record) == 72, "as the reader has it");

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
	f->cause = max(f->cause, max(sim_packet(f, packet)->cause, (u8)SIM_CAUSE_REORDERED));
}

static void estimate(struct sim_flow *f, struct ndm_ack *ack)
{
	if (strcmp(f->ops->name, "bbr"))
		return;
	if (ack->ca_state == TCP_CA_Recovery && f->recorded_state < TCP_CA_Recovery)
		ndm_peaks_recovery(&f->peaks);
	ack->cwnd = ndm_peaks_cwnd(&f->peaks);
	ack->ssthresh = f->peaks.ssthresh;
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
		.inflight = tcp_packets_in_flight(tp), .cwnd = tp->snd_cwnd,
		.ssthresh = tp->snd_ssthresh, .srtt_us = tp->srtt_us >> 3,
		.rttvar_us = tp->mdev_us >> 2, .delivered = tp->delivered, .ca_state = sim_state(f),
	};

	estimate(f, &ack);
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

/* After it. */
void sim_record_keep(struct sim_flow *f, const struct rate_sample *rs, const struct ndm_ack *ack)
{
	struct sim_record record = {
		.flow = f->number, .cause = ack->lost ? f->cause : 0,
		.rwnd_limited = (s32)(f->wnd_end - f->nxt) <= 0, .ack = *ack,
	};

	record.ack.min_rtt_us = min_rtt_us(f, ack);
	if (rs && rs->prior_mstamp)
		ndm_peaks_sample(&f->peaks, ack->prior_delivered, ack->delivered, ack->inflight);
	f->recorded_state = ack->ca_state;
	f->recorded_lost = f->tp.lost;
	f->cause = 0;
	if (recording && fwrite(&record, sizeof(record), 1, recording) != 1) {
		perror("recording");
		exit(1);
	}
}
