// SPDX-License-Identifier: GPL-2.0-only
/*
 * One TCP connection over loopback, both ends in this process: send, receive,
 * compare checksums. The sender uses the congestion control algorithms given,
 * one after the other on the live connection. Prints one line, exit status 0 if
 * all is well. With -g DEVICE it only makes TCP send single packets there.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK		16384
#define MAX_ALGORITHMS	8

struct options {
	int family;
	uint64_t bytes;
	int timeout_s;
	int hold;
	int n_algorithms;
	char *algorithm[MAX_ALGORITHMS];
};

struct end {
	int fd;
	uint64_t bytes;
	uint64_t checksum;
};

static void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	printf("failed: ");
	vprintf(format, arguments);
	printf("\n");
	va_end(arguments);
	exit(1);
}

static void check(int result, const char *what)
{
	if (result < 0)
		fail("%s: %s", what, strerror(errno));
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* FNV-1a: depends on the order of the bytes. */
static void add_to_checksum(struct end *end, const uint8_t *data, size_t n)
{
	for (size_t i = 0; i < n; i++)
		end->checksum = (end->checksum ^ data[i]) * 0x100000001b3ULL;
	end->bytes += n;
}

/* A sequence without repetition, so that no misplaced block goes unnoticed. */
static void fill(uint8_t *data, size_t n)
{
	static uint64_t x = 88172645463325252ULL;

	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (uint8_t)x;
	}
}

static void use_algorithm(int fd, const char *name)
{
	char got[32] = "";
	socklen_t size = sizeof(got);

	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)) < 0)
		fail("TCP_CONGESTION %s: %s", name, strerror(errno));
	check(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, got, &size), "getsockopt");
	if (strcmp(got, name) != 0)
		fail("asked for %s, got %s", name, got);
}

static socklen_t loopback(int family, struct sockaddr_storage *address)
{
	memset(address, 0, sizeof(*address));
	address->ss_family = (sa_family_t)family;
	if (family == AF_INET) {
		((struct sockaddr_in *)address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof(struct sockaddr_in);
	}
	((struct sockaddr_in6 *)address)->sin6_addr = in6addr_loopback;
	return sizeof(struct sockaddr_in6);
}

/* Sender and receiver of one connection, both non-blocking. */
static void connect_ends(const struct options *o, struct end *sender, struct end *receiver)
{
	struct sockaddr_storage address;
	socklen_t size = loopback(o->family, &address);
	int listener = socket(o->family, SOCK_STREAM, 0);

	check(listener, "socket");
	check(bind(listener, (struct sockaddr *)&address, size), "bind");
	check(listen(listener, 1), "listen");
	check(getsockname(listener, (struct sockaddr *)&address, &size), "getsockname");
	sender->fd = socket(o->family, SOCK_STREAM, 0);
	check(sender->fd, "socket");
	use_algorithm(sender->fd, o->algorithm[0]);
	check(connect(sender->fd, (struct sockaddr *)&address, size), "connect");
	receiver->fd = accept(listener, NULL, NULL);
	check(receiver->fd, "accept");
	close(listener);
	check(fcntl(sender->fd, F_SETFL, O_NONBLOCK), "fcntl");
	check(fcntl(receiver->fd, F_SETFL, O_NONBLOCK), "fcntl");
}

static int would_block(ssize_t n, const char *what)
{
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 1;
	check((int)n, what);
	return 0;
}

static void send_some(const struct options *o, struct end *sender)
{
	static uint8_t data[CHUNK];
	static size_t at, end;
	ssize_t n;

	if (at == end) {
		uint64_t left = o->bytes - sender->bytes;

		end = left < CHUNK ? left : CHUNK;
		at = 0;
		fill(data, end);
	}
	n = send(sender->fd, data + at, end - at, MSG_NOSIGNAL);
	if (would_block(n, "send"))
		return;
	add_to_checksum(sender, data + at, (size_t)n);
	at += (size_t)n;
	if (sender->bytes == o->bytes)
		check(shutdown(sender->fd, SHUT_WR), "shutdown");
}

/* False at the end of the stream. */
static int receive_some(struct end *receiver)
{
	static uint8_t data[CHUNK];
	ssize_t n = recv(receiver->fd, data, sizeof(data), 0);

	if (would_block(n, "recv"))
		return 1;
	add_to_checksum(receiver, data, (size_t)n);
	return n != 0;
}

static void transfer(const struct options *o, struct end *sender, struct end *receiver)
{
	uint64_t deadline = now_ms() + (uint64_t)o->timeout_s * 1000;
	int using = 0, receiving = 1;

	while (receiving) {
		struct pollfd wait[] = {
			{ receiver->fd, POLLIN, 0 },
			{ sender->fd, sender->bytes < o->bytes ? POLLOUT : 0, 0 },
		};
		int due = (int)(sender->bytes * (uint64_t)o->n_algorithms / (o->bytes + 1));

		if (due != using) {
			using = due;
			use_algorithm(sender->fd, o->algorithm[using]);
		}
		if (now_ms() > deadline)
			fail("%llu of %llu bytes after %d s", (unsigned long long)receiver->bytes,
			     (unsigned long long)o->bytes, o->timeout_s);
		if (poll(wait, 2, 1000) < 0 && errno != EINTR)
			fail("poll: %s", strerror(errno));
		if (wait[1].revents & POLLOUT)
			send_some(o, sender);
		if (wait[0].revents)
			receiving = receive_some(receiver);
	}
}

static void report(const struct options *o, const struct end *sender,
		   const struct end *receiver, uint64_t elapsed_ms)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);
	char algorithm[32] = "";

	if (sender->bytes != receiver->bytes || sender->checksum != receiver->checksum)
		fail("sent %llu bytes, %016llx; received %llu, %016llx",
		     (unsigned long long)sender->bytes, (unsigned long long)sender->checksum,
		     (unsigned long long)receiver->bytes, (unsigned long long)receiver->checksum);
	check(getsockopt(sender->fd, IPPROTO_TCP, TCP_INFO, &info, &size), "TCP_INFO");
	size = sizeof(algorithm);
	check(getsockopt(sender->fd, IPPROTO_TCP, TCP_CONGESTION, algorithm, &size),
	      "getsockopt");
	printf("ok family=%d algorithm=%s bytes=%llu checksum=%016llx ms=%llu", o->family,
	       algorithm, (unsigned long long)receiver->bytes,
	       (unsigned long long)receiver->checksum, (unsigned long long)elapsed_ms);
	printf(" retransmits=%u ce=%u cwnd=%u ssthresh=%u srtt_us=%u pacing_Bps=%llu\n",
	       info.tcpi_total_retrans, info.tcpi_delivered_ce, info.tcpi_snd_cwnd,
	       info.tcpi_snd_ssthresh, info.tcpi_rtt,
	       (unsigned long long)info.tcpi_pacing_rate);
}

