// SPDX-License-Identifier: MIT OR Apache-2.0
/* /sys/kernel/debug/freehold: stat has figures, validate fails if an invariant does not hold. */
#define pr_fmt(fmt) "freehold: " fmt

#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/seq_file.h>

#include "freehold.h"

/* Pages on Linux's per-CPU lists. */
static unsigned long cpu_listed(struct zone *zone)
{
	unsigned long pages = 0;
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		pages += READ_ONCE(per_cpu_ptr(zone->per_cpu_pageset, cpu)->count);
	return pages;
}

/* The same, and those on its buddy lists. */
static unsigned long listed(struct zone *zone)
{
	unsigned long pages = cpu_listed(zone);
	int order;

	for (order = 0; order < NR_PAGE_ORDERS; order++)
		pages += READ_ONCE(zone->free_area[order].nr_free) << order;
	return pages;
}

static int stat_show(struct seq_file *file, void *unused)
{
	struct zone *zone;

	seq_printf(file, "design %s\n", freehold_on ? freehold_name() :
		   static_key_enabled(&freehold_in_front) ? "front" : "off");
	for_each_populated_zone(zone) {
		seq_printf(file, "zone %s %d\n", zone->name, zone_to_nid(zone));
		seq_printf(file, "linux_free_pages %lu\n",
			   zone_page_state_snapshot(zone, NR_FREE_PAGES));
		seq_printf(file, "linux_listed_pages %lu\n", listed(zone));
		if (freehold_of(zone))
			freehold_stat(freehold_of(zone), file);
	}
	/* Of all zones; there are none without CONFIG_LOCK_STAT. */
	freehold_locks(file);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(stat);

/* Reading fails with EIO if an invariant does not hold; the log says which. */
static int validate_show(struct seq_file *file, void *unused)
{
	struct zone *zone;

	for_each_populated_zone(zone) {
		unsigned long missed;

		if (!freehold_of(zone))
			continue;
		seq_printf(file, "zone %s %d\n", zone->name, zone_to_nid(zone));
		if (!freehold_validate(freehold_of(zone), file) &&
		    !freehold_validate(freehold_of(zone), NULL))
			return -EIO;
		/* What a hook has missed. Ahead of lists, Freehold is in place of per-CPU lists alone. */
		missed = zone->freehold ? listed(zone) : cpu_listed(zone);
		if (missed) {
			pr_err("error: %lu pages of zone %s on Linux's lists\n", missed, zone->name);
			return -EIO;
		}
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(validate);

static int __init create_files(void)
{
	struct dentry *dir = debugfs_create_dir("freehold", NULL);

	debugfs_create_file("stat", 0444, dir, NULL, &stat_fops);
	debugfs_create_file("validate", 0400, dir, NULL, &validate_fops);
	return 0;
}
late_initcall(create_files);
