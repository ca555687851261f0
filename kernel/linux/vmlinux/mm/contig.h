/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Contiguous ranges, included by page_alloc.c ahead of alloc_contig_range_noprof(). */

/* In place of isolated pageblocks: content in the way is moved elsewhere. */
static int freehold_alloc_contig(struct compact_control *cc, unsigned long start,
				 unsigned long end, bool cma, gfp_t gfp)
{
	struct page *head = pfn_to_page(start), *page;
	unsigned long pages = end - start;
	long err;

	if (gfp & __GFP_COMP && !is_power_of_2(pages))
		return -EINVAL;
	/* A CMA area is its owner's. */
	if (is_migrate_cma_page(head) != cma)
		return -EBUSY;
	/* Pages that are cached on their way to an LRU list cannot be isolated. */
	lru_cache_disable();
	err = freehold_alloc_range(cc->zone->freehold, start, pages, cc);
	lru_cache_enable();
	if (err)
		return err;
	freehold_count(cc->zone, start, -(long)pages);
	if (gfp & __GFP_COMP) {
		check_new_pages(head, ilog2(pages));
		prep_new_page(head, ilog2(pages), gfp, 0);
		return 0;
	}
	for (page = head; page < head + pages; page++) {
		check_new_pages(page, 0);
		prep_new_page(page, 0, gfp, 0);
	}
	return 0;
}
