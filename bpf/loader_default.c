// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which network namespaces have the algorithm for their default? An unregistered one stays that:
 * a namespace keeps a reference, and one that is made while the host has it inherits it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader.h"

#define NETNS		"/run/netns"
#define MOST		4096	/* namespaces; those beyond are not looked at */

static ino_t seen[MOST];
static int n_seen;

/* In the network namespace of this process. */
static bool is_default(void)
{
	FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "r");
	char name[32] = "";
	bool ours;

	if (!file)
		return false;
	ours = fscanf(file, "%31s", name) == 1 && !strcmp(name, NAME);
	fclose(file);
	return ours;
}

/* Look into the namespace of a file, once; leaves this process in it. */
static void look(const char *path, struct defaults *found)
{
	struct stat file;
	int fd, i;

	if (stat(path, &file) || n_seen == MOST)
		return;
	for (i = 0; i < n_seen; i++)
		if (seen[i] == file.st_ino)
			return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	if (!setns(fd, CLONE_NEWNET)) {
		seen[n_seen++] = file.st_ino;
		if (is_default() && !found->count++)
			snprintf(found->example, sizeof(found->example), "%s", path);
	}
	close(fd);
}

/* format: of a path, by the name of an entry. */
static void look_into(const char *folder, const char *format, struct defaults *found)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	char path[300];

	while (entries && (entry = readdir(entries))) {
		snprintf(path, sizeof(path), format, entry->d_name);
		look(path, found);
	}
	if (entries)
		closedir(entries);
}

void find_defaults(struct defaults *found)
{
	int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	*found = (struct defaults){};
	look("/proc/self/ns/net", found);
	look_into(NETNS, NETNS "/%s", found);
	look_into("/proc", "/proc/%.20s/ns/net", found);
	if (own >= 0) {
		setns(own, CLONE_NEWNET);
		close(own);
	}
}
