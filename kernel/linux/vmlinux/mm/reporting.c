// SPDX-License-Identifier: MIT OR Apache-2.0
/* Free page reporting: pageblocks that a hypervisor may have until they are used. */

#include <linux/mm.h>
#include <linux/page_reporting.h>
#include <linux/scatterlist.h>

#include "freehold.h"

struct freehold_device {
	struct page_reporting_dev_info *device;
	struct scatterlist *list;
	int err;
};

bool freehold_report(const u64 *pfns, size_t many, void *control)
{
	struct freehold_device *to = control;
	/* Of a list, a device reads from an entry to the end. */
	struct scatterlist *list = to->list + PAGE_REPORTING_CAPACITY - many;
	size_t at;

	for (at = 0; at < many; at++)
		sg_set_page(list + at, pfn_to_page(pfns[at]), PAGE_SIZE << pageblock_order, 0);
	to->err = to->device->report(to->device, list, many);
	sg_init_table(list, many);
	return !to->err;
}

/* A sixteenth of a zone at a time, and only what leaves it above its low watermark. */
int freehold_report_zone(struct page_reporting_dev_info *device, struct scatterlist *list,
			 struct zone *zone)
{
	unsigned long batch = PAGE_REPORTING_CAPACITY * pageblock_nr_pages;
	unsigned long many = zone_managed_pages(zone) / batch / 16 + 1;
	struct freehold_device to = { device, list };

	if (!freehold_is_own())
		return 0;
	while (many-- && zone_watermark_ok(zone, 0, low_wmark_pages(zone) + batch, 0, 0) &&
	       own_report_free(zone->freehold, &to))
		cond_resched();
	return to.err;
}
