// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has frames taken out of use by the kernel that runs it, as if they had gone bad.
 *
 *     badpages PAGES
 *         so many that are mapped, whose content has to move, and so many that have been freed. None
 *         may be allocated again, though a process touches most of what is free
 *     badpages in FIRST FRAMES
 *         one that is in use, and lies in this range
 *
 * Exit codes: 0 done, 1 it failed, 2 bad arguments.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <linux/mman.h>

#include "workers.h"

#define OFFLINE		"/sys/devices/system/memory/hard_offline_page"

static char *map_filled(size_t pages)
{
	char *start = map(pages * PAGE_BYTES, 0);
	size_t at;

	for (at = 0; at < pages; at++)
		*(uint64_t *)(start + at * PAGE_BYTES) = at + 1;
	return start;
}

/* Whether the kernel takes a frame out of use, whatever has it. */
static int hard_offline(uint64_t frame)
{
	char text[32];
	int file = open(OFFLINE, O_WRONLY), length, done;

	if (file < 0)
		die(OFFLINE);
	length = snprintf(text, sizeof(text), "%#llx", (unsigned long long)frame * PAGE_BYTES);
	done = write(file, text, length) == length;
	close(file);
	return done;
}

/* Half of what is free is more than enough to be given some of the range. */
static int poison_in(uint64_t first, uint64_t frames)
{
	size_t pages = number_in("/proc/vmstat", "nr_free_pages ") / 2, at;
	char *start = map_filled(pages);

	for (at = 0; at < pages; at++) {
		uint64_t frame = frame_of(start + at * PAGE_BYTES);

		if (frame >= first && frame - first < frames) {
			printf("freehold: result: run=badpages in_use=%#llx\n",
			       (unsigned long long)frame);
			return !hard_offline(frame);
		}
	}
	fprintf(stderr, "freehold: error: no page of %zu lies there\n", pages);
	return 1;
}

int main(int argc, char **argv)
{
	size_t pages = argc == 2 ? strtoul(argv[1], NULL, 10) : 0, rest, at, nth;
	uint64_t *bad = calloc(2 * pages + 1, sizeof(*bad));
	size_t moved = 0, freed = 0, corrupted;
	char *start;

	if (argc == 4 && !strcmp(argv[1], "in"))
		return poison_in(strtoul(argv[2], NULL, 0), strtoul(argv[3], NULL, 0));
	if (!pages || !bad) {
		fprintf(stderr, "badpages: bad arguments: see badpages.c\n");
		return 2;
	}
	corrupted = number_in("/proc/meminfo", "HardwareCorrupted:") / 4;
	start = map_filled(2 * pages);
	for (at = 0; at < 2 * pages; at++)
		bad[at] = frame_of(start + at * PAGE_BYTES);
	for (at = 0; at < pages; at++) {
		char *page = start + at * PAGE_BYTES;

		if (madvise(page, PAGE_BYTES, MADV_SOFT_OFFLINE))
			die("MADV_SOFT_OFFLINE");
		moved += frame_of(page) != bad[at] && *(uint64_t *)page == at + 1;
	}
	if (munmap(start + pages * PAGE_BYTES, pages * PAGE_BYTES))
		die("munmap");
	for (at = pages; at < 2 * pages; at++) {
		/* Somebody else may have it by now, who needs it. */
		if (hard_offline(bad[at]))
			freed++;
		else
			bad[at] = 0;
	}
	rest = number_in("/proc/vmstat", "nr_free_pages ") * 8 / 10;
	start = map_filled(rest);
	for (at = 0; at < rest; at++) {
		uint64_t frame = frame_of(start + at * PAGE_BYTES);

		for (nth = 0; nth < 2 * pages; nth++) {
			if (frame != bad[nth])
				continue;
			fprintf(stderr, "freehold: error: bad frame %#llx is in use\n",
				(unsigned long long)frame);
			return 1;
		}
	}
	corrupted = number_in("/proc/meminfo", "HardwareCorrupted:") / 4 - corrupted;
	printf("freehold: result: run=badpages moved=%zu freed=%zu corrupted=%zu\n", moved, freed,
	       corrupted);
	return moved < pages || freed < pages / 2 || corrupted != moved + freed;
}
