// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the lab's guest needs beside the programs of the host:
 *
 *   guest, as the first process    make the folder "root" on the host the root, and run init.sh
 *   guest off                      power off
 *   guest hostfs PATH DIRECTORY    mount a directory of the host
 *   guest in NAMESPACE PROGRAM...  run a program in a network namespace
 *   guest clock                    print CLOCK_REALTIME and CLOCK_MONOTONIC, ns
 *   guest at FILE                  print lines, each when as many seconds have passed as
 *                                  its first word says; without that word
 *   guest poll PERIOD_US SOCKETS NS,NS,... QUEUES NS,NS,...
 *                                  until SIGTERM, write the state of the flows and
 *                                  of the queueing disciplines to two files; "-"
 *                                  is the present namespace
 *   guest serve PORT CC            answer each request of 8 bytes, a number in
 *                                  network order, with so many bytes
 *   guest fetch ADDRESS PORT OBJECTS BYTES CONNECTIONS
 *                                  fetch objects of BYTES together, one after the
 *                                  other on each connection; print when each came
 *
 * A flow is a TCP socket whose own port is in [FIRST_PORT, LAST_PORT].
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/gen_stats.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FIRST_PORT	20001
#define LAST_PORT	20999
#define NAMESPACES	64
#define TCP_STATES	(0xfff & ~(1 << 3 | 1 << 6 | 1 << 10)) /* no SYN_RECV, TIME_WAIT, LISTEN */
#define TCP_CONGESTION	13

/* Little endian, as the host reads them. */
struct socket_record {
	uint64_t t_ns;		/* CLOCK_REALTIME */
	uint16_t sport, dport;
	uint16_t state;
	uint16_t length;	/* of the struct tcp_info that follows */
} __attribute__((packed));

struct queue_record {
	uint64_t t_ns;
	char device[16], kind[16];
	uint32_t handle, qlen, backlog, drops, overlimits, requeues, packets;
	uint64_t bytes;
} __attribute__((packed));

static volatile sig_atomic_t stopped;

static void stop(int number)
{
	(void)number;
	stopped = 1;
}

