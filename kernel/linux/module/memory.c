// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Memory that the kernel's allocator lends: its largest blocks, sorted, each split into pages with
 * a reference of their own, so that single ones can be mapped.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/mm.h>
#include <linux/sort.h>

#include "memory.h"

#define FH_BLOCK_ORDER	10
#define FH_BLOCK_FRAMES	(1ul << FH_BLOCK_ORDER)

struct fh_memory {
	unsigned long blocks;
	u64 block[];		/* first frames, rising */
};

static int by_pfn(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

struct fh_memory *fh_memory_take(unsigned long mib)
{
	unsigned long blocks = DIV_ROUND_UP(mib << (20 - PAGE_SHIFT), FH_BLOCK_FRAMES);
	struct fh_memory *memory;
	struct page *page;

	if (!blocks)
		return ERR_PTR(-EINVAL);
	memory = kvzalloc(struct_size(memory, block, blocks), GFP_KERNEL);
	if (!memory)
		return ERR_PTR(-ENOMEM);
	while (memory->blocks < blocks) {
		page = alloc_pages(GFP_KERNEL | __GFP_NOWARN | __GFP_RETRY_MAYFAIL, FH_BLOCK_ORDER);
		if (!page) {
			fh_memory_give_back(memory);
			return ERR_PTR(-ENOMEM);
		}
		split_page(page, FH_BLOCK_ORDER);
		memory->block[memory->blocks++] = page_to_pfn(page);
	}
	sort(memory->block, blocks, sizeof(memory->block[0]), by_pfn, NULL);
	return memory;
}

void fh_memory_give_back(struct fh_memory *memory)
{
	unsigned long i;
	u64 pfn;

	for (i = 0; i < memory->blocks; i++)
		for (pfn = memory->block[i]; pfn < memory->block[i] + FH_BLOCK_FRAMES; pfn++)
			__free_page(pfn_to_page(pfn));
	kvfree(memory);
}

u64 fh_memory_first(const struct fh_memory *memory)
{
	return memory->block[0];
}

u64 fh_memory_span(const struct fh_memory *memory)
{
	return memory->block[memory->blocks - 1] + FH_BLOCK_FRAMES - memory->block[0];
}

unsigned long fh_memory_mib(const struct fh_memory *memory)
{
	return memory->blocks * FH_BLOCK_FRAMES >> (20 - PAGE_SHIFT);
}

u64 *fh_address(u64 pfn)
{
	return page_address(pfn_to_page(pfn));
}

long fh_memory_each(struct fh_memory *memory, fh_range_fn add, void *with)
{
	u64 first = memory->block[0], end = first;
	unsigned long i;
	long err;

	for (i = 0; i < memory->blocks; i++) {
		if (memory->block[i] != end) {
			err = add(memory, first, end - first, with);
			if (err)
				return err;
			first = memory->block[i];
		}
		end = memory->block[i] + FH_BLOCK_FRAMES;
	}
	return add(memory, first, end - first, with);
}
