// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Where pages are: on which node, and what of those that have gone bad.
 *
 *     places numa MIB
 *         a process for each node takes memory there only, and checks where each page is and what
 *         the node's statistics say; then one takes more than the last node has, and must get the
 *         rest elsewhere
 *     places poison
 *         pages in use that are said to go bad move, with their content, or are lost, with a signal;
 *         free ones leave the free memory, and come back. Of each, the kernel's flags are checked
 *
 * Exit codes: 0 done, 1 it failed, 2 bad arguments.
 */
#define _GNU_SOURCE
#include <asm/mman.h>
#include <fcntl.h>
#include <linux/kernel-page-flags.h>
#include <linux/mempolicy.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "workers.h"

#define PAGES_BAD	32ul

static void fail(const char *what)
{
	fprintf(stderr, "freehold: error: places: %s\n", what);
	exit(1);
}

/* The number behind a word in a file; with a node in the path, of that node. */
static unsigned long figure(const char *path, int node, const char *word)
{
	char name[100], line[200];
	unsigned long value = -1ul;
	size_t length = strlen(word);
	FILE *file;

	snprintf(name, sizeof(name), path, node);
	file = fopen(name, "r");
	if (!file)
		die(name);
	while (value == -1ul && fgets(line, sizeof(line), file)) {
		char *at = strstr(line, word);

		if (at && (at[length] == ' ' || at[length] == ':'))
			value = strtoul(at + length + strspn(at + length, ": "), NULL, 10);
	}
	fclose(file);
	if (value == -1ul)
		fail(word);
	return value;
}

static unsigned long event(int node, const char *name)
{
	return figure("/sys/devices/system/node/node%d/numastat", node, name);
}

static char *map_small_pages(size_t bytes)
{
	char *start = map(bytes, MAP_NORESERVE);

	madvise(start, bytes, MADV_NOHUGEPAGE);
	return start;
}

/* Takes pages by a policy; returns how many are on the node. */
static unsigned long take(int policy, int node, unsigned long pages)
{
	unsigned long mask = 1ul << node, i, here = 0;
	char *start = map_small_pages(pages * PAGE_BYTES);

	if (syscall(SYS_set_mempolicy, policy, &mask, 8 * sizeof(mask)))
		die("set_mempolicy");
	for (i = 0; i < pages; i++)
		start[i * PAGE_BYTES] = 1;
	for (i = 0; i < pages; i++) {
		void *page = start + i * PAGE_BYTES;
		int at = -1;

		if (syscall(SYS_move_pages, 0, 1ul, &page, NULL, &at, 0))
			die("move_pages");
		here += at == node;
	}
	return here;
}

/* The same in a process that is gone afterwards. */
static unsigned long take_and_exit(int policy, int node, unsigned long pages)
{
	unsigned long here;
	int ends[2];
	pid_t child;

	if (pipe(ends))
		die("pipe");
	child = fork();
	if (!child) {
		here = take(policy, node, pages);
		_exit(write(ends[1], &here, sizeof(here)) != sizeof(here));
	}
	close(ends[1]);
	if (read(ends[0], &here, sizeof(here)) != sizeof(here) || !ended_well(child))
		fail("a process that takes pages of a node");
	close(ends[0]);
	return here;
}

static int numa(unsigned long mib)
{
	unsigned long pages = mib << 8, here, hits = 0, missed, foreign, more;
	int nodes = 0, node;
	char path[50];

	while (sprintf(path, "/sys/devices/system/node/node%d", nodes) && !access(path, R_OK))
		nodes++;
	for (node = 0; node < nodes; node++) {
		unsigned long before = event(node, "numa_hit");

		here = take_and_exit(MPOL_BIND, node, pages);
		hits = event(node, "numa_hit") - before;
		if (here != pages || hits < pages) {
			fprintf(stderr, "node %d: %lu pages, %lu here, %lu hits\n", node, pages,
				here, hits);
			fail("pages of a node");
		}
	}
	if (nodes < 2)
		fail("there is one node");
	node = nodes - 1;
	missed = event(0, "numa_miss");
	foreign = event(node, "numa_foreign");
	more = figure("/sys/devices/system/node/node%d/meminfo", node, "MemFree") / 4 + pages;
	here = take_and_exit(MPOL_PREFERRED, node, more);
	missed = event(0, "numa_miss") - missed;
	foreign = event(node, "numa_foreign") - foreign;
	printf("freehold: result: run=numa nodes=%d pages=%lu here=%lu missed=%lu foreign=%lu\n",
	       nodes, more, here, missed, foreign);
	return here == more || here < more / 2 || missed < more - here || foreign < more - here;
}

