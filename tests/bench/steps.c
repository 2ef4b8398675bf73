// SPDX-License-Identifier: GPL-2.0-only
/*
 * Counts the instructions of a function in a running process, callees included:
 *
 *   steps PID PROGRAM ADDRESS...
 *
 * A hardware breakpoint stops the process at up to four addresses once it runs
 * PROGRAM; from there it is single-stepped until the function has returned. One
 * line per call: which address, how many instructions.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long address[4];
static int count;
static pid_t pid;

static void check(long result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "steps: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void debug(int number, unsigned long value)
{
	size_t at = offsetof(struct user, u_debugreg) + number * sizeof(long);

	check(ptrace(PTRACE_POKEUSER, pid, at, value), "debug register");
}

static void arm(int on)
{
	unsigned long enable = 0;

	debug(7, 0);
	for (int i = 0; on && i < count; i++) {
		debug(i, address[i]);
		enable |= 1ul << (2 * i);
	}
	debug(6, 0);
	debug(7, enable);
}

static struct user_regs_struct registers(void)
{
	struct user_regs_struct r;

	check(ptrace(PTRACE_GETREGS, pid, 0, &r), "registers");
	return r;
}

/* Wait for it to stop; the signal, or -1 when it is gone. */
static int stopped(int *event)
{
	int status;

	if (waitpid(pid, &status, __WALL) < 0 || WIFEXITED(status) || WIFSIGNALED(status))
		return -1;
	*event = status >> 16;
	return WSTOPSIG(status);
}

/* At the first instruction of a function: step until it has returned. */
static int step(int which)
{
	struct user_regs_struct r = registers();
	unsigned long sp = r.rsp;
	unsigned long n = 0;
	int event, got, pass = 0;

	while (r.rsp <= sp) {
		check(ptrace(PTRACE_SINGLESTEP, pid, 0, pass), "step");
		got = stopped(&event);
		if (got < 0)
			return -1;
		pass = got == SIGTRAP ? 0 : got;
		n += !pass;
		r = registers();
	}
	printf("%d %lu\n", which, n);
	return 0;
}

int main(int argc, char **argv)
{
	char link[64], program[4096] = "";
	int event, got, pass = 0;

	if (argc < 4 || argc > 7)
		return 2;
	pid = atoi(argv[1]);
	for (int i = 3; i < argc; i++)
		address[count++] = strtoul(argv[i], NULL, 16);
	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	while (strcmp(program, argv[2])) {
		ssize_t n = readlink(link, program, sizeof(program) - 1);

		check(n, "process");
		program[n] = 0;
	}
	check(ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXEC), "seize");
	check(ptrace(PTRACE_INTERRUPT, pid, 0, 0), "interrupt");
	while ((got = stopped(&event)) >= 0) {
		pass = event || got == SIGTRAP ? 0 : got;
		if (event)
			arm(1);
		if (!event && got == SIGTRAP) {
			unsigned long ip = registers().rip;
			int which = 0;

			while (which < count && address[which] != ip)
				which++;
			if (which < count) {
				arm(0);
				if (step(which))
					break;
				arm(1);
			}
		}
		check(ptrace(PTRACE_CONT, pid, 0, pass), "continue");
	}
	return 0;
}
