/* SPDX-License-Identifier: GPL-2.0-only */
/* ndm_bpf, the loader: what its files share. */
#ifndef _NDM_LOADER_H
#define _NDM_LOADER_H

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "ndm_bpf.h"

#define NAME	"ndm_tcp_bpf"
#define PINS	"/sys/fs/bpf/" NAME

/* One line on stderr; returns 1, the exit code. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* loader_object.c: an object in the kernel, not yet registered. */
struct loaded {
	struct bpf_object *object;
	struct bpf_map *ops;	/* the callbacks */
	bool by_link;		/* the kernel registers by a link */
};

/* Messages of libbpf and of the verifier to stderr. */
extern bool verbose;

/* Zero, or what fail() returned. replays: for records without a socket, nothing else. */
int load_object(const char *path, bool replays, struct loaded *loaded);

/* The descriptor of a program; negative if the object has none of that name. */
int program_of(const struct loaded *loaded, const char *name);

/* Run a program on its context, which it may change; zero or a negative errno. */
int run_program(int fd, void *context, size_t bytes);

/* loader_check.c: the golden vectors in the loaded programs; zero, or what fail() returned. */
int check_loaded(const struct loaded *loaded);

/* loader_pins.c: what outlives the loader, in /sys/fs/bpf/ndm_tcp_bpf. */
bool is_pinned(void);
/* Zero, or what fail() returned: the host's pins cannot be seen from here. */
int require_pins(void);
int require_unpinned(void);	/* likewise: it is loaded already */
/* Likewise: it is not loaded. From here on one process at a time, until this one ends. */
int lock_pins(void);
int attach_and_pin(const struct loaded *loaded);
int detach(void);
int open_shared(struct ndm_shared *shared);	/* the map's descriptor; negative: fail()'s */
long long count_flows(void);	/* connections that use it; negative: another version pinned it */
int print_events(void);

/* Descriptors by which networks are swapped. */
struct slots {
	int models;
	int active;
	int infer;	/* the program that computes a golden vector */
};

int open_slots(struct slots *slots);	/* zero, or what fail() returned */
int read_active(const struct slots *slots, struct ndm_active *active);	/* likewise */
/* Hash of the network that runs: of the compiled one unless another was swapped in. */
int read_hash(const struct ndm_shared *shared, char hash[NDM_HASH_BYTES]);

/* loader_default.c: the network namespaces whose default is the algorithm. */
struct defaults {
	int count;
	char example[300];	/* a file of one of them, for nsenter --net= */
};

void find_defaults(struct defaults *found);

/* loader_swap.c: another network for the loaded programs; NULL: the compiled one again. */
int swap_model(const char *path);
int read_blob(const char *path);	/* checked, and kept for put_slot() */
int put_slot(const struct slots *slots, u32 slot);
int set_active(const struct slots *slots, u32 slot, bool settled);

#endif /* _NDM_LOADER_H */
