// SPDX-License-Identifier: GPL-2.0-only
/*
 * Many flows that always have data to send, and networks swapped beside them, for the guest
 * of the lab. Each is one process that sleeps between its turns: a guest that watches its
 * memory needs much of the host's time for a process, and for every wake-up.
 *
 *   crowd take PORT WINDOW            accept, with WINDOW bytes of receive buffer, and discard
 *   crowd send ADDRESS PORT CC COUNT SECONDS
 *                                     COUNT connections that fill their windows, from PORTs
 *                                     of the kernel's choice; print the bytes acknowledged,
 *                                     the slowest connection's and the retransmissions
 *   crowd swap FILE TIMES PER_SECOND NAME NAME
 *                                     write the names to FILE in turn; print how many of the
 *                                     writes succeeded and the seconds that all took
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST	1100
#define BLOCK	65536
#define TURN_US	50000	/* between two looks at all connections */

static char block[BLOCK];

static int check(int result, const char *what)
{
	if (result >= 0)
		return result;
	printf("crowd: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void watch(int poll, int fd, int events)
{
	struct epoll_event event = { .events = events, .data.fd = fd };

	check(epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

static void take(int port, int window)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	int poll = check(epoll_create1(0), "epoll");
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	static struct epoll_event ready[MOST];

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof(window));
	check(bind(fd, (void *)&any, sizeof(any)), "bind");
	check(listen(fd, MOST), "listen");
	watch(poll, fd, EPOLLIN);
	for (;;) {
		int n = check(epoll_wait(poll, ready, MOST, -1), "epoll_wait");

		for (int i = 0; i < n; i++) {
			int from = ready[i].data.fd, new;

			while (from == fd && (new = accept(fd, NULL, NULL)) >= 0)
				watch(poll, new, EPOLLIN);
			if (from != fd && recv(from, NULL, 1 << 20, MSG_TRUNC) <= 0)
				close(from);
		}
		usleep(TURN_US);
	}
}

static int open_to(char **argv)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
	int fd = check(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");

	inet_pton(AF_INET, argv[0], &there.sin_addr);
	check(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, argv[2], strlen(argv[2])), argv[2]);
	if (connect(fd, (void *)&there, sizeof(there)) && errno != EINPROGRESS)
		check(-1, "connect");
	return fd;
}

static void report(const int *fds, int count)
{
	unsigned long long all = 0, fewest = ~0ULL;
	unsigned int retransmitted = 0;

	for (int i = 0; i < count; i++) {
		struct tcp_info info = { 0 };
		socklen_t length = sizeof(info);

		check(getsockopt(fds[i], IPPROTO_TCP, TCP_INFO, &info, &length), "TCP_INFO");
		all += info.tcpi_bytes_acked;
		if (info.tcpi_bytes_acked < fewest)
			fewest = info.tcpi_bytes_acked;
		retransmitted += info.tcpi_total_retrans;
	}
	printf("acked=%llu fewest=%llu retransmitted=%u\n", all, fewest, retransmitted);
}

static int send_all(char **argv)
{
	int count = atoi(argv[3]), poll = check(epoll_create1(0), "epoll");
	double ends = now_s() + atof(argv[4]);
	static struct epoll_event ready[MOST];
	static int fds[MOST];

	for (int i = 0; i < count && i < MOST; i++) {
		fds[i] = open_to(argv);
		watch(poll, fds[i], EPOLLOUT);
	}
	while (now_s() < ends) {
		int n = check(epoll_wait(poll, ready, MOST, 1000), "epoll_wait");

		for (int i = 0; i < n; i++)
			if (send(ready[i].data.fd, block, BLOCK, 0) < 0 && errno != EAGAIN)
				check(-1, "send");
		usleep(TURN_US);
	}
	report(fds, count);
	return 0;
}

static int swap_all(char **argv)
{
	int times = atoi(argv[1]), done = 0;
	long pause_ns = 1000000000 / atol(argv[2]);
	double began = now_s();
	struct timespec due;

	clock_gettime(CLOCK_MONOTONIC, &due);
	for (int i = 0; i < times; i++) {
		const char *name = argv[3 + i % 2];
		int fd = check(open(argv[0], O_WRONLY), argv[0]);

		done += write(fd, name, strlen(name)) > 0;
		close(fd);
		due.tv_nsec += pause_ns;
		due.tv_sec += due.tv_nsec / 1000000000;
		due.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
	}
	printf("swaps=%d seconds=%.3f\n", done, now_s() - began);
	return 0;
}

int main(int argc, char **argv)
{
	struct rlimit files = { 4096, 4096 };

	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_NOFILE, &files);
	if (argc == 4 && !strcmp(argv[1], "take"))
		take(atoi(argv[2]), atoi(argv[3]));
	if (argc == 7 && !strcmp(argv[1], "send"))
		return send_all(argv + 2);
	if (argc == 7 && !strcmp(argv[1], "swap"))
		return swap_all(argv + 2);
	printf("crowd: what is that?\n");
	return 2;
}
