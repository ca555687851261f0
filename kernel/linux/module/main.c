// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Freehold in Linux: one allocator over memory borrowed from the kernel, with its files in debugfs
 * and its device, from loading to unloading.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuhotplug.h>
#include <linux/err.h>
#include <linux/module.h>
#include <linux/workqueue.h>

#include "allocator.h"
#include "debugfs.h"
#include "fault.h"
#include "runs.h"

static char *design = "freehold";
module_param(design, charp, 0444);
MODULE_PARM_DESC(design, "freehold or zone-lock");

static unsigned int mib = 64;
module_param(mib, uint, 0444);
MODULE_PARM_DESC(mib, "memory to take from the kernel, in MiB");

static struct fh_allocator *allocator;
static int dead_state;

/* Upkeep once a second, as allocators ask for: a CPU's tick may come from any CPU. */
static void upkeep(struct work_struct *work)
{
	unsigned int cpu;

	for_each_online_cpu(cpu)
		fh_call(allocator, tick, cpu);
	schedule_delayed_work(to_delayed_work(work), HZ);
}
static DECLARE_DELAYED_WORK(upkeep_work, upkeep);

void fh_upkeep(bool on)
{
	if (on)
		schedule_delayed_work(&upkeep_work, HZ);
	else
		cancel_delayed_work_sync(&upkeep_work);
}

static int cpu_is_dead(unsigned int cpu)
{
	return fh_call(allocator, offline, cpu);
}

static int __init parse_design(void)
{
	int i;

	for (i = 0; i < FH_DESIGNS; i++)
		if (!strcmp(design, fh_design_name(i)))
			return i;
	pr_err("design=%s: there are freehold and zone-lock\n", design);
	return -EINVAL;
}

static int __init freehold_init(void)
{
	int err = parse_design();

	if (err < 0)
		return err;
	allocator = fh_create(err, mib);
	if (IS_ERR(allocator))
		return PTR_ERR(allocator);
	dead_state = cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN, "freehold:dead", NULL,
					       cpu_is_dead);
	if (dead_state < 0) {
		err = dead_state;
		goto destroy;
	}
	err = fh_fault_register(allocator);
	if (err)
		goto remove_state;
	fh_debugfs_create(allocator);
	fh_upkeep(true);
	pr_info("%s over %u MiB, %u CPUs\n", design, mib, nr_cpu_ids);
	return 0;

remove_state:
	cpuhp_remove_state_nocalls(dead_state);
destroy:
	fh_destroy(allocator);
	return err;
}

static void __exit freehold_exit(void)
{
	fh_debugfs_remove();
	fh_upkeep(false);
	fh_fault_unregister();
	cpuhp_remove_state_nocalls(dead_state);
	if (!fh_validate(allocator))
		pr_err("invariants do not hold when the module is unloaded\n");
	fh_destroy(allocator);
}

module_init(freehold_init);
module_exit(freehold_exit);
MODULE_DESCRIPTION("The Freehold page-frame allocator beside the kernel's own");
MODULE_LICENSE("Dual MIT/GPL");
