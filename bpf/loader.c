// SPDX-License-Identifier: GPL-2.0-only
/*
 * ndm_bpf: load, watch and remove the BPF form of NDM-TCP.
 *
 *   ndm_bpf load [OBJECT] [--verbose]	self-test in the kernel, register, pin
 *   ndm_bpf check [OBJECT]		the self-test alone
 *   ndm_bpf status			counters as key=value; exit code 1 if not loaded
 *   ndm_bpf events			a line per round, until interrupted
 *   ndm_bpf unload
 *   ndm_bpf swap BLOB			another network, checked in the kernel; under traffic
 *   ndm_bpf swap --built-in		the compiled network again
 *   ndm_bpf replay [OBJECT] [--blob BLOB] <IN >OUT
 *					records of ndm_bpf_replay.h through the programs
 *
 * OBJECT: ndm_tcp.bpf.o beside this program.
 */
#include <errno.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader.h"
#include "ndm_bpf_record.h"

int fail(const char *format, ...)
{
	va_list words;

	va_start(words, format);
	fputs("ndm_bpf: ", stderr);
	vfprintf(stderr, format, words);
	fputc('\n', stderr);
	va_end(words);
	return 1;
}

static struct slots slots_of(const struct loaded *loaded)
{
	return (struct slots){
		.models = bpf_object__find_map_fd_by_name(loaded->object, "ndm_models"),
		.active = bpf_object__find_map_fd_by_name(loaded->object, "ndm_active"),
		.infer = program_of(loaded, "ndm_check_infer"),
	};
}

static int load(const char *object)
{
	struct loaded loaded;
	struct slots slots;
	int err;

	if (!geteuid() && require_unpinned())
		return 1;
	err = load_object(object, false, &loaded);
	if (!err)
		err = check_loaded(&loaded);
	if (err)
		return err;
	slots = slots_of(&loaded);
	if (set_active(&slots, 0, true))
		return fail("%s: %s; build it again: make -C bpf", object, strerror(errno));
	return attach_and_pin(&loaded);
}

static int check(const char *object)
{
	struct loaded loaded;
	int err = load_object(object, false, &loaded);

	return err ? err : check_loaded(&loaded);
}

static int status(void)
{
	struct ndm_shared shared;
	char hash[NDM_HASH_BYTES];

	if (geteuid())
		return fail("not root: only root may read BPF maps; run it with sudo");
	if (require_pins())
		return 2;
	if (!is_pinned()) {
		puts("loaded=0");
		return 1;
	}
	if (open_shared(&shared) < 0 || read_hash(&shared, hash))
		return 2;
	printf("loaded=1\npin=" PINS "\nmodel_hash=%.16s\nbuilt_in=%.16s\ncontract_hash=%.16s\n",
	       hash, shared.model, shared.contract);
	printf("flows=%lld\nrounds=%lld\nfallbacks=%lld\nguarded=%lld\n",
	       (long long)shared.count[NDM_COUNT_FLOWS], (long long)shared.count[NDM_COUNT_ROUNDS],
	       (long long)shared.count[NDM_COUNT_FALLBACKS],
	       (long long)shared.count[NDM_COUNT_GUARDED]);
	printf("events_lost=%llu\nno_memory=%lld\n", (unsigned long long)shared.events_lost,
	       (long long)shared.count[NDM_COUNT_NO_MEMORY]);
	return 0;
}

static int unload(void)
{
	struct defaults defaults;
	long long flows;

	if (geteuid())
		return fail("not root: only root may unload BPF; run it with sudo");
	if (require_pins())
		return 1;
	if (!is_pinned())
		return fail(NAME " is not loaded");
	/* Their new connections would go on with an algorithm that nothing shows. */
	find_defaults(&defaults);
	if (defaults.count)
		return fail(NAME " is the default of %d network namespace%s; run first: nsenter "
			    "--net=%s sysctl -w net.ipv4.tcp_congestion_control=reno",
			    defaults.count, defaults.count > 1 ? "s" : "", defaults.example);
	flows = count_flows();
	if (detach())
		return 1;
	if (flows >= 0)
		printf("flows=%lld\n", flows);
	return 0;
}

/* The records run with the network of a blob, not with the compiled one. */
static int replay_with(const struct loaded *loaded, const char *path)
{
	struct slots slots = slots_of(loaded);

	if (read_blob(path))
		return 1;
	if (put_slot(&slots, 1) || set_active(&slots, 1, true))
		return fail("%s cannot be written to a slot: %s", path, strerror(errno));
	return 0;
}

static int replay(const char *object, const char *blob)
{
	struct ndm_replay_record record;
	struct loaded loaded;
	int err = load_object(object, true, &loaded), fd;
	unsigned long n = 0;

	if (!err && blob)
		err = replay_with(&loaded, blob);
	if (err)
		return err;
	fd = program_of(&loaded, "ndm_replay");
	for (; fread(&record, sizeof(record), 1, stdin) == 1; n++) {
		err = run_program(fd, &record, sizeof(record));
		if (err)
			return fail("record %lu does not run: %s", n, strerror(-err));
		fwrite(&record, sizeof(record), 1, stdout);
	}
	return fflush(stdout) ? fail("stdout: %s", strerror(errno)) : 0;
}

/* The object beside this program. */
static const char *own_object(void)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

	path[n > 0 ? n : 0] = '\0';
	dirname(path);
	return strcat(path, "/ndm_tcp.bpf.o");
}

int main(int argc, char **argv)
{
	const char *verb = argc > 1 ? argv[1] : "", *object = NULL, *blob = NULL;
	bool built_in = false;

	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--verbose"))
			verbose = true;
		else if (!strcmp(argv[i], "--built-in"))
			built_in = true;
		else if (!strcmp(argv[i], "--blob") && i + 1 < argc)
			blob = argv[++i];
		else
			object = argv[i];
	}
	if (!strcmp(verb, "swap") && built_in == !object)
		return swap_model(object);
	if (!object)
		object = own_object();
	if (!strcmp(verb, "load"))
		return load(object);
	if (!strcmp(verb, "check"))
		return check(object);
	if (!strcmp(verb, "status"))
		return status();
	if (!strcmp(verb, "events"))
		return geteuid() ?
			fail("not root: only root may read events; run it with sudo") : print_events();
	if (!strcmp(verb, "unload"))
		return unload();
	if (!strcmp(verb, "replay"))
		return replay(object, blob);
	return fail("use: ndm_bpf load|check|status|events|unload|replay [OBJECT] [--verbose], or: "
		    "ndm_bpf swap BLOB|--built-in");
}