static void die(const char *what)
{
	fprintf(stderr, "guest: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *checked(void *memory)
{
	if (!memory)
		die("memory");
	return memory;
}

static uint64_t now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void enter(const char *namespace)
{
	char path[256];
	int fd;

	if (!strcmp(namespace, "-"))
		return;
	snprintf(path, sizeof(path), "/run/netns/%s", namespace);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die(namespace);
	close(fd);
}

static void sleep_until(uint64_t due_ns)
{
	struct timespec due = { .tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

static int print_at(const char *path)
{
	uint64_t start_ns = now_ns(CLOCK_MONOTONIC);
	FILE *file = fopen(path, "r");
	char line[512], *rest;

	if (!file)
		die(path);
	while (fgets(line, sizeof(line), file)) {
		double seconds = strtod(line, &rest);

		if (rest == line)
			continue;
		sleep_until(start_ns + (uint64_t)(seconds * 1e9));
		fputs(rest + (*rest == ' '), stdout);
		fflush(stdout);
	}
	return 0;
}

/* --- poll ------------------------------------------------------------------ */

struct place {
	int fd;			/* netlink socket in the namespace */
	struct if_nameindex *devices;
};

static int places(char *list, int protocol, struct place *place)
{
	struct timeval patience = { .tv_sec = 1 };
	int n = 0;

	for (char *name = strtok(list, ","); name && n < NAMESPACES; name = strtok(NULL, ",")) {
		enter(name);
		place[n].fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
		place[n].devices = if_nameindex();
		if (place[n].fd < 0 || !place[n].devices)
			die(name);
		setsockopt(place[n].fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		n++;
	}
	return n;
}

/* One dump: send the request, hand every answer to a function. */
static void dump(const struct place *place, struct nlmsghdr *request,
		 void (*each)(const struct place *, const struct nlmsghdr *, FILE *), FILE *file)
{
	static char buffer[1 << 16] __attribute__((aligned(8)));

	request->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	if (send(place->fd, request, request->nlmsg_len, 0) < 0)
		die("netlink");
	for (;;) {
		ssize_t got = recv(place->fd, buffer, sizeof(buffer), 0);
		int length = got;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			die("netlink");
		for (struct nlmsghdr *h = (void *)buffer; NLMSG_OK(h, length);
		     h = NLMSG_NEXT(h, length)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return;
			if (h->nlmsg_type == NLMSG_ERROR) {
				errno = -((struct nlmsgerr *)NLMSG_DATA(h))->error;
				die("netlink");
			}
			each(place, h, file);
		}
	}
}

static uint64_t stamp_ns;

static void each_socket(const struct place *place, const struct nlmsghdr *h, FILE *file)
{
	struct inet_diag_msg *m = NLMSG_DATA(h);
	int length = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
	uint16_t sport = ntohs(m->id.idiag_sport);
	struct socket_record record = {
		.t_ns = stamp_ns, .sport = sport, .dport = ntohs(m->id.idiag_dport),
		.state = m->idiag_state,
	};

	(void)place;
	if (sport < FIRST_PORT || sport > LAST_PORT)
		return;
	for (struct rtattr *a = (void *)(m + 1); RTA_OK(a, length); a = RTA_NEXT(a, length)) {
		if (a->rta_type != INET_DIAG_INFO)
			continue;
		record.length = RTA_PAYLOAD(a);
		fwrite(&record, sizeof(record), 1, file);
		fwrite(RTA_DATA(a), record.length, 1, file);
	}
}

static void queue_counters(struct rtattr *stats, struct queue_record *record)
{
	int length = RTA_PAYLOAD(stats);

	for (struct rtattr *a = RTA_DATA(stats); RTA_OK(a, length); a = RTA_NEXT(a, length)) {
		if (a->rta_type == TCA_STATS_BASIC) {
			struct gnet_stats_basic basic = { 0 };

			memcpy(&basic, RTA_DATA(a), sizeof(uint64_t) + sizeof(uint32_t));
			record->bytes = basic.bytes;
			record->packets = basic.packets;
		} else if (a->rta_type == TCA_STATS_QUEUE) {
			struct gnet_stats_queue *queue = RTA_DATA(a);

			record->qlen = queue->qlen;
			record->backlog = queue->backlog;
			record->drops = queue->drops;
			record->requeues = queue->requeues;
			record->overlimits = queue->overlimits;
		}
	}
}

static void each_queue(const struct place *place, const struct nlmsghdr *h, FILE *file)
{
	struct tcmsg *m = NLMSG_DATA(h);
	int length = h->nlmsg_len - NLMSG_LENGTH(sizeof(*m));
	struct queue_record record = { .t_ns = stamp_ns, .handle = m->tcm_handle };

	for (struct rtattr *a = (void *)(m + 1); RTA_OK(a, length); a = RTA_NEXT(a, length)) {
		if (a->rta_type == TCA_KIND)
			snprintf(record.kind, sizeof(record.kind), "%s", (char *)RTA_DATA(a));
		else if (a->rta_type == TCA_STATS2)
			queue_counters(a, &record);
	}
	if (!strcmp(record.kind, "noqueue"))
		return;
	for (struct if_nameindex *d = place->devices; d->if_index; d++)
		if (d->if_index == (unsigned int)m->tcm_ifindex)
			snprintf(record.device, sizeof(record.device), "%s", d->if_name);
	fwrite(&record, sizeof(record), 1, file);
}

static int poll_state(char **argv)
{
	uint64_t period_ns = strtoull(argv[0], NULL, 10) * 1000, due_ns;
	static struct place senders[NAMESPACES], routers[NAMESPACES];
	int n_senders = places(argv[2], NETLINK_SOCK_DIAG, senders);
	int n_routers = places(argv[4], NETLINK_ROUTE, routers);
	FILE *sockets = checked(fopen(argv[1], "w")), *queues = checked(fopen(argv[3], "w"));
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 body;
	} ask_sockets = {
		{ .nlmsg_len = sizeof(ask_sockets), .nlmsg_type = SOCK_DIAG_BY_FAMILY },
		{ .sdiag_family = AF_INET, .sdiag_protocol = IPPROTO_TCP,
		  .idiag_ext = 1 << (INET_DIAG_INFO - 1), .idiag_states = TCP_STATES },
	};
	struct {
		struct nlmsghdr h;
		struct tcmsg body;
	} ask_queues = {
		{ .nlmsg_len = sizeof(ask_queues), .nlmsg_type = RTM_GETQDISC },
		{ .tcm_family = AF_UNSPEC },
	};

	setvbuf(sockets, NULL, _IOFBF, 1 << 20);
	setvbuf(queues, NULL, _IOFBF, 1 << 20);
	signal(SIGTERM, stop);
	due_ns = now_ns(CLOCK_MONOTONIC);
	while (!stopped) {
		stamp_ns = now_ns(CLOCK_REALTIME);
		for (int i = 0; i < n_senders; i++)
			dump(&senders[i], &ask_sockets.h, each_socket, sockets);
		for (int i = 0; i < n_routers; i++)
			dump(&routers[i], &ask_queues.h, each_queue, queues);
		due_ns += period_ns;
		sleep_until(due_ns);
	}
	if (fclose(sockets) || fclose(queues))
		die("write");
	return 0;
}

/* --- a page of small objects ----------------------------------------------- */

static int transfer_all(int fd, void *data, size_t length, int receive)
{
	for (char *at = data; length;) {
		ssize_t n = receive ? recv(fd, at, length, MSG_WAITALL) :
				      send(fd, at, length, MSG_NOSIGNAL);

		if (n <= 0)
			return 0;
		at += n;
		length -= n;
	}
	return 1;
}

static int serve(char **argv)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[0])) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
	static char block[1 << 17];

	signal(SIGCHLD, SIG_IGN);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, argv[1], strlen(argv[1])))
		die(argv[1]);
	if (bind(fd, (void *)&any, sizeof(any)) || listen(fd, 1024))
		die("listen");
	for (;;) {
		int client = accept(fd, NULL, NULL);
		uint64_t left;

		if (client < 0)
			die("accept");
		if (fork()) {
			close(client);
			continue;
		}
		close(fd);
		while (transfer_all(client, &left, sizeof(left), 1)) {
			left = be64toh(left);
			while (left) {
				size_t n = left < sizeof(block) ? left : sizeof(block);

				if (!transfer_all(client, block, n, 0))
					exit(1);
				left -= n;
			}
		}
		exit(0);
	}
}

