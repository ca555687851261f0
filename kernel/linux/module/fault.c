// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * /dev/freehold: mappings whose pages are faulted in from one of three sources. The offset of the
 * mapping, in units of 2 MiB, chooses the source and the order: SOURCES * huge + source.
 *
 * Pages are freed when the mapping goes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/huge_mm.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pfn_t.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/version.h>

#include "fault.h"

#define HUGE_ORDER	9
#define HUGE_PAGES	(1ul << HUGE_ORDER)

/* Not VM_FAULT_OOM: no process that is killed would return memory to our allocator. */
#define NO_MEMORY	VM_FAULT_SIGBUS

enum source {
	FROM_OURS,	/* the module's allocator */
	FROM_LINUX,
	FROM_READY,	/* allocated and zeroed by mmap: the rest of a fault */
	SOURCES,
};

/* What a mapping has: a block for each page, or for each 2 MiB, of its addresses. */
struct mapping {
	enum source source;
	u32 order;
	unsigned long blocks;
	struct page **ready;		/* FROM_READY: what faults take */
	struct page *block[];		/* what faults have mapped */
};

static struct fh_allocator *allocator;

/* How many faults asked for 2 MiB at once. */
static atomic_long_t huge_faults;

static int show_huge_faults(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%ld\n", atomic_long_read(&huge_faults));
}

static const struct kernel_param_ops huge_faults_ops = { .get = show_huge_faults };
module_param_cb(huge_faults, &huge_faults_ops, NULL, 0444);
MODULE_PARM_DESC(huge_faults, "(read only) faults of /dev/freehold that asked for 2 MiB at once");

static bool zero = true;
module_param(zero, bool, 0444);
MODULE_PARM_DESC(zero, "whether faults of /dev/freehold zero pages: off only to measure the rest");

static struct page *get_block(struct mapping *m, unsigned long index)
{
	long pfn;

	switch (m->source) {
	case FROM_OURS:
		pfn = fh_alloc(allocator, m->order, 0);
		return pfn < 0 ? NULL : pfn_to_page(pfn);
	case FROM_LINUX:
		return alloc_pages(GFP_HIGHUSER_MOVABLE | __GFP_NOWARN, m->order);
	default:
		return READ_ONCE(m->ready[index]);
	}
}

/* What is ready stays so until the mapping goes. */
static void put_block(struct mapping *m, struct page *page)
{
	if (m->source == FROM_OURS)
		WARN_ON_ONCE(fh_free(allocator, page_to_pfn(page), m->order));
	else if (m->source == FROM_LINUX)
		__free_pages(page, m->order);
}

static void zero_block(struct mapping *m, struct page *page)
{
	unsigned long i;

	for (i = 0; i < 1ul << m->order; i++)
		clear_highpage(page + i);
}

/* The block of this address: faults of several threads at one address get the same one. */
static struct page *block_at(struct mapping *m, unsigned long index)
{
	struct page *page = READ_ONCE(m->block[index]), *other;

	if (page)
		return page;
	page = get_block(m, index);
	if (!page)
		return NULL;
	if (zero && m->source != FROM_READY)
		zero_block(m, page);
	other = cmpxchg(&m->block[index], NULL, page);
	if (other && other != page) {
		put_block(m, page);
		return other;
	}
	return page;
}

static unsigned long index_of(struct vm_fault *vmf, struct mapping *m)
{
	return (vmf->address - vmf->vma->vm_start) >> (PAGE_SHIFT + m->order);
}

/* A block of 2 MiB where the kernel asks for single pages: maps them all, one by one. */
static vm_fault_t map_each(struct vm_fault *vmf, struct mapping *m, struct page *page)
{
	unsigned long start = vmf->vma->vm_start + (index_of(vmf, m) << (PAGE_SHIFT + HUGE_ORDER));
	unsigned long i;
	vm_fault_t fault = VM_FAULT_NOPAGE;

	for (i = 0; i < HUGE_PAGES && fault == VM_FAULT_NOPAGE; i++)
		fault = vmf_insert_pfn(vmf->vma, start + i * PAGE_SIZE, page_to_pfn(page) + i);
	return fault;
}

