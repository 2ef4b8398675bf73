// SPDX-License-Identifier: GPL-2.0-only
/*
 * cost: switch the kernel's statistics of BPF programs on, wait for the end of stdin, print
 * "NAME calls ns" of each program of the project.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>

int main(void)
{
	unsigned int id = 0;

	if (bpf_enable_stats(BPF_STATS_RUN_TIME) < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	while (!bpf_prog_get_next_id(id, &id)) {
		struct bpf_prog_info info = {};
		unsigned int bytes = sizeof(info);
		int fd = bpf_prog_get_fd_by_id(id);

		if (fd < 0)
			continue;
		if (!bpf_obj_get_info_by_fd(fd, &info, &bytes) && !strncmp(info.name, "ndm_bpf_", 8))
			printf("%s %llu %llu\n", info.name, (unsigned long long)info.run_cnt,
			       (unsigned long long)info.run_time_ns);
		close(fd);
	}
	return 0;
}
