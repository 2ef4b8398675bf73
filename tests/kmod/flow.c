// SPDX-License-Identifier: GPL-2.0-only
/*
 * Connections that follow a script, for the guest of the lab:
 *
 *   flow serve PORT [RCVBUF]          take what comes on any number of connections
 *   flow send ADDRESS PORT CC STEP... one connection, from port 20001; with CC "-"
 *                                     from any, with the default algorithm
 *   flow many ADDRESS PORT CC COUNT BYTES SWITCHES
 *                                     COUNT connections at once, BYTES on each, and
 *                                     SWITCHES changes between CC and reno on the way
 *
 * Steps: send:BYTES (until all is acknowledged), put:BYTES (no waiting),
 * drip:TIMES:BYTES:MS, sleep:MS, cc:NAME, info (a line of tcp_info).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST	1100
#define BLOCK	65536

static char block[BLOCK];

static void check(int result, const char *what)
{
	if (result >= 0)
		return;
	printf("flow: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void choose(int fd, const char *cc)
{
	check(setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, strlen(cc)), cc);
}

static void serve(int port, int rcvbuf)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(port) };
	static struct pollfd fds[MOST];
	int n = 1, yes = 1;

	fds[0] = (struct pollfd){ socket(AF_INET, SOCK_STREAM, 0), POLLIN, 0 };
	setsockopt(fds[0].fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (rcvbuf)
		setsockopt(fds[0].fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof(rcvbuf));
	check(bind(fds[0].fd, (void *)&any, sizeof(any)), "bind");
	check(listen(fds[0].fd, MOST), "listen");
	for (;;) {
		check(poll(fds, n, -1), "poll");
		for (int i = n - 1; i > 0; i--) {
			if (!fds[i].revents || recv(fds[i].fd, block, BLOCK, 0) > 0)
				continue;
			close(fds[i].fd);
			fds[i] = fds[--n];
		}
		if (fds[0].revents && n < MOST)
			fds[n++] = (struct pollfd){ accept(fds[0].fd, NULL, NULL), POLLIN, 0 };
	}
}

static int open_to(char **argv, int from, const char *cc, int together)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(from) };
	int fd = socket(AF_INET, SOCK_STREAM | (together ? SOCK_NONBLOCK : 0), 0), yes = 1;

	inet_pton(AF_INET, argv[0], &there.sin_addr);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (strcmp(cc, "-")) {
		check(bind(fd, (void *)&here, sizeof(here)), "bind");
		choose(fd, cc);
	}
	if (connect(fd, (void *)&there, sizeof(there)) && errno != EINPROGRESS)
		check(-1, "connect");
	return fd;
}

static void put(int fd, long bytes)
{
	while (bytes > 0) {
		ssize_t n = send(fd, block, bytes < BLOCK ? bytes : BLOCK, 0);

		check(n, "send");
		bytes -= n;
	}
}

static void wait_acked(int fd)
{
	int left = 1;

	while (!ioctl(fd, SIOCOUTQ, &left) && left)
		usleep(1000);
}

static void info(int fd)
{
	struct tcp_info i = { 0 };
	socklen_t length = sizeof(i);
	char cc[16] = "";
	socklen_t name = sizeof(cc);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &length);
	getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, &name);
	printf("INFO cwnd=%u ssthresh=%u retransmitted=%u ce=%u srtt_us=%u pacing_Bps=%llu cc=%s\n",
	       i.tcpi_snd_cwnd, i.tcpi_snd_ssthresh, i.tcpi_total_retrans, i.tcpi_delivered_ce,
	       i.tcpi_rtt, (unsigned long long)i.tcpi_pacing_rate, cc);
	fflush(stdout);
}

static int send_script(int argc, char **argv)
{
	int fd = open_to(argv, 20001, argv[2], 0);

	for (int i = 3; i < argc; i++) {
		long times = 1, bytes = 0, ms = 0;

		if (sscanf(argv[i], "send:%ld", &bytes) == 1) {
			put(fd, bytes);
			wait_acked(fd);
		} else if (sscanf(argv[i], "put:%ld", &bytes) == 1) {
			put(fd, bytes);
		} else if (sscanf(argv[i], "drip:%ld:%ld:%ld", &times, &bytes, &ms) == 3) {
			while (times--) {
				put(fd, bytes);
				usleep(ms * 1000);
			}
		} else if (sscanf(argv[i], "sleep:%ld", &ms) == 1) {
			usleep(ms * 1000);
		} else if (!strncmp(argv[i], "cc:", 3)) {
			choose(fd, argv[i] + 3);
		} else {
			info(fd);
		}
	}
	close(fd);
	return 0;
}

static int many(char **argv)
{
	int count = atoi(argv[3]), switches = atoi(argv[5]), open = count, at = 0;
	static int fds[MOST];
	static long left[MOST];

	for (int i = 0; i < count; i++) {
		fds[i] = open_to(argv, 20001 + i, argv[2], 1);
		left[i] = atol(argv[4]);
	}
	while (open) {
		open = 0;
		for (int i = 0; i < count; i++) {
			int unacked = 0;
			ssize_t n;

			if (left[i]) {
				n = send(fds[i], block, left[i] < BLOCK ? left[i] : BLOCK, 0);
				if (n < 0 && errno != EAGAIN)
					check(n, "send");
				left[i] -= n > 0 ? n : 0;
			}
			ioctl(fds[i], SIOCOUTQ, &unacked);
			open += left[i] || unacked;
		}
		for (int i = 0; i < 5 && switches; i++, switches--, at++)
			choose(fds[at % count], at / count % 2 ? argv[2] : "reno");
		usleep(20000);
	}
	printf("DONE %d, %d switches left\n", count, switches);
	return 0;
}

int main(int argc, char **argv)
{
	struct rlimit files = { 4096, 4096 };

	signal(SIGPIPE, SIG_IGN);
	setrlimit(RLIMIT_NOFILE, &files);
	if (argc > 2 && !strcmp(argv[1], "serve"))
		serve(atoi(argv[2]), argc > 3 ? atoi(argv[3]) : 0);
	if (argc > 4 && !strcmp(argv[1], "send"))
		return send_script(argc - 2, argv + 2);
	if (argc == 8 && !strcmp(argv[1], "many"))
		return many(argv + 2);
	printf("flow: what is that?\n");
	return 2;
}
