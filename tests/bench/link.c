// SPDX-License-Identifier: GPL-2.0-only
/*
 * link FROM TO MBPS QUEUE_KB DELAY_MS: a link between two network namespaces, until stdin ends.
 * The device link0 of each takes packets; those from FROM pass a bottleneck with a drop-tail
 * queue, and those of both directions arrive DELAY_MS later. It keeps their order, and needs no
 * qdisc of the kernel. The counterpart of netem where that is missing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PACKETS	(1U << 14)	/* under way in one direction, at most */
#define BYTES	2048U		/* of one, at most */

struct packet {
	uint64_t due_ns;
	ssize_t bytes;
	char data[BYTES];
};

struct direction {
	struct pollfd *from;
	int to;
	double ns_per_byte;
	uint64_t queue_ns, delay_ns;
	uint64_t busy_until_ns;	/* the bottleneck has sent all before */
	uint32_t first, behind;
	struct packet ring[PACKETS];
};

static struct direction there, back;

static uint64_t now_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000000000ULL + at.tv_nsec;
}

static int device(const char *namespace)
{
	struct ifreq wanted = { .ifr_name = "link0", .ifr_flags = IFF_TUN | IFF_NO_PI };
	char path[256];
	int at, fd;

	snprintf(path, sizeof(path), "/run/netns/%s", namespace);
	at = open(path, O_RDONLY | O_CLOEXEC);
	if (at < 0 || setns(at, CLONE_NEWNET)) {
		perror(path);
		exit(1);
	}
	close(at);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &wanted)) {
		perror("/dev/net/tun");
		exit(1);
	}
	return fd;
}

static void take(struct direction *d)
{
	while (d->behind - d->first < PACKETS) {
		struct packet *p = &d->ring[d->behind % PACKETS];
		uint64_t now, start;

		p->bytes = read(d->from->fd, p->data, BYTES);
		if (p->bytes <= 0)
			return;
		now = now_ns();
		start = d->busy_until_ns > now ? d->busy_until_ns : now;
		if (start - now > d->queue_ns)
			continue;
		d->busy_until_ns = start + (uint64_t)(p->bytes * d->ns_per_byte);
		p->due_ns = d->busy_until_ns + d->delay_ns;
		d->behind++;
	}
}

static void deliver(struct direction *d, uint64_t now)
{
	for (; d->first != d->behind; d->first++) {
		struct packet *p = &d->ring[d->first % PACKETS];

		if (p->due_ns > now || (write(d->to, p->data, p->bytes) < 0 && errno == EAGAIN))
			return;
	}
}

static uint64_t next_ns(const struct direction *d)
{
	return d->first == d->behind ? UINT64_MAX : d->ring[d->first % PACKETS].due_ns;
}

int main(int argc, char **argv)
{
	struct pollfd in[3] = { { .fd = STDIN_FILENO, .events = POLLIN } };

	if (argc != 6)
		return 2;
	for (int i = 0; i < 2; i++)
		in[i + 1] = (struct pollfd){ .fd = device(argv[1 + i]), .events = POLLIN };
	there.from = &in[1];
	there.to = in[2].fd;
	back.from = &in[2];
	back.to = in[1].fd;
	there.ns_per_byte = 8000 / atof(argv[3]);
	there.queue_ns = (uint64_t)(atof(argv[4]) * 1000 * there.ns_per_byte);
	there.delay_ns = back.delay_ns = (uint64_t)(atof(argv[5]) * 1e6);
	back.queue_ns = UINT64_MAX;
	puts("ready");
	fflush(stdout);
	while (!in[0].revents) {
		uint64_t due = next_ns(&there) < next_ns(&back) ? next_ns(&there) : next_ns(&back);
		uint64_t now = now_ns(), wait = due < now ? 0 : due - now;
		struct timespec pause = { wait / 1000000000, wait % 1000000000 };

		ppoll(in, 3, due == UINT64_MAX ? NULL : &pause, NULL);
		take(&there);
		take(&back);
		now = now_ns();
		deliver(&there, now);
		deliver(&back, now);
	}
	return 0;
}
