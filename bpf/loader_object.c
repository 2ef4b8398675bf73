// SPDX-License-Identifier: GPL-2.0-only
/* From the file to programs in the kernel. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "loader.h"

#define NDM_F_LINK	(1U << 13)	/* BPF_F_LINK, newer than Debian 12's headers */

bool verbose;

/* The newest complaint of libbpf, which is not printed unless nothing else explains. */
static char complaint[256];

static int keep_complaint(enum libbpf_print_level level, const char *format, va_list words)
{
	if (verbose)
		return vfprintf(stderr, format, words);
	if (level == LIBBPF_WARN && !complaint[0])
		vsnprintf(complaint, sizeof(complaint), format, words);
	complaint[strcspn(complaint, "\n")] = '\0';
	return 0;
}

static const char *release(void)
{
	static struct utsname name;

	uname(&name);
	return name.release;
}

/* Parameters of a callback in the kernel's struct tcp_congestion_ops; negative: none. */
static int callback_parameters(const struct btf *btf, const char *wanted)
{
	s32 id = btf__find_by_name_kind(btf, "tcp_congestion_ops", BTF_KIND_STRUCT);
	const struct btf_type *ops = id > 0 ? btf__type_by_id(btf, id) : NULL;
	const struct btf_type *type;
	int i;

	for (i = 0; ops && i < btf_vlen(ops); i++) {
		const struct btf_member *member = &btf_members(ops)[i];

		if (strcmp(btf__name_by_offset(btf, member->name_off), wanted))
			continue;
		type = btf__type_by_id(btf, member->type);
		type = btf_is_ptr(type) ? btf__type_by_id(btf, type->type) : NULL;
		return type && btf_is_func_proto(type) ? btf_vlen(type) : -1;
	}
	return -1;
}

/* The object's callbacks in the forms that kernels call. */
static const struct form {
	const char *ops, *ack, *idle;
} forms[] = {
	{ "ndm_ops_old", "ndm_bpf_ack_old", "ndm_bpf_event" },
	{ "ndm_ops", "ndm_bpf_ack", "ndm_bpf_event" },		/* from 6.10 on */
	{ "ndm_ops_new", "ndm_bpf_ack", "ndm_bpf_tx_start" },	/* from 7.1 on */
};

#define FORMS	(sizeof(forms) / sizeof(*forms))

struct kernel {
	const struct form *form;
	bool has_tx_start;	/* cwnd_event_tx_start() */
	bool has_link;		/* registers by a link: from 6.4 on */
};

/* Can this kernel run it? */
static int probe_kernel(struct kernel *kernel)
{
	struct btf *btf = btf__load_vmlinux_btf();
	int parameters;
	bool has_ops;

	if (!btf)
		return fail("kernel %s has no BTF (/sys/kernel/btf/vmlinux); it needs "
			    "CONFIG_DEBUG_INFO_BTF=y, or use the module: make -C kmod", release());
	has_ops = btf__find_by_name_kind(btf, "bpf_struct_ops_tcp_congestion_ops",
					 BTF_KIND_STRUCT) > 0;
	parameters = callback_parameters(btf, "cong_control");
	kernel->has_link = btf__find_by_name_kind(btf, "bpf_struct_ops_link", BTF_KIND_STRUCT) > 0;
	kernel->has_tx_start = callback_parameters(btf, "cwnd_event_tx_start") >= 0;
	btf__free(btf);
	if (!has_ops || parameters < 0)
		return fail("kernel %s has no BPF struct_ops for TCP; it needs CONFIG_BPF_JIT=y, or "
			    "use the module: make -C kmod", release());
	kernel->form = &forms[kernel->has_tx_start ? 2 : parameters >= 4];
	return 0;
}

/*
 * libbpf refuses a member that the kernel's struct does not have, though no program is for it.
 * With the name of another member it is one that the kernel has, and left out.
 */
static int hide_tx_start(const struct bpf_object *object)
{
	const struct btf *btf = bpf_object__btf(object);
	s32 id = btf__find_by_name_kind(btf, "tcp_congestion_ops", BTF_KIND_STRUCT);
	const struct btf_type *ops = id > 0 ? btf__type_by_id(btf, id) : NULL;
	struct btf_member *event = NULL, *start = NULL;
	int i;

	for (i = 0; ops && i < btf_vlen(ops); i++) {
		struct btf_member *member = &btf_members(ops)[i];
		const char *name = btf__name_by_offset(btf, member->name_off);

		if (!strcmp(name, "cwnd_event"))
			event = member;
		else if (!strcmp(name, "cwnd_event_tx_start"))
			start = member;
	}
	if (!event || !start)
		return -1;
	start->name_off = event->name_off;
	return 0;
}

