// SPDX-License-Identifier: GPL-2.0-only
/* Registration, pins, and what is read from them later. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <arpa/inet.h>

#include "kmod/ndm_weights.h"

#include "loader.h"

#define BPFFS		"/sys/fs/bpf"
#define BPFFS_MAGIC	0xcafe4a11
#define STRUCT_OPS	44	/* BPF_STRUCT_OPS, an attach type newer than Debian 12's headers */

/* Of a link: releasing it unregisters. Of the map itself before 6.4: deleting its entry does. */
#define PIN_LINK	PINS "/link"
#define PIN_OPS		PINS "/ops"
#define PIN_SHARED	PINS "/shared"
#define PIN_EVENTS	PINS "/events"
#define PIN_MODELS	PINS "/models"
#define PIN_ACTIVE	PINS "/active"
#define PIN_INFER	PINS "/infer"
#define READER		PINS "/reader"	/* a folder that the reader of the events locks */

static const char *const pins[] = {
	PIN_LINK, PIN_OPS, PIN_SHARED, PIN_EVENTS, PIN_MODELS, PIN_ACTIVE, PIN_INFER,
};

bool is_pinned(void)
{
	return !access(PIN_LINK, F_OK) || !access(PIN_OPS, F_OK);
}

static bool is_bpffs(void)
{
	struct statfs fs;

	return !statfs(BPFFS, &fs) && fs.f_type == BPFFS_MAGIC;
}

