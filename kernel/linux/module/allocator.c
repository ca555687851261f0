// SPDX-License-Identifier: MIT OR Apache-2.0
/* Allocators and their metadata. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpumask.h>
#include <linux/err.h>
#include <linux/printk.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "allocator.h"
#include "memory.h"

const char *fh_design_name(enum fh_design design)
{
	return design == FH_FREEHOLD ? "freehold" : "zone-lock";
}

static long fh_add(struct fh_memory *memory, u64 first, u64 frames, void *allocator)
{
	return fh_call((struct fh_allocator *)allocator, add, first, frames);
}

static long fh_setup(struct fh_allocator *a)
{
	u64 first = fh_memory_first(a->memory), frames = fh_memory_span(a->memory);
	long bytes, err;

	if (a->design == FH_FREEHOLD)
		bytes = freehold_bytes(first, frames, nr_cpu_ids);
	else
		bytes = zone_lock_bytes(first, frames, nr_cpu_ids);
	if (bytes < 0)
		return bytes;
	a->buffer = vzalloc(bytes);
	if (!a->buffer)
		return -ENOMEM;
	if (a->design == FH_FREEHOLD)
		err = freehold_create(a->buffer, bytes, first, frames, nr_cpu_ids, &a->state);
	else
		err = zone_lock_create(a->buffer, bytes, first, frames, nr_cpu_ids, &a->state);
	return err ? err : fh_memory_each(a->memory, fh_add, a);
}

/* An allocator of this design over so much memory, which it takes from the kernel. */
struct fh_allocator *fh_create(enum fh_design design, unsigned long mib)
{
	struct fh_allocator *a;
	long err;

	if (nr_cpu_ids > FH_CPUS_MAX) {
		pr_err("%u possible CPUs, and at most %u are supported: boot with possible_cpus=%u\n",
		       nr_cpu_ids, FH_CPUS_MAX, FH_CPUS_MAX);
		return ERR_PTR(-EINVAL);
	}
	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		return ERR_PTR(-ENOMEM);
	a->design = design;
	a->memory = fh_memory_take(mib);
	if (IS_ERR(a->memory)) {
		err = PTR_ERR(a->memory);
		a->memory = NULL;
	} else {
		err = fh_setup(a);
	}
	if (err) {
		pr_err("%s over %lu MiB cannot be built: error %ld\n", fh_design_name(design), mib,
		       err);
		fh_destroy(a);
		return ERR_PTR(err);
	}
	return a;
}

/* Returns the memory to the kernel. Nothing of it is in use any more. */
void fh_destroy(struct fh_allocator *a)
{
	vfree(a->buffer);
	if (a->memory)
		fh_memory_give_back(a->memory);
	kfree(a);
}
