// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs one path: words from stdin, results on stdout. lab/sim/simulate.py writes and reads both.
 *
 *	seed N
 *	end SECONDS
 *	path NAME VALUE...	a field of struct sim_path
 *	step SECONDS BPS RTT_US		(below 0: as before)
 *	param NAME VALUE	of a module
 *	flow CC START SECONDS EXTRA_US READ_US
 */
#include <string.h>

#include "sim.h"

#define SAMPLE_NS	(10 * SIM_NS_MS)
/*
 * iperf3: a connection for its messages, three of which are answered; another for data; and
 * the message that starts the test.
 */
enum {
	OPENS = SIM_MESSAGE + 3,
	STARTS = SIM_MESSAGE + 4,
};
#define START_NS		(4600 * SIM_NS_US)
#define AGAIN_NS		SIM_NS_S	/* a message that is lost */

struct sim_flow sim_flow[SIM_FLOWS];
u32 sim_flows;
static u64 common_ns;

u32 sim_jiffies(void)
{
	return sim_us() / 1000;
}

static void fail(const char *why, const char *what)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static void read_path(void)
{
	struct sim_path *p = &sim_path;
	const struct {
		const char *name;
		double *number;
		u32 *count;
		bool *flag;
	} fields[] = {
		{ "bps", &p->bps }, { "rtt_us", &p->rtt_us }, { "loss", &p->loss },
		{ "ack_loss", &p->ack_loss }, { "jitter_us", &p->jitter_us },
		{ "burst_start", &p->burst_start }, { "burst_end", &p->burst_end },
		{ "burst_loss", &p->burst_loss }, { "slot_from_us", &p->slot_us[0] },
		{ "slot_to_us", &p->slot_us[1] }, { "hold_from_us", &p->hold_us[0] },
		{ "hold_to_us", &p->hold_us[1] }, { "ack_bps", &p->ack_bps },
		{ "queue", NULL, &p->queue }, { "bucket", NULL, &p->bucket },
		{ "ack_queue", NULL, &p->ack_queue }, { "uniform", NULL, &p->jitter_kind },
		{ "ordered", NULL, NULL, &p->ordered },
	};
	char name[32];
	double value;

	if (scanf("%31s %lf", name, &value) != 2)
		fail("no value", "path");
	for (u32 i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		if (strcmp(fields[i].name, name))
			continue;
		if (fields[i].number)
			*fields[i].number = value;
		else if (fields[i].count)
			*fields[i].count = value;
		else
			*fields[i].flag = value;
		return;
	}
	fail("no such field", name);
}

static void read_flow(void)
{
	struct sim_flow *f = &sim_flow[sim_flows];
	double start, seconds, extra_us, read_us;
	char cc[32];

	if (sim_flows == SIM_FLOWS)
		fail("too many", "flow");
	if (scanf("%31s %lf %lf %lf %lf", cc, &start, &seconds, &extra_us, &read_us) != 5)
		fail("CC START SECONDS EXTRA_US READ_US", "flow");
	f->ops = sim_algorithm(cc);
	if (!f->ops)
		fail("no such algorithm", cc);
	f->number = sim_flows++;
	f->start_ns = start * SIM_NS_S;
	f->length_ns = seconds * SIM_NS_S;
	f->extra_ns = extra_us * SIM_NS_US;
	f->in.read_ns = read_us * SIM_NS_US;
}

static void read_param(void)
{
	char name[32];
	u32 value;

	if (scanf("%31s %u", name, &value) != 2)
		fail("NAME VALUE", "param");
	if (!sim_set_param(name, value))
		fail("no such parameter", name);
}

static void read_step(void)
{
	struct sim_step step;
	double at;

	if (scanf("%lf %lf %lf", &at, &step.bps, &step.rtt_us) != 3)
		fail("SECONDS BPS RTT_US", "step");
	step.at = at * SIM_NS_S;
	sim_path_change(&step);
}