static vm_fault_t fault(struct vm_fault *vmf)
{
	struct mapping *m = vmf->vma->vm_private_data;
	struct page *page = block_at(m, index_of(vmf, m));

	if (!page)
		return NO_MEMORY;
	if (m->order)
		return map_each(vmf, m, page);
	get_page(page);
	vmf->page = page;
	return 0;
}

static vm_fault_t huge_fault_at_pmd(struct vm_fault *vmf)
{
	struct mapping *m = vmf->vma->vm_private_data;
	struct page *page;

	if (!m->order)
		return VM_FAULT_FALLBACK;
	page = block_at(m, index_of(vmf, m));
	if (!page)
		return NO_MEMORY;
	atomic_long_inc(&huge_faults);
	return vmf_insert_pfn_pmd(vmf, pfn_to_pfn_t(page_to_pfn(page)),
				  vmf->flags & FAULT_FLAG_WRITE);
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 6, 0)
static vm_fault_t huge_fault(struct vm_fault *vmf, unsigned int order)
{
	return order == HUGE_ORDER ? huge_fault_at_pmd(vmf) : VM_FAULT_FALLBACK;
}
#else
static vm_fault_t huge_fault(struct vm_fault *vmf, enum page_entry_size size)
{
	return size == PE_SIZE_PMD ? huge_fault_at_pmd(vmf) : VM_FAULT_FALLBACK;
}
#endif

static void drop(struct mapping *m)
{
	unsigned long i;

	for (i = 0; m->ready && i < m->blocks && m->ready[i]; i++)
		__free_pages(m->ready[i], m->order);
	kvfree(m->ready);
	kvfree(m);
}

static int make_ready(struct mapping *m)
{
	unsigned long i;

	m->ready = kvcalloc(m->blocks, sizeof(*m->ready), GFP_KERNEL);
	if (!m->ready)
		return -ENOMEM;
	for (i = 0; i < m->blocks; i++) {
		m->ready[i] = alloc_pages(GFP_HIGHUSER_MOVABLE | __GFP_NOWARN, m->order);
		if (!m->ready[i])
			return -ENOMEM;
		zero_block(m, m->ready[i]);
	}
	return 0;
}

/* The addresses are unmapped already. */
static void close(struct vm_area_struct *vma)
{
	struct mapping *m = vma->vm_private_data;
	unsigned long i;

	for (i = 0; i < m->blocks; i++)
		if (m->block[i])
			put_block(m, m->block[i]);
	drop(m);
}

static int may_split(struct vm_area_struct *vma, unsigned long address)
{
	return -EINVAL;
}

static const struct vm_operations_struct mapping_ops = {
	.fault = fault,
	.huge_fault = huge_fault,
	.close = close,
	.may_split = may_split,
};

static int freehold_mmap(struct file *file, struct vm_area_struct *vma)
{
	unsigned long choice = vma->vm_pgoff >> HUGE_ORDER;
	u32 order = choice < SOURCES ? 0 : HUGE_ORDER;
	unsigned long blocks = vma_pages(vma) >> order;
	struct mapping *m;

	if (choice >= 2 * SOURCES || vma_pages(vma) & ((1ul << order) - 1) ||
	    !(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	m = kvzalloc(struct_size(m, block, blocks), GFP_KERNEL);
	if (!m)
		return -ENOMEM;
	m->source = choice % SOURCES;
	m->order = order;
	m->blocks = blocks;
	if (m->source == FROM_READY && make_ready(m)) {
		drop(m);
		return -ENOMEM;
	}
	vma->vm_private_data = m;
	vma->vm_ops = &mapping_ops;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 3, 0)
	vm_flags_set(vma, VM_DONTCOPY | VM_DONTEXPAND | (order ? VM_PFNMAP : 0));
#else
	vma->vm_flags |= VM_DONTCOPY | VM_DONTEXPAND | (order ? VM_PFNMAP : 0);
#endif
	return 0;
}

/* Mappings begin where 2 MiB do, so that one entry of a page table can map them. */
static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.mmap = freehold_mmap,
	.get_unmapped_area = thp_get_unmapped_area,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "freehold",
	.fops = &fops,
};

int fh_fault_register(struct fh_allocator *of)
{
	allocator = of;
	return misc_register(&device);
}

void fh_fault_unregister(void)
{
	misc_deregister(&device);
}
