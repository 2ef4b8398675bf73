// SPDX-License-Identifier: GPL-2.0-only
/*
 * Preloaded into iperf3 inside the guest, where a system call costs 10 us of the
 * host's time and a busy loop advances virtual time by 256 ns in each turn.
 *
 * While iperf3's client waits for its server to start the test, select() says at
 * once that the data socket is writable, over and over for a round trip. A select()
 * with no write() since the last one therefore waits a millisecond first. With
 * NDM_COALESCE set, for the server, every select() does: what arrived meanwhile
 * is read at once. The kernel acknowledges packets all the same.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static int written;

ssize_t write(int fd, const void *data, size_t length)
{
	static ssize_t (*real)(int, const void *, size_t);

	if (!real)
		real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	written = 1;
	return real(fd, data, length);
}

int select(int n, fd_set *in, fd_set *out, fd_set *except, struct timeval *timeout)
{
	static int (*real)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
	const struct timespec while_ = { .tv_nsec = 1000000 };
	static int coalesce;

	if (!real) {
		real = (int (*)(int, fd_set *, fd_set *, fd_set *, struct timeval *))
			dlsym(RTLD_NEXT, "select");
		coalesce = !!getenv("NDM_COALESCE");
	}
	if (coalesce || !written)
		nanosleep(&while_, NULL);
	written = 0;
	return real(n, in, out, except, timeout);
}
