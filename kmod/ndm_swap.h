/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Another network under traffic. Root writes NAME to the parameter `model`; the kernel reads
 * the blob ndm_tcp/NAME from where firmware is, ndm_blob.h checks it, and the next rounds use
 * it. "built-in" is the compiled network, which also runs until then. If anything fails, the
 * former network runs on, and one line says why.
 */
#ifndef _NDM_SWAP_H
#define _NDM_SWAP_H

#include <linux/device.h>
#include <linux/firmware.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/rcupdate.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "ndm_blob.h"
#include "generated/ndm_model.h"

/* All but the network itself is under the lock of the module's parameters. */
static enum { NDM_LOADS, NDM_RUNS, NDM_LEAVES } ndm_life;

/* NULL: the compiled network. */
static struct ndm_blob __rcu *ndm_swapped;

/* What insmod names: another parameter may yet fail, and then nothing frees a blob. */
static char ndm_first_model[64];

/* One network for all of a round. */
static inline void ndm_infer_swapped(const s16 *x, s32 *out)
{
	const struct ndm_blob *blob;

	rcu_read_lock();
	blob = rcu_dereference(ndm_swapped);
	ndm_infer(blob ? &blob->model : &ndm_model, x, out, NULL);
	rcu_read_unlock();
}

/* When it returns, no round uses the former network. */
static void ndm_swap_in(struct ndm_blob *blob)
{
	struct ndm_blob *former = rcu_replace_pointer(ndm_swapped, blob, true);

	synchronize_rcu();
	kvfree(former);
}

/* A blob that passed every check, or NULL after a line in the log. */
static struct ndm_blob *ndm_check_firmware(const struct firmware *file, const char *path)
{
	struct ndm_blob *blob = kvmalloc(sizeof(*blob), GFP_KERNEL);
	struct ndm_blob_fault fault = { "no memory, or 1 MB or more", 0, 0 };

	if (blob && file->size < SZ_1M &&
	    ndm_blob_read(blob, &ndm_model, file->data, (u32)file->size, &fault) &&
	    ndm_blob_verify(blob, &fault)) {
		blob->vectors = NULL;	/* they go with the file */
		return blob;
	}
	pr_err("%s: %s (index %u, element %u); the former network runs on\n", path, fault.what,
	       fault.index, fault.element);
	kvfree(blob);
	return NULL;
}

static struct ndm_blob *ndm_read_firmware(const char *path)
{
	/* Without an owner, which would only be a link in sysfs. */
	struct device *device = __root_device_register(KBUILD_MODNAME, NULL);
	const struct firmware *file;
	struct ndm_blob *blob = NULL;
	int err;

	err = IS_ERR(device) ? PTR_ERR(device) : request_firmware_direct(&file, path, device);
	if (err) {
		pr_err("%s: cannot be read as firmware, error %d; the former network runs on\n",
		       path, err);
	} else {
		blob = ndm_check_firmware(file, path);
		release_firmware(file);
	}
	if (!IS_ERR(device))
		root_device_unregister(device);
	return blob;
}

/* Empty: the compiled network. */
static int ndm_swap_to(const char *path)
{
	struct ndm_blob *blob = NULL;

	if (*path) {
		blob = ndm_read_firmware(path);
		if (!blob)
			return -EINVAL;
	}
	ndm_swap_in(blob);
	return 0;
}

static int ndm_set_model(const char *value, const struct kernel_param *param)
{
	char path[sizeof(ndm_first_model)] = "ndm_tcp/", *name = path + strlen(path);

	if (strscpy(name, value, sizeof(path) - (name - path)) < 0)
		return -ENAMETOOLONG;
	name[strcspn(name, "\n")] = '\0';
	if (!*name || *name == '.' || strchr(name, '/'))
		return -EINVAL;
	if (!strcmp(name, "built-in"))
		*path = '\0';
	switch (ndm_life) {
	case NDM_LOADS:
		strscpy(ndm_first_model, path, sizeof(ndm_first_model));
		return 0;
	case NDM_RUNS:
		return ndm_swap_to(path);
	default:
		return -ENODEV;
	}
}

/* The module is about to run: with the network that insmod named. */
static int __init ndm_swap_begins(void)
{
	int err;

	kernel_param_lock(THIS_MODULE);
	ndm_life = NDM_RUNS;
	err = ndm_swap_to(ndm_first_model);
	kernel_param_unlock(THIS_MODULE);
	return err;
}

/* The files of the parameters outlive the module's own exit. */
static void ndm_swap_ends(void)
{
	kernel_param_lock(THIS_MODULE);
	ndm_life = NDM_LEAVES;
	ndm_swap_in(NULL);
	kernel_param_unlock(THIS_MODULE);
}

static const struct kernel_param_ops ndm_model_ops = {
	.set = ndm_set_model,
};

module_param_cb(model, &ndm_model_ops, NULL, 0200);
MODULE_PARM_DESC(model, "file below /lib/firmware/ndm_tcp with another network, or built-in");

static int ndm_get_hash(char *buffer, const struct kernel_param *param)
{
	const struct ndm_blob *blob;
	int n;

	rcu_read_lock();
	blob = rcu_dereference(ndm_swapped);
	if (blob)
		n = scnprintf(buffer, PAGE_SIZE, "%016llx\n", blob->weights.model);
	else
		n = scnprintf(buffer, PAGE_SIZE, "%s\n", NDM_MODEL_HASH);
	rcu_read_unlock();
	return n;
}

#endif /* _NDM_SWAP_H */
