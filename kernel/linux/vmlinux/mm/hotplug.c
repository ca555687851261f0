// SPDX-License-Identifier: MIT OR Apache-2.0
/* Memory that comes online; and single pages that go bad, and may come back. */
#define pr_fmt(fmt) "freehold: " fmt

#include <linux/bug.h>
#include <linux/mm.h>
#include <linux/page-flags.h>
#include <linux/printk.h>
#include <linux/vmalloc.h>

#include "../internal.h"
#include "freehold.h"

/* What online_pages() is adding, under the lock of memory hotplug. */
static struct zone *onlining;
static unsigned long online_start, online_end;

/* Whether a zone has an allocator that has room for frames. One without memory gets one. */
static int ensure_room(struct zone *zone, unsigned long start, unsigned long end)
{
	void *buffer, *state = NULL;
	long bytes, err;

	if (zone->freehold) {
		bool fits = start >= zone->freehold_first &&
			    end <= zone->freehold_first + zone->freehold_frames;

		return fits ? 0 : -ENOSPC;
	}
	freehold_set_span(zone, start, end);
	bytes = freehold_bytes(zone->freehold_first, zone->freehold_frames, nr_cpu_ids, false);
	if (bytes < 0)
		return bytes;
	buffer = vzalloc_node(bytes, zone_to_nid(zone));
	if (!buffer)
		return -ENOMEM;
	err = freehold_create(buffer, bytes, zone->freehold_first, zone->freehold_frames,
			      nr_cpu_ids, false, &state);
	if (err) {
		vfree(buffer);
		return err;
	}
	zone->freehold = state;
	return 0;
}

/* Ahead of the frees of pages that come online. */
int freehold_begin_online(struct zone *zone, unsigned long pfn, unsigned long pages)
{
	int err;

	/*
	 * Ahead of lists, it is in use from here on. What comes again has been so since; what lies
	 * beyond the span is passed over.
	 */
	if (zone->freehold_front)
		freehold_add_memory(zone->freehold_front, pfn, pages, false);
	if (!freehold_on)
		return 0;
	err = ensure_room(zone, pfn, pfn + pages);
	if (err) {
		pr_err("zone %s: no room for frames %#lx to %#lx: error %d\n", zone->name, pfn,
		       pfn + pages, err);
		return err;
	}
	onlining = zone;
	online_start = pfn;
	online_end = pfn + pages;
	return 0;
}

/* Whether a free is one of these, which are passed over: Freehold gets the pages all at once. */
bool freehold_adopts(struct zone *zone, unsigned long pfn, unsigned int order)
{
	return zone == READ_ONCE(onlining) && pfn >= online_start &&
	       pfn + (1ul << order) <= online_end;
}

void freehold_end_online(void)
{
	struct zone *zone = onlining;

	if (!zone)
		return;
	WRITE_ONCE(onlining, NULL);
	WARN_ON(freehold_add_free(zone->freehold, online_start, online_end - online_start,
				  false));
}

#ifdef CONFIG_MEMORY_FAILURE
/* Takes a free page that has gone bad out of use. */
bool freehold_take_off(struct page *page)
{
	struct zone *zone = page_zone(page);

	if (page_count(page) || freehold_remove_memory(zone->freehold, page_to_pfn(page), 1, NULL))
		return false;
	freehold_count(zone, page_to_pfn(page), -1);
	SetPageHWPoisonTakenOff(page);
	return true;
}

/* Takes that back. */
bool freehold_put_back(struct page *page)
{
	struct zone *zone = page_zone(page);

	if (!put_page_testzero(page))
		return false;
	ClearPageHWPoisonTakenOff(page);
	if (!WARN_ON(freehold_add_free(zone->freehold, page_to_pfn(page), 1,
				       is_migrate_cma_page(page))))
		freehold_count(zone, page_to_pfn(page), 1);
	return TestClearPageHWPoison(page);
}
#endif
