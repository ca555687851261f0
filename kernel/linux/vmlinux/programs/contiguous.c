// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has the kernel that runs it move content, to make contiguous memory.
 *
 *     contiguous compact PERCENT
 *         a process touches seven tenths of what is free, and frees three of four pages of that; the
 *         pool of huge pages must then get so many percent of what is free
 *     contiguous gigantic
 *         likewise, one of four; the pool must get a page of 1 GiB
 *
 * What stays mapped must have the content that it was given.
 *
 * Exit codes: 0 done, 1 it failed, 2 bad arguments.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "workers.h"

#define HUGE_PAGES	"/proc/sys/vm/nr_hugepages"
#define GIGANTIC_PAGES	"/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"

static unsigned long free_pages(void)
{
	return number_in("/proc/vmstat", "nr_free_pages ");
}

static void write_number(const char *path, unsigned long number)
{
	FILE *file = fopen(path, "w");

	if (!file || fprintf(file, "%lu", number) < 0 || fclose(file))
		die(path);
}

/* Memory of which every fourth page is in use, or three of four. */
static char *scatter(size_t pages, int every_fourth)
{
	char *start = map(pages * PAGE_BYTES, 0);
	size_t at;

	for (at = 0; at < pages; at++)
		*(uint64_t *)(start + at * PAGE_BYTES) = at + 1;
	for (at = 0; at < pages; at++)
		if ((at % 4 == 0) != every_fourth &&
		    madvise(start + at * PAGE_BYTES, PAGE_BYTES, MADV_DONTNEED))
			die("madvise");
	return start;
}

static void check_scattered(const char *start, size_t pages, int every_fourth)
{
	size_t at;

	for (at = 0; at < pages; at++) {
		uint64_t has = *(const uint64_t *)(start + at * PAGE_BYTES);

		if ((at % 4 == 0) != every_fourth || has == at + 1)
			continue;
		fprintf(stderr, "freehold: error: page %zu has %llx\n", at,
			(unsigned long long)has);
		exit(1);
	}
}

static int compact(unsigned long percent)
{
	size_t pages = free_pages() * 7 / 10;
	char *start = scatter(pages, 1);
	unsigned long wanted = free_pages() / 512 * percent / 100, got;

	write_number(HUGE_PAGES, wanted);
	got = number_in(HUGE_PAGES, "");
	check_scattered(start, pages, 1);
	printf("freehold: result: run=compact wanted=%lu got=%lu moved=%lu\n", wanted, got,
	       number_in("/proc/vmstat", "pgmigrate_success "));
	write_number(HUGE_PAGES, 0);
	check_scattered(start, pages, 1);
	return got < wanted;
}

static int gigantic(void)
{
	size_t pages = free_pages() / 2, at;
	char *start = scatter(pages, 0), *page;

	write_number(GIGANTIC_PAGES, 1);
	if (number_in(GIGANTIC_PAGES, "") != 1) {
		fprintf(stderr, "contiguous: no page of 1 GiB\n");
		return 1;
	}
	page = map(1ul << 30, MAP_HUGETLB | 30 << MAP_HUGE_SHIFT);
	for (at = 0; at < 1ul << 30; at += PAGE_BYTES)
		page[at] = 1;
	if (munmap(page, 1ul << 30))
		die("munmap");
	check_scattered(start, pages, 0);
	write_number(GIGANTIC_PAGES, 0);
	if (number_in(GIGANTIC_PAGES, ""))
		die("the page stays");
	printf("freehold: result: run=gigantic moved=%lu\n",
	       number_in("/proc/vmstat", "pgmigrate_success "));
	check_scattered(start, pages, 0);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "compact") && argc == 3)
		return compact(strtoul(argv[2], NULL, 10));
	if (!strcmp(what, "gigantic") && argc == 2)
		return gigantic();
	fprintf(stderr, "contiguous: bad arguments: see contiguous.c\n");
	return 2;
}
