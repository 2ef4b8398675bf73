// SPDX-License-Identifier: GPL-2.0-only
/*
 * The path as lab/guest/plan.py builds it: tbf over a queue, then netem in both directions.
 * Packets leave a sender without delay.
 */
#include "sim.h"

struct waiting {
	u32 flow, packet;
	u64 sent_us;
};

/* A packet, or an ACK with what it says, in netem. */
struct held {
	u64 due_at;
	u32 flow, packet;
	u64 value;
};

/*
 * netem's slots: what is due waits for the next one. That is drawn anew whenever netem looks, at a
 * packet that comes or leaves, and the oldest one is not due before it.
 */
struct slots {
	u64 at;
	double shortest_ns, longest_ns;
	enum sim_kind kind;	/* of the event behind it */
	struct held *held;	/* ring */
	u32 head, tail;
	u64 look_at;
};

/* tc-tbf: tokens are time. */
struct bucket {
	double tokens_ns, full_ns, at_ns;
};

struct sim_path sim_path;
static struct sim_step *steps;
static u32 step_count, step_room;
static struct waiting *queue;
static u32 head, waiting, counted = SIM_PACKET;
static struct bucket bottleneck, thin;
static struct slots slots[2];	/* of packets, of ACKs */
static double data_at_ns, acks_at_ns, ack_at_ns[SIM_FLOWS];
static u64 dequeue_at;		/* 0: nothing waits for tokens */
static bool bursts;

static void fill(struct bucket *b, double bytes, double bps)
{
	b->full_ns = bytes * 8e9 / bps;
	b->tokens_ns = b->full_ns;
	b->at_ns = sim_now;
}

/* Nanoseconds until a packet that costs so many may leave; 0: it leaves, and pays. */
static double pay(struct bucket *b, double cost_ns, double now_ns)
{
	double tokens_ns = b->tokens_ns + now_ns - b->at_ns;

	if (tokens_ns > b->full_ns)
		tokens_ns = b->full_ns;
	tokens_ns -= cost_ns;
	if (tokens_ns < -1)
		return -tokens_ns;
	b->tokens_ns = tokens_ns;
	b->at_ns = now_ns;
	return 0;
}

static void begin_slots(struct slots *s, const double us[2], enum sim_kind kind)
{
	*s = (struct slots){ .shortest_ns = us[0] * 1e3, .longest_ns = us[1] * 1e3, .kind = kind };
	if (!s->longest_ns)
		return;
	s->held = calloc(SIM_RING, sizeof(*s->held));
	if (!s->held)
		abort();
}

void sim_path_change(const struct sim_step *step)
{
	if (step_count == step_room) {
		step_room = step_room ? 2 * step_room : 1024;
		steps = realloc(steps, step_room * sizeof(*steps));
		if (!steps)
			abort();
	}
	steps[step_count++] = *step;
}

void sim_path_begin(void)
{
	queue = calloc(sim_path.queue, sizeof(*queue));
	if (!queue)
		abort();
	fill(&bottleneck, 100 + SIM_PACKET * sim_path.bucket, sim_path.bps);
	if (sim_path.ack_bps)
		fill(&thin, 100 + SIM_PACKET, sim_path.ack_bps);
	begin_slots(&slots[0], sim_path.slot_us, SIM_DATA);
	begin_slots(&slots[1], sim_path.hold_us, SIM_ACK_OUT);
	for (u32 i = 0; i < step_count; i++)
		sim_at(steps[i].at, SIM_STEP, 0, i, 0);
}

/* tc qdisc change: the bucket is full again, and frames count. */
void sim_path_step(u32 number)
{
	const struct sim_step *step = &steps[number];

	if (step->rtt_us >= 0)
		sim_path.rtt_us = step->rtt_us;
	if (step->bps < 0)
		return;
	sim_path.bps = step->bps;
	counted = SIM_FRAME;
	fill(&bottleneck, 100 + SIM_PACKET * sim_path.bucket, step->bps);
	sim_dequeue(dequeue_at);
}

/* netem_dequeue(), as long as something leaves. */
static void look(struct slots *s)
{
	const struct held *h;

	for (; s->head != s->tail; s->head++) {
		h = &s->held[s->head & (SIM_RING - 1)];
		if (s->at < h->due_at)
			s->at = sim_now + s->shortest_ns +
				(s->longest_ns - s->shortest_ns) * sim_uniform();
		s->look_at = max(h->due_at, s->at);
		if (s->look_at > sim_now) {
			sim_at(s->look_at, SIM_SLOT, s - slots, 0, s->look_at);
			return;
		}
		sim_at(sim_now, s->kind, h->flow, h->packet, h->value);
	}
}