/*
 * Make TCP hand packets to a device one by one, not in bursts that a queue would
 * lose or mark as a whole. ethtool's switches do not: TCP builds bursts anyway.
 */
static void no_bursts(const char *device)
{
	struct {
		struct nlmsghdr header;
		struct ifinfomsg link;
		struct rtattr attribute;
		uint32_t max_segs;
	} request = {
		.header = {
			.nlmsg_len = sizeof(request),
			.nlmsg_type = RTM_NEWLINK,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
		},
		.link.ifi_index = (int)if_nametoindex(device),
		.attribute = { RTA_LENGTH(sizeof(uint32_t)), IFLA_GSO_MAX_SEGS },
		.max_segs = 1,
	};
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
	} answer;
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	check(fd, "netlink");
	check((int)send(fd, &request, sizeof(request), 0), "netlink send");
	check((int)recv(fd, &answer, sizeof(answer), 0), "netlink recv");
	if (answer.header.nlmsg_type != NLMSG_ERROR || answer.error.error)
		fail("%s: netlink: %s", device, strerror(-answer.error.error));
	close(fd);
}

static struct options parse(int argc, char **argv)
{
	struct options o = { .family = AF_INET, .bytes = 4 << 20, .timeout_s = 60 };
	char *list = strdup("ndm_tcp");
	int option;

	while ((option = getopt(argc, argv, "6a:b:g:t:w")) != -1) {
		switch (option) {
		case '6':
			o.family = AF_INET6;
			break;
		case 'a':
			list = optarg;
			break;
		case 'b':
			o.bytes = strtoull(optarg, NULL, 0);
			break;
		case 'g':
			no_bursts(optarg);
			exit(0);
		case 't':
			o.timeout_s = atoi(optarg);
			break;
		case 'w':
			o.hold = 1;
			break;
		default:
			fail("use: tcp_transfer [-6w] [-a NAME,...] [-b BYTES] [-t S] | -g DEVICE");
		}
	}
	for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
		if (o.n_algorithms == MAX_ALGORITHMS)
			fail("more than %d algorithms", MAX_ALGORITHMS);
		o.algorithm[o.n_algorithms++] = name;
	}
	if (!o.n_algorithms || !o.bytes)
		fail("no algorithm, or no bytes");
	return o;
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	struct end sender = { .checksum = 0xcbf29ce484222325ULL };
	struct end receiver = { .checksum = 0xcbf29ce484222325ULL };
	uint64_t start = now_ms();

	connect_ends(&o, &sender, &receiver);
	if (o.hold) {	/* an open connection, until somebody kills this */
		printf("holding\n");
		fflush(stdout);
		pause();
	}
	transfer(&o, &sender, &receiver);
	report(&o, &sender, &receiver, now_ms() - start);
	return 0;
}