/* Zero: none. */
static pid_t parent_of(pid_t pid)
{
	char path[64], text[512] = "";
	const char *end;
	pid_t parent = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "r");
	if (!file)
		return 0;
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	end = strrchr(text, ')');	/* of the name, which may hold anything */
	return end && sscanf(end, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* Do the processes that began this one, a shell perhaps, see other mounts? */
static bool has_own_mounts(void)
{
	struct stat own, other;
	char path[64];
	pid_t pid;

	if (stat("/proc/self/ns/mnt", &own))
		return false;
	for (pid = getppid(); pid > 0; pid = parent_of(pid)) {
		snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
		if (!stat(path, &other) && other.st_ino != own.st_ino)
			return true;
	}
	return false;
}

int require_pins(void)
{
	if (is_bpffs() || !has_own_mounts())
		return 0;
	/* Pins in a file system of its own would end with this process. */
	return fail(BPFFS ": this process has mounts of its own, without the host's BPF file "
		    "system; run it outside, in place of ip netns exec NAME: "
		    "nsenter --net=/run/netns/NAME");
}

static int make_folder(void)
{
	int err = require_pins();
	struct stat folder;

	if (err)
		return err;
	if (!is_bpffs() && mount("bpf", BPFFS, "bpf", 0, "mode=0700"))
		return fail(BPFFS ": no BPF file system; mount -t bpf -o mode=0700 bpf " BPFFS);
	if (mkdir(PINS, 0700) && errno != EEXIST)
		return fail(PINS ": %s", strerror(errno));
	/* Where anyone may write to BPFFS, who owns the folder could unregister and block. */
	if (lstat(PINS, &folder) || !S_ISDIR(folder.st_mode) || folder.st_uid ||
	    folder.st_mode & 022)
		return fail(PINS ": not a folder that only root may change; remove it");
	return 0;
}

/* Zero, or what fail() returned; negative: the folder was removed while this process waited. */
static int lock_folder(void)
{
	int fd = open(PINS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat locked, there;

	if (fd < 0 && errno == ENOENT)
		return -1;
	if (fd < 0 || flock(fd, LOCK_EX) || fstat(fd, &locked))
		return fail(PINS ": %s", strerror(errno));
	if (!stat(PINS, &there) && there.st_ino == locked.st_ino)
		return 0;
	close(fd);
	return -1;
}

int lock_pins(void)
{
	int err;

	do
		err = lock_folder();
	while (err < 0 && !access(PINS, F_OK));
	if (err > 0)
		return err;
	return err < 0 || !is_pinned() ? fail(NAME " is not loaded") : 0;
}

int require_unpinned(void)
{
	return is_pinned() ?
		fail(NAME " is loaded already; unload it first: ndm bpf unload") : 0;
}

/* NULL, or what stays, with errno: somebody else put a folder or a file there. */
static const char *remove_pins(void)
{
	for (size_t i = 0; i < sizeof(pins) / sizeof(*pins); i++)
		if (unlink(pins[i]) && errno != ENOENT)
			return pins[i];
	rmdir(READER);
	return rmdir(PINS) && errno != ENOENT ? PINS : NULL;
}

static bool pin_map(const struct loaded *loaded, const char *name, const char *path)
{
	struct bpf_map *map = bpf_object__find_map_by_name(loaded->object, name);

	unlink(path);
	return map && !bpf_obj_pin(bpf_map__fd(map), path);
}

/* All that later runs of the loader open. */
static bool pin_parts(const struct loaded *loaded)
{
	unlink(PIN_INFER);
	return pin_map(loaded, "ndm_shared", PIN_SHARED) &&
	       pin_map(loaded, "ndm_events", PIN_EVENTS) &&
	       pin_map(loaded, "ndm_models", PIN_MODELS) &&
	       pin_map(loaded, "ndm_active", PIN_ACTIVE) &&
	       !bpf_obj_pin(program_of(loaded, "ndm_check_infer"), PIN_INFER);
}

static int refused(void)
{
	return fail("the kernel does not register " NAME ": %s%s", strerror(errno),
		    errno == EEXIST ? "; another process has registered it without the pins of "
		    PINS ", and it ends with that process" : "");
}

/* Register; the link, or without one the map, is pinned, so that it outlives this process. */
static int register_ops(const struct loaded *loaded)
{
	int map = bpf_map__fd(loaded->ops), fd;
	/* Fills in the programs. It registers, too: without a link, or from libbpf 1.2 on. */
	struct bpf_link *link = bpf_map__attach_struct_ops(loaded->ops);

	if (!link)
		return refused();
	if (!loaded->by_link)
		return bpf_obj_pin(map, PIN_OPS) ? fail(PIN_OPS ": %s", strerror(errno)) : 0;
	fd = bpf_link__fd(link);
	if (fd == map)
		fd = bpf_link_create(map, 0, STRUCT_OPS, NULL);
	if (fd < 0)
		return refused();
	return bpf_obj_pin(fd, PIN_LINK) ? fail(PIN_LINK ": %s", strerror(errno)) : 0;
}

int attach_and_pin(const struct loaded *loaded)
{
	int err = 0;

	do	/* again if an unload has removed it meanwhile */
		err = make_folder() ? 1 : lock_folder();
	while (err < 0);
	if (err || require_unpinned())
		return 1;
	if (!pin_parts(loaded))
		err = fail(PINS ": %s", strerror(errno));
	if (!err)
		err = register_ops(loaded);
	if (err)
		remove_pins();
	return err;
}

int detach(void)
{
	const char *left;
	int map, link;
	u32 zero = 0;

	if (lock_pins())
		return 1;
	map = bpf_obj_get(PIN_OPS);
	link = bpf_obj_get(PIN_LINK);
	/* At once; without this, or on a kernel that cannot, some time after the pin is gone. */
	if (link >= 0 && bpf_link_detach(link) && errno != EOPNOTSUPP)
		return fail(NAME " cannot be unregistered: %s", strerror(errno));
	if (map >= 0 && bpf_map_delete_elem(map, &zero))
		return fail(NAME " cannot be unregistered: %s", strerror(errno));
	left = remove_pins();
	return left ? fail("%s: %s; remove it", left, strerror(errno)) : 0;
}

/* The pinned counters and the map's descriptor; NULL, or why there are none. */
static const char *read_shared(struct ndm_shared *shared, int *fd)
{
	static char text[128];
	struct bpf_map_info info = {};
	u32 size = sizeof(info), zero = 0;
	const char *remedy = NULL;

	*fd = bpf_obj_get(PIN_SHARED);
	if (*fd < 0)
		remedy = "run: ndm bpf load";
	else if (bpf_obj_get_info_by_fd(*fd, &info, &size) || info.value_size != sizeof(*shared))
		return "another version pinned it; run: ndm bpf unload, then load";
	else if (bpf_map_lookup_elem(*fd, &zero, shared))
		remedy = "load it again";
	if (!remedy)
		return NULL;
	snprintf(text, sizeof(text), "%s; %s", strerror(errno), remedy);
	return text;
}

int open_shared(struct ndm_shared *shared)
{
	int fd;
	const char *why = read_shared(shared, &fd);

	return why ? -fail(PIN_SHARED ": %s", why) : fd;
}

long long count_flows(void)
{
	struct ndm_shared shared;
	int fd;

	return read_shared(&shared, &fd) ? -1 : shared.count[NDM_COUNT_FLOWS];
}

int open_slots(struct slots *slots)
{
	slots->models = bpf_obj_get(PIN_MODELS);
	slots->active = bpf_obj_get(PIN_ACTIVE);
	slots->infer = bpf_obj_get(PIN_INFER);
	if (slots->models < 0 || slots->active < 0 || slots->infer < 0)
		return fail(PINS ": another version pinned it; run: ndm bpf unload, then load");
	return 0;
}

int read_active(const struct slots *slots, struct ndm_active *active)
{
	u32 zero = 0;

	if (bpf_map_lookup_elem(slots->active, &zero, active))
		return fail(PIN_ACTIVE ": %s; load it again", strerror(errno));
	return 0;
}

int read_hash(const struct ndm_shared *shared, char hash[NDM_HASH_BYTES])
{
	static struct ndm_weights weights;
	struct ndm_active active;
	struct slots slots;
	u32 entry;

	memcpy(hash, shared->model, NDM_HASH_BYTES);
	if (open_slots(&slots) || read_active(&slots, &active))
		return 1;
	if (!active.slot)
		return 0;
	entry = active.slot - 1;
	if (bpf_map_lookup_elem(slots.models, &entry, &weights))
		return fail(PIN_MODELS ": %s; load it again", strerror(errno));
	snprintf(hash, NDM_HASH_BYTES, "%016llx", (unsigned long long)weights.model);
	return 0;
}

static volatile sig_atomic_t ended;

static void end(int signal)
{
	(void)signal;
	ended = 1;
}

static const char *const modes[] = {
	[NDM_MODE_NETWORK] = "network", [NDM_MODE_BLIND] = "blind",
	[NDM_MODE_SLOW_START] = "slow_start", [NDM_MODE_GOES_ON] = "goes_on",
	[NDM_MODE_RECOVERY] = "recovery", [NDM_MODE_WATCHDOG] = "watchdog",
	[NDM_MODE_DRAIN] = "drain",
};

static void print_address(const char *name, u16 family, const u8 *address, u16 port)
{
	char text[INET6_ADDRSTRLEN] = "?";

	inet_ntop(family, address, text, sizeof(text));
	printf(family == AF_INET6 ? " %s=[%s]:%u" : " %s=%s:%u", name, text, port);
}

/* What a reader that was killed has left is no event of this one's time. */
static bool stale;

/* A line as trace_pipe has it of the module's event. */
static int print_event(void *unused, void *data, size_t bytes)
{
	const struct ndm_event *e = data;
	const struct ndm_round_report *r = &e->report;

	(void)unused;
	if (stale || bytes < sizeof(*e) || r->why >= sizeof(modes) / sizeof(*modes))
		return 0;
	printf("  " NAME "-0 [000] ..... %llu.%06llu: ndm_tcp_round: family=%u",
	       (unsigned long long)(e->t_ns / 1000000000),
	       (unsigned long long)(e->t_ns / 1000 % 1000000), e->family);
	print_address("src", e->family, e->saddr, e->sport);
	print_address("dest", e->family, e->daddr, e->dport);
	printf(" sock_cookie=%llx sport=%u dport=%u valid=%u x=", (unsigned long long)e->cookie,
	       e->sport, e->dport, r->valid);
	for (int i = 0; i < NDM_N_DENSE; i++)
		printf(i ? ",%d" : "%d", r->x[i]);
	printf(" gain=%d congestion=%d phase=%u state=%u cwnd=%u target=%u ssthresh=%u why=%s\n",
	       r->out[NDM_OUT_CWND_GAIN], r->out[NDM_OUT_CONGESTION], r->phase, r->state, r->cwnd,
	       r->target, r->ssthresh, modes[r->why]);
	return 0;
}

/* The events have one reader: it holds a lock until it ends, however it does. */
static int become_reader(int fd, struct ring_buffer *ring, struct ndm_shared **entry)
{
	struct ndm_shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
					 MAP_SHARED, fd, 0);
	int lock;

	if (shared == MAP_FAILED)
		return fail(PIN_SHARED ": %s; run: ndm bpf unload, then load", strerror(errno));
	mkdir(READER, 0700);
	lock = open(READER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (lock < 0)
		return fail(READER ": %s", strerror(errno));
	if (flock(lock, LOCK_EX | LOCK_NB))
		return fail("process %u reads the events; end it first", shared->reader);
	stale = true;
	ring_buffer__consume(ring);
	stale = false;
	shared->reader = (u32)getpid();
	*entry = shared;
	return 0;
}

int print_events(void)
{
	struct sigaction action = { .sa_handler = end };
	struct ndm_shared before, *shared = NULL;
	struct ring_buffer *ring;
	int fd, events, err = 0, output = 0;

	if (require_pins())
		return 1;
	fd = open_shared(&before);
	if (fd < 0)
		return -fd;
	events = bpf_obj_get(PIN_EVENTS);
	ring = events < 0 ? NULL : ring_buffer__new(events, print_event, NULL, NULL);
	if (!ring)
		return fail(PIN_EVENTS ": %s", strerror(errno));
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGPIPE, &action, NULL);
	err = become_reader(fd, ring, &shared);
	if (err)
		return err;
	while (!ended && err >= 0 && !output) {
		err = ring_buffer__poll(ring, 200);
		output = fflush(stdout) ? errno : 0;
		err = err == -EINTR ? 0 : err;
	}
	shared->reader = 0;
	ring_buffer__consume(ring);
	ring_buffer__free(ring);
	if (!output && fflush(stdout))
		output = errno;
	if (output && output != EPIPE)
		return fail("the events cannot be written: %s", strerror(output));
	return err < 0 ? fail("the events cannot be read: %s", strerror(-err)) : 0;
}