static int fetch_some(struct sockaddr_in *server, int first, int step, int objects, uint64_t bytes)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (void *)server, sizeof(*server)))
		die("connect");
	for (int i = first; i < objects; i += step) {
		uint64_t size = bytes / objects + ((uint64_t)i < bytes % objects), left = size;
		uint64_t start_ns = now_ns(CLOCK_REALTIME), request = htobe64(size);

		if (!transfer_all(fd, &request, sizeof(request), 0))
			die("request");
		while (left) {
			/* MSG_TRUNC: the bytes are counted and thrown away. */
			ssize_t n = recv(fd, NULL, left, MSG_TRUNC | MSG_WAITALL);

			if (n <= 0)
				die("answer");
			left -= n;
		}
		printf("%d %llu %llu %llu\n", i, (unsigned long long)size,
		       (unsigned long long)start_ns,
		       (unsigned long long)now_ns(CLOCK_REALTIME));
		fflush(stdout);
	}
	return 0;
}

static int fetch(char **argv)
{
	struct sockaddr_in server = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
	int objects = atoi(argv[2]), connections = atoi(argv[4]), failed = 0, status;

	inet_pton(AF_INET, argv[0], &server.sin_addr);
	for (int i = 0; i < connections; i++)
		if (!fork())
			exit(fetch_some(&server, i, connections, objects,
					strtoull(argv[3], NULL, 10)));
	while (wait(&status) > 0)
		failed |= status;
	return failed != 0;
}

/* --------------------------------------------------------------------------- */

static void mounted(const char *what, const char *type, const char *at, unsigned long flags,
		    const char *options)
{
	if (mount(what, at, type, flags, options))
		die(at);
}

/*
 * The kernel's root is the host's, of which this uses nothing: it would run differently
 * on another host. The kernel's working directory on the host is reached through its /proc.
 */
static int start(void)
{
	static char *const words[] = { "sh", "/init.sh", NULL };
	static char *const environment[] = {
		"PATH=/usr/bin", "HOME=/", "LC_ALL=C", "TZ=UTC", "TMPDIR=/run", NULL
	};
	char here[4000], root[4096];
	ssize_t length = readlink("/proc/self/cwd", here, sizeof(here) - 1);

	if (length < 0)
		die("/proc/self/cwd");
	here[length] = 0;
	snprintf(root, sizeof(root), "%s/root", here);
	mounted("root", "hostfs", "/proc", MS_RDONLY, root);
	if (chdir("/proc") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die(root);
	mounted("run", "tmpfs", "/run", 0, "size=100%");
	if (mkdir("/run/host", 0755) || mkdir("/run/out", 0755))
		die("/run");
	mounted("host", "hostfs", "/run/host", 0, here);
	execve("/bin/sh", words, environment);
	die("/bin/sh");
	return 1;
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "";

	if (getpid() == 1)
		return start();
	if (!strcmp(verb, "off"))
		return reboot(RB_POWER_OFF);
	if (!strcmp(verb, "hostfs") && argc == 4) {
		if (mount("none", argv[3], "hostfs", 0, argv[2]))
			die(argv[2]);
		return 0;
	}
	if (!strcmp(verb, "in") && argc > 3) {
		enter(argv[2]);
		execvp(argv[3], argv + 3);
		die(argv[3]);
	}
	if (!strcmp(verb, "clock")) {
		unsigned long long real = now_ns(CLOCK_REALTIME);

		return printf("%llu %llu\n", real, (unsigned long long)now_ns(CLOCK_MONOTONIC)) < 0;
	}
	if (!strcmp(verb, "at") && argc == 3)
		return print_at(argv[2]);
	if (!strcmp(verb, "poll") && argc == 7)
		return poll_state(argv + 2);
	if (!strcmp(verb, "serve") && argc == 4)
		return serve(argv + 2);
	if (!strcmp(verb, "fetch") && argc == 7)
		return fetch(argv + 2);
	fprintf(stderr, "guest: what is %s?\n", verb);
	return 2;
}