static double read_words(void)
{
	double end = 0;
	char word[32];
	u64 seed = 1;

	while (scanf("%31s", word) == 1) {
		if (!strcmp(word, "seed") && scanf("%llu", (unsigned long long *)&seed) == 1)
			continue;
		if (!strcmp(word, "end") && scanf("%lf", &end) == 1)
			continue;
		if (!strcmp(word, "path")) {
			read_path();
		} else if (!strcmp(word, "flow")) {
			read_flow();
		} else if (!strcmp(word, "param")) {
			read_param();
		} else if (!strcmp(word, "step")) {
			read_step();
		} else {
			fail("no such word", word);
		}
	}
	sim_seed(seed);
	return end;
}

static void sample(struct sim_flow *f)
{
	if (f->rtts == f->room) {
		f->room = f->room ? 2 * f->room : 1024;
		f->rtt_us = realloc(f->rtt_us, f->room * sizeof(*f->rtt_us));
		if (!f->rtt_us)
			abort();
	}
	f->rtt_us[f->rtts++] = f->tp.srtt_us >> 3;
}

static void send_message(struct sim_flow *f)
{
	sim_send(f->number, f->message, sim_us());
	sim_at(sim_now + AGAIN_NS, SIM_MESSAGE_OUT, f->number, f->message, 0);
}

static void count_common(u32 side)
{
	for (u32 i = 0; i < sim_flows; i++)
		sim_flow[i].common[side] = sim_flow[i].una;
}

/* All flows are there, as for the lab, once each connection for data has sent its SYN. */
static void begin_common(void)
{
	static u32 there;
	u64 to = ~0ULL;

	if (++there < sim_flows)
		return;
	for (u32 i = 0; i < sim_flows; i++)
		to = min(to, sim_flow[i].start_ns + sim_flow[i].length_ns);
	if (to <= sim_now)
		return;
	common_ns = to - sim_now;
	count_common(0);
	sim_at(to, SIM_COMMON, 0, 0, 0);
}

/* echo_us: when the transmission that it answers left. */
static void take_answer(struct sim_flow *f, u32 message, u32 echo_us)
{
	if (message != f->message)
		return;
	if (message == OPENS) {
		sim_open(f, (u32)sim_us() - echo_us);
		sim_at(sim_now + SAMPLE_NS, SIM_SAMPLE, f->number, 0, 0);
	}
	if (++f->message == OPENS)
		begin_common();
	if (message == STARTS)
		sim_at(sim_now + START_NS, SIM_START, f->number, 0, 0);
	else
		send_message(f);
}

/* A packet, an ACK, or a timer of the receiver. */
static void take(struct sim_flow *f, const struct sim_event *e)
{
	switch (e->kind) {
	case SIM_DATA:
		sim_receive(f, e->packet, e->value);
		break;
	case SIM_ACK_IN:
		sim_ack(f, e->packet, e->value & 0xffffffff, e->value >> 32);
		break;
	case SIM_READ:
		sim_read(f);
		break;
	case SIM_DELACK:
		sim_delack(f, e->value);
		break;
	case SIM_COMPRESS:
		sim_compressed(f, e->value);
		break;
	default:
		break;
	}
}

