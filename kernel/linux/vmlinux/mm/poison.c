// SPDX-License-Identifier: MIT OR Apache-2.0
/* Single pages that have gone bad, and are free: CONFIG_MEMORY_FAILURE. */
#include <linux/mm.h>
#include <linux/page-flags.h>

#include "../internal.h"
#include "freehold.h"

/* For take_page_off_buddy(): nobody will get the page. */
bool freehold_take_off(struct page *page)
{
	struct zone *zone = page_zone(page);

	if (freehold_take_frame(zone->freehold, page_to_pfn(page)) < 0)
		return false;
	mod_zone_page_state(zone, NR_FREE_PAGES, -1);
	SetPageHWPoisonTakenOff(page);
	return true;
}

/* For put_page_back_buddy(): it was not bad. */
bool freehold_put_back(struct page *page)
{
	struct zone *zone = page_zone(page);
	bool was_bad;

	if (!put_page_testzero(page))
		return false;
	ClearPageHWPoisonTakenOff(page);
	was_bad = TestClearPageHWPoison(page);
	freehold_free_block(zone->freehold, page_to_pfn(page), 0);
	mod_zone_page_state(zone, NR_FREE_PAGES, 1);
	return was_bad;
}
