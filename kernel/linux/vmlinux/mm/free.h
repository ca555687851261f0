/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frees, included by page_alloc.c ahead of the functions whose hooks call them. Any context may
 * free, interrupt handlers and holders of spinlocks too: a free waits for nothing, but for a call
 * that frees another part of the same block of pageblocks, and that one runs with interrupts off.
 */

/* A block that has passed free_pages_prepare(). */
static __always_inline void freehold_free_one_page(struct zone *zone, unsigned long pfn,
						   unsigned int order)
{
	long err = freehold_free_block(zone->freehold, pfn, order);

	if (unlikely(err) && !freehold_adopts(zone, pfn, order)) {
		freehold_refused(zone, pfn, order, err);
		return;
	}
	freehold_count(zone, pfn, 1l << order);
	__count_vm_events(PGFREE, 1 << order);
}

/* Single pages of one zone. Returns how many were not refused. */
static noinline size_t freehold_free_pfns(struct zone *zone, const u64 *pfns, size_t many)
{
	size_t all = 0;

	while (many) {
		long err = 0;
		size_t freed = freehold_free_frames(zone->freehold, pfns, many, &err);

		all += freed;
		freehold_count_pfns(zone, pfns, freed, 1);
		if (likely(freed == many))
			break;
		freehold_refused(zone, pfns[freed], 0, err);
		pfns += freed + 1;
		many -= freed + 1;
	}
	return all;
}

/* In place of free_unref_folios(): single pages of the same zone, one after the other, at once. */
static noinline void freehold_free_folios(struct folio_batch *folios)
{
	u64 pfns[PAGEVEC_SIZE];
	struct zone *zone = NULL;
	unsigned int i, many = 0;

	for (i = 0; i < folios->nr; i++) {
		struct folio *folio = folios->folios[i];
		unsigned int order = folio_order(folio);

		if (!free_pages_prepare(&folio->page, order))
			continue;
		trace_mm_page_free_batched(&folio->page);
		if (order) {
			freehold_free_one_page(folio_zone(folio), folio_pfn(folio), order);
			continue;
		}
		if (many && folio_zone(folio) != zone) {
			__count_vm_events(PGFREE, freehold_free_pfns(zone, pfns, many));
			many = 0;
		}
		zone = folio_zone(folio);
		pfns[many++] = folio_pfn(folio);
	}
	if (many)
		__count_vm_events(PGFREE, freehold_free_pfns(zone, pfns, many));
	folio_batch_reinit(folios);
}