void sim_slot(u32 number, u64 at)
{
	if (slots[number].look_at == at)
		look(&slots[number]);
}

/* At its time, or in the slot after that. */
static void hold(struct slots *s, u64 due_at, u32 flow, u32 packet, u64 value)
{
	if (!s->longest_ns) {
		sim_at(due_at, s->kind, flow, packet, value);
		return;
	}
	if (s->tail - s->head == SIM_RING)
		abort();
	s->held[s->tail++ & (SIM_RING - 1)] = (struct held){ due_at, flow, packet, value };
	look(s);
}

static bool is_lost(void)
{
	if (sim_path.burst_start) {
		bool lost = sim_uniform() < (bursts ? sim_path.burst_loss : sim_path.loss);

		if (sim_uniform() < (bursts ? sim_path.burst_end : sim_path.burst_start))
			bursts = !bursts;
		return lost;
	}
	return sim_path.loss && sim_uniform() < sim_path.loss;
}

static double jitter_ns(void)
{
	if (!sim_path.jitter_us)
		return 0;
	if (sim_path.jitter_kind)
		return sim_path.jitter_us * 1e3 * (2 * sim_uniform() - 1);
	return sim_path.jitter_us * 1e3 * sim_normal();
}

/* Behind the bottleneck. */
static void propagate(struct waiting w)
{
	double at_ns = sim_path.rtt_us * 500 + jitter_ns();

	if (is_lost()) {
		sim_dropped(w.flow, w.packet, SIM_CAUSE_RANDOM);
		return;
	}
	at_ns = sim_now + (at_ns > 0 ? at_ns : 0);
	if (sim_path.ordered && at_ns < data_at_ns)
		at_ns = data_at_ns;
	data_at_ns = at_ns;
	hold(&slots[0], at_ns, w.flow, w.packet, w.sent_us);
}

/* at: of the event; another time than the newest is of a rate that has changed since. */
void sim_dequeue(u64 at)
{
	double bytes, wait_ns;

	if (at != dequeue_at)
		return;
	dequeue_at = 0;
	while (waiting) {
		bytes = queue[head].packet & SIM_MESSAGE ? SIM_ACK : counted;
		wait_ns = pay(&bottleneck, bytes * 8e9 / sim_path.bps, sim_now);
		if (wait_ns > 0) {
			dequeue_at = sim_now + wait_ns + 1;
			sim_at(dequeue_at, SIM_DEQUEUE, 0, 0, dequeue_at);
			return;
		}
		propagate(queue[head]);
		head = head + 1 == sim_path.queue ? 0 : head + 1;
		waiting--;
	}
}

/* A sender's packet reaches the bottleneck. sent_us: its timestamp. */
void sim_send(u32 flow, u32 packet, u64 sent_us)
{
	if (waiting == sim_path.queue) {
		sim_dropped(flow, packet, SIM_CAUSE_QUEUE);
		return;
	}
	queue[(head + waiting++) % sim_path.queue] = (struct waiting){ flow, packet, sent_us };
	if (!dequeue_at)
		sim_dequeue(0);
}

/* A receiver acknowledges: the first missing packet, what has arrived, what it can take. */
void sim_send_ack(u32 flow, u32 acked, u64 log, u32 window_end)
{
	double at_ns = sim_now + sim_path.rtt_us * 500;

	if (sim_path.ack_loss && sim_uniform() < sim_path.ack_loss)
		return;
	if (sim_path.ordered && at_ns < acks_at_ns)
		at_ns = acks_at_ns;
	acks_at_ns = at_ns;
	/* The log and the window need 64 bits together only in flows of 2^32 packets. */
	hold(&slots[1], at_ns, flow, acked, (u64)window_end << 32 | (u32)log);
}

/* Behind its propagation: the rate of a thin ACK path, and the sender's own delay. */
void sim_ack_out(const struct sim_event *event)
{
	double cost_ns, at_ns = sim_now, wait_ns;

	if (sim_path.ack_bps) {
		cost_ns = SIM_ACK * 8e9 / sim_path.ack_bps;
		if (at_ns < thin.at_ns)
			at_ns = thin.at_ns;
		if ((at_ns - sim_now) / cost_ns >= sim_path.ack_queue)
			return;
		wait_ns = pay(&thin, cost_ns, at_ns);
		if (wait_ns > 0) {
			at_ns += wait_ns + 1;
			pay(&thin, cost_ns, at_ns);
		}
	}
	at_ns += sim_flow[event->flow].extra_ns;
	if (at_ns < ack_at_ns[event->flow])
		at_ns = ack_at_ns[event->flow];
	ack_at_ns[event->flow] = at_ns;
	sim_at(at_ns, SIM_ACK_IN, event->flow, event->packet, event->value);
}