static uint64_t word_of(const char *path, unsigned long nth)
{
	uint64_t word = 0;
	int file = open(path, O_RDONLY);

	if (file < 0 || pread(file, &word, sizeof(word), nth * sizeof(word)) != sizeof(word))
		die(path);
	close(file);
	return word;
}

/* Whether a frame has a flag that linux/kernel-page-flags.h names by its number. */
static int has_flag(unsigned long pfn, int flag)
{
	return word_of("/proc/kpageflags", pfn) >> flag & 1;
}

static int is_lost(unsigned long pfn)
{
	return has_flag(pfn, KPF_HWPOISON) && !has_flag(pfn, KPF_BUDDY);
}

static int tell(const char *file, unsigned long pfn)
{
	char path[60], text[20];
	int at, length = sprintf(text, "%lu", pfn), done;

	sprintf(path, "/sys/kernel/debug/hwpoison/%s", file);
	at = open(path, O_WRONLY);
	if (at < 0)
		die(path);
	done = write(at, text, length) == length;
	close(at);
	return done;
}

static sigjmp_buf behind;

static void caught(int signal)
{
	(void)signal;
	siglongjmp(behind, 1);
}

static void poison_used(void)
{
	char *start = map_small_pages(2 * PAGES_BAD * PAGE_BYTES);
	/* They are looked at behind a jump. */
	volatile unsigned long i, signals = 0;

	signal(SIGBUS, caught);
	for (i = 0; i < 2 * PAGES_BAD; i++) {
		char *volatile page = start + i * PAGE_BYTES;
		volatile unsigned long before;

		memset(page, (int)i + 1, PAGE_BYTES);
		before = frame_of(page);
		if (i < PAGES_BAD) {
			if (madvise(page, PAGE_BYTES, MADV_SOFT_OFFLINE))
				die("MADV_SOFT_OFFLINE");
			if (page[0] != (char)(i + 1) || page[PAGE_BYTES - 1] != (char)(i + 1))
				fail("content of a page that moved");
			if (frame_of(page) == before)
				fail("a page that did not move");
		} else if (sigsetjmp(behind, 1)) {
			signals++;
		} else {
			if (madvise(page, PAGE_BYTES, MADV_HWPOISON))
				die("MADV_HWPOISON");
			page[0] = 0;
		}
		if (!is_lost(before))
			fail("the frame of a bad page is not lost");
	}
	if (signals != PAGES_BAD)
		fail("no signal at a bad page");
}

/* Of each part of memory, a free page. */
static unsigned long poison_free(void)
{
	unsigned long pages = figure("/proc/meminfo", 0, "MemTotal") / 4, lost = 0, pfn, end;

	for (pfn = pages / PAGES_BAD; pfn < pages; pfn += pages / PAGES_BAD) {
		unsigned long at = pfn;

		end = pfn + 512;
		while (at < end && !has_flag(at, KPF_BUDDY))
			at++;
		if (at == end || !tell("corrupt-pfn", at))
			continue;
		if (!is_lost(at))
			fail("a free page that is bad stays");
		lost++;
		if (lost % 2)
			continue;
		if (!tell("unpoison-pfn", at))
			die("unpoison-pfn");
		if (has_flag(at, KPF_HWPOISON))
			fail("a page that is no longer bad");
	}
	return lost;
}

static int poison(void)
{
	unsigned long before = figure("/proc/meminfo", 0, "HardwareCorrupted") / 4, lost, all;

	poison_used();
	lost = poison_free();
	all = figure("/proc/meminfo", 0, "HardwareCorrupted") / 4 - before;
	printf("freehold: result: run=poison used=%lu free=%lu corrupted=%lu\n", 2 * PAGES_BAD,
	       lost, all);
	return lost < PAGES_BAD / 4 || all != 2 * PAGES_BAD + (lost + 1) / 2;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "numa") && argc == 3)
		return numa(strtoul(argv[2], NULL, 10));
	if (!strcmp(what, "poison") && argc == 2)
		return poison();
	fprintf(stderr, "places: bad arguments: see places.c\n");
	return 2;
}
