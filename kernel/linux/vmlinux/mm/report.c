// SPDX-License-Identifier: MIT OR Apache-2.0
/* What /proc/buddyinfo, /proc/pagetypeinfo and the report of an OOM kill say of free blocks. */
#include <linux/bits.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/seq_file.h>

#include "freehold.h"

/* No function here takes a lock; what is counted while calls are under way is about right. */
#define for_each_populated_zone_of(zone, node)						\
	for (zone = (node)->node_zones; zone < (node)->node_zones + MAX_NR_ZONES; zone++)	\
		if (populated_zone(zone))

/* The lines of /proc/buddyinfo. */
bool freehold_show_node(struct seq_file *file, pg_data_t *node)
{
	struct zone *zone;
	int order;

	if (!freehold_on)
		return false;
	for_each_populated_zone_of(zone, node) {
		u64 blocks[NR_PAGE_ORDERS] = {};

		freehold_count_blocks(zone->freehold, blocks);
		seq_printf(file, "Node %d, zone %8s ", node->node_id, zone->name);
		for (order = 0; order < NR_PAGE_ORDERS; order++)
			seq_printf(file, "%6llu ", blocks[order]);
		seq_putc(file, '\n');
	}
	return true;
}

/* The lines of /proc/pagetypeinfo: free blocks by migratetype. */
bool freehold_show_free(struct seq_file *file, pg_data_t *node)
{
	struct zone *zone;
	int type, order;

	if (!freehold_on)
		return false;
	for_each_populated_zone_of(zone, node) {
		u64 blocks[FREEHOLD_TYPES][NR_PAGE_ORDERS] = {}, pageblocks[FREEHOLD_TYPES] = {};

		freehold_count_types(zone->freehold, blocks, pageblocks);
		for (type = 0; type < MIGRATE_TYPES; type++) {
			seq_printf(file, "Node %4d, zone %8s, type %12s ", node->node_id,
				   zone->name, migratetype_names[type]);
			for (order = 0; order < NR_PAGE_ORDERS; order++)
				seq_printf(file, "%6llu ",
					   type < FREEHOLD_TYPES ? blocks[type][order] : 0);
			seq_putc(file, '\n');
		}
	}
	return true;
}

/* And pageblocks by migratetype. */
bool freehold_show_pageblocks(struct seq_file *file, pg_data_t *node)
{
	struct zone *zone;
	int type;

	if (!freehold_on)
		return false;
	for_each_populated_zone_of(zone, node) {
		u64 blocks[FREEHOLD_TYPES][NR_PAGE_ORDERS] = {}, pageblocks[FREEHOLD_TYPES] = {};

		freehold_count_types(zone->freehold, blocks, pageblocks);
		seq_printf(file, "Node %d, zone %8s ", node->node_id, zone->name);
		for (type = 0; type < MIGRATE_TYPES; type++)
			seq_printf(file, "%12llu ",
				   type < FREEHOLD_TYPES ? pageblocks[type] : 0);
		seq_putc(file, '\n');
	}
	return true;
}

/* For the kernel's log: adds blocks by order, of which migratetypes; returns how many pages. */
unsigned long freehold_list_free(struct zone *zone, unsigned long blocks[NR_PAGE_ORDERS],
				 unsigned char types[NR_PAGE_ORDERS])
{
	u64 by_type[FREEHOLD_TYPES][NR_PAGE_ORDERS] = {}, pageblocks[FREEHOLD_TYPES] = {};
	u64 all[NR_PAGE_ORDERS] = {};
	unsigned long pages;
	int type, order;

	freehold_count_types(freehold_of(zone), by_type, pageblocks);
	/* What CPUs cache is in no block, but any allocation has it. */
	pages = freehold_count_blocks(freehold_of(zone), all);
	blocks[0] += pages;
	for (order = 0; order < NR_PAGE_ORDERS; order++) {
		for (type = 0; type < FREEHOLD_TYPES; type++) {
			blocks[order] += by_type[type][order];
			pages += by_type[type][order] << order;
			if (by_type[type][order])
				types[order] |= BIT(type);
		}
	}
	return pages;
}