static bool is_callback_of(const struct form *form, const char *name)
{
	return !strcmp(name, form->ack) || !strcmp(name, form->idle);
}

/* False: the object does not have all forms. */
static bool choose_programs(struct bpf_object *object, bool replays, const struct form *form)
{
	struct bpf_program *program;
	struct bpf_map *map;
	size_t i;

	bpf_object__for_each_program(program, object) {
		const char *name = bpf_program__name(program);
		bool callback = bpf_program__type(program) == BPF_PROG_TYPE_STRUCT_OPS;
		bool wanted = callback ? !replays : replays == !strcmp(name, "ndm_replay");

		for (i = 0; i < FORMS; i++)
			if (is_callback_of(&forms[i], name) && !is_callback_of(form, name))
				wanted = false;
		bpf_program__set_autoload(program, wanted);
	}
	for (i = 0; i < FORMS; i++) {
		map = bpf_object__find_map_by_name(object, forms[i].ops);
		if (!map)
			return false;
		bpf_map__set_autocreate(map, &forms[i] == form && !replays);
	}
	return true;
}

/* `const volatile bool ndm_replays`, by its place in the object's types. */
static int set_replays(struct bpf_object *object, bool replays)
{
	const struct btf *btf = bpf_object__btf(object);
	struct bpf_map *rodata = bpf_object__find_map_by_name(object, ".rodata");
	s32 id = btf__find_by_name_kind(btf, ".rodata", BTF_KIND_DATASEC);
	const struct btf_type *section = id > 0 ? btf__type_by_id(btf, id) : NULL;
	size_t bytes;
	char *data = rodata ? (char *)bpf_map__initial_value(rodata, &bytes) : NULL;
	int i;

	for (i = 0; data && section && i < btf_vlen(section); i++) {
		const struct btf_var_secinfo *at = &btf_var_secinfos(section)[i];
		const struct btf_type *variable = btf__type_by_id(btf, at->type);

		if (strcmp(btf__name_by_offset(btf, variable->name_off), "ndm_replays"))
			continue;
		data[at->offset] = replays;
		return 0;
	}
	return -1;
}

/* libbpf has errors of its own. */
static const char *reason(int err)
{
	static char text[128];

	libbpf_strerror(err, text, sizeof(text));
	return text;
}

int load_object(const char *path, bool replays, struct loaded *loaded)
{
	struct bpf_object *object;
	struct kernel kernel = {};
	int err;

	if (geteuid())
		return fail("not root: only root may load BPF; run it with sudo");
	err = probe_kernel(&kernel);
	if (err)
		return err;
	libbpf_set_print(keep_complaint);
	object = bpf_object__open_file(path, NULL);
	if (!object)
		return fail("%s: %s; build it: make -C bpf", path, reason(errno));
	if (set_replays(object, replays) || !choose_programs(object, replays, kernel.form) ||
	    (!kernel.has_tx_start && hide_tx_start(object)))
		return fail("%s: not an object of this project; build it: make -C bpf", path);
	loaded->ops = bpf_object__find_map_by_name(object, kernel.form->ops);
	loaded->by_link = kernel.has_link;
	if (kernel.has_link)
		bpf_map__set_map_flags(loaded->ops, NDM_F_LINK);
	err = bpf_object__load(object);
	if (err)
		return fail("kernel %s refuses the programs: %s (%s); the verifier's words: "
			    "ndm_bpf load --verbose", release(), strerror(-err), complaint);
	loaded->object = object;
	return 0;
}

int program_of(const struct loaded *loaded, const char *name)
{
	struct bpf_program *program = bpf_object__find_program_by_name(loaded->object, name);

	return program ? bpf_program__fd(program) : -ENOENT;
}

int run_program(int fd, void *context, size_t bytes)
{
	LIBBPF_OPTS(bpf_test_run_opts, run, .ctx_in = context, .ctx_size_in = bytes);
	int err = bpf_prog_test_run_opts(fd, &run);

	if (err)
		return err;
	return run.retval ? -EINVAL : 0;
}
