// SPDX-License-Identifier: GPL-2.0-only
/*
 * cost OBJECT: register the struct_ops of OBJECT, switch the kernel's statistics of BPF programs
 * on, and until stdin ends print every 200 ms "NAME calls ns" of each program of an ACK.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static const char *const shown[] = { "ndm_bpf_ack", "bbr_ack", "bbr_nothing" };

#define SHOWN	(sizeof(shown) / sizeof(*shown))

/* The newest of that name. */
static int find(const char *name)
{
	unsigned int id = 0;
	int found = -1;

	while (!bpf_prog_get_next_id(id, &id)) {
		struct bpf_prog_info info = {};
		unsigned int bytes = sizeof(info);
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &bytes) &&
		    !strcmp(info.name, name)) {
			close(found);
			found = fd;
		} else {
			close(fd);
		}
	}
	return found;
}

int main(int argc, char **argv)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	struct bpf_object *object = bpf_object__open(argv[argc - 1]);
	struct bpf_link *link;
	struct bpf_map *ops;
	int fd[SHOWN];

	if (argc != 2 || !object || bpf_object__load(object))
		return 1;
	ops = bpf_object__find_map_by_name(object, "bbr_ops");
	link = ops ? bpf_map__attach_struct_ops(ops) : NULL;
	if (!link || bpf_enable_stats(BPF_STATS_RUN_TIME) < 0)
		return 1;
	for (unsigned int i = 0; i < SHOWN; i++) {
		fd[i] = find(shown[i]);
		if (fd[i] < 0) {
			fprintf(stderr, "%s: not loaded\n", shown[i]);
			bpf_link__destroy(link);
			return 1;
		}
	}
	fputs("ready\n", stderr);
	while (!poll(&in, 1, 200)) {
		for (unsigned int i = 0; i < SHOWN; i++) {
			struct bpf_prog_info info = {};
			unsigned int bytes = sizeof(info);

			if (!bpf_obj_get_info_by_fd(fd[i], &info, &bytes))
				printf("%s %llu %llu\n", shown[i],
				       (unsigned long long)info.run_cnt,
				       (unsigned long long)info.run_time_ns);
		}
	}
	return bpf_link__destroy(link);
}