/* To a flow, until it has ended. */
static void happen_to(struct sim_flow *f, const struct sim_event *e)
{
	u64 srtt_ns, rtt_ns;

	switch (e->kind) {
	case SIM_MESSAGE_OUT:
		if (f->message == e->packet)
			send_message(f);
		break;
	case SIM_START:
		f->sends = true;
		sim_at(sim_now + f->length_ns, SIM_END, e->flow, 0, 0);
		sim_at(sim_now + SIM_NS_S, SIM_SECOND, e->flow, 0, 0);
		sim_write(f, false);
		break;
	case SIM_END:
		/* The message that ends the test waits in the same queue. */
		srtt_ns = (f->tp.srtt_us >> 3) * SIM_NS_US;
		f->measured_ns = f->length_ns + srtt_ns;
		rtt_ns = sim_path.rtt_us * SIM_NS_US + f->extra_ns;
		/* The path may have become longer since the last RTT. */
		sim_at(sim_now + max(srtt_ns, rtt_ns) - rtt_ns / 2, SIM_STOP, e->flow, 0, 0);
		break;
	case SIM_STOP:
		f->sends = false;
		f->ended = true;
		break;
	case SIM_TIMER:
		if (f->timer != SIM_TIMER_OFF && f->timer_at == e->value)
			sim_timer_fires(f);
		break;
	case SIM_PACE:
		sim_pace(f);
		break;
	case SIM_SAMPLE:
		sample(f);
		sim_at(sim_now + SAMPLE_NS, SIM_SAMPLE, e->flow, 0, 0);
		break;
	case SIM_SECOND:
		f->silent += f->in.next == f->counted;
		f->counted = f->in.next;
		sim_at(sim_now + SIM_NS_S, SIM_SECOND, e->flow, 0, 0);
		break;
	default:
		take(f, e);
	}
}

static void happen(const struct sim_event *e)
{
	struct sim_flow *f = &sim_flow[e->flow];

	if (e->kind == SIM_DEQUEUE) {
		sim_dequeue(e->value);
	} else if (e->kind == SIM_SLOT) {
		sim_slot(e->flow, e->value);
	} else if (e->kind == SIM_STEP) {
		sim_path_step(e->packet);
	} else if (e->kind == SIM_COMMON) {
		count_common(1);
	} else if (e->kind == SIM_ACK_OUT) {
		sim_ack_out(e);
	} else if (e->kind == SIM_DATA && e->packet & SIM_MESSAGE) {
		sim_send_ack(e->flow, e->packet, e->value, 0);
	} else if (e->kind == SIM_ACK_IN && e->packet & SIM_MESSAGE) {
		take_answer(f, e->packet, e->value);
	} else if (!f->ended) {
		happen_to(f, e);
	}
}

static void schedule(void)
{
	for (u32 i = 0; i < sim_flows; i++) {
		sim_flow[i].message = SIM_MESSAGE;
		sim_at(sim_flow[i].start_ns, SIM_MESSAGE_OUT, i, SIM_MESSAGE, 0);
	}
}

static int compare(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

/*
 * Packets: sent, retransmitted, arrived, lost at random, lost in the queue, acknowledged while
 * all flows were there. Then that time, ns; seconds without an arrival; mean and 95th percentile
 * of the smoothed RTT, us; how long the receiver's program measured, ns: it begins with the message
 * that lets the sender begin, and ends with the one that ends the test.
 */
static void report(struct sim_flow *f)
{
	double sum = 0;

	for (u32 i = 0; i < f->rtts; i++)
		sum += f->rtt_us[i];
	qsort(f->rtt_us, f->rtts, sizeof(*f->rtt_us), compare);
	printf("%llu %llu %u %llu %llu %u %llu %u %.3f %u %llu\n", (unsigned long long)f->sent,
	       (unsigned long long)f->retransmitted, f->in.next,
	       (unsigned long long)f->random_lost, (unsigned long long)f->queue_lost,
	       f->common[1] - f->common[0], (unsigned long long)common_ns, f->silent,
	       f->rtts ? sum / f->rtts : 0, f->rtts ? f->rtt_us[f->rtts * 95 / 100] : 0,
	       (unsigned long long)f->measured_ns);
}

/* FILE: for a recording. */
int main(int argc, char **argv)
{
	u64 end_ns = read_words() * SIM_NS_S;
	struct sim_event event;

	if (argc > 1)
		sim_record_to(argv[1]);
	sim_path_begin();
	schedule();
	while (sim_next(&event) && event.at <= end_ns)
		happen(&event);
	for (u32 i = 0; i < sim_flows; i++)
		report(&sim_flow[i]);
	sim_record_end();
	return 0;
}
