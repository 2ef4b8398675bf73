// SPDX-License-Identifier: GPL-2.0-only
/*
 * Preloaded into iperf3 inside the guest, where a system call costs 20 us of the
 * host's time and a busy loop advances virtual time by 256 ns in each turn.
 *
 * While iperf3's client waits for its server to start the test, select() says at
 * once that the data socket is writable, over and over for a round trip. A select()
 * with no write() since the last one therefore waits a millisecond first.
 *
 * With NDM_COALESCE_US set, for the server, every select() first waits so long:
 * what arrived meanwhile is read at once. And the read() that iperf3 tries after
 * one that got less than a whole block fails here, without asking the kernel. The
 * kernel acknowledges packets all the same.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define BLOCK	32768	/* only the data socket is asked for so much */

static int written;

ssize_t write(int fd, const void *data, size_t length)
{
	static ssize_t (*real)(int, const void *, size_t);

	if (!real)
		real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	written = 1;
	return real(fd, data, length);
}

ssize_t read(int fd, void *data, size_t length)
{
	static ssize_t (*real)(int, void *, size_t);
	static int emptied = -1;
	static size_t rest;
	ssize_t got;

	if (!real)
		real = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	if (fd == emptied && length == rest) {
		emptied = -1;
		errno = EAGAIN;
		return -1;
	}
	got = real(fd, data, length);
	emptied = length >= BLOCK && got > 0 && (size_t)got < length ? fd : -1;
	rest = length - got;
	return got;
}

int select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	static int (*real)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
	static struct timespec pause = { .tv_nsec = 1000000 };
	static const char *coalesce;

	if (!real) {
		real = (int (*)(int, fd_set *, fd_set *, fd_set *, struct timeval *))
			dlsym(RTLD_NEXT, "select");
		coalesce = getenv("NDM_COALESCE_US");
		if (coalesce)
			pause.tv_nsec = atol(coalesce) * 1000;
	}
	if (coalesce || !written)
		nanosleep(&pause, NULL);
	written = 0;
	return real(n, in, out, except, timeout);
}
