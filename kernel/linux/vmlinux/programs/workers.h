/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What programs share: processes and threads that fill pages, and check them; what /proc says. */
#ifndef WORKERS_H
#define WORKERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define PAGE_BYTES	4096ul
#define HUGE_BYTES	(2ul << 20)
#define WORKERS_MAX	16
#define FILE_WORD	0x66696c65ul	/* all that files consist of */

struct worker {
	uint64_t touched;	/* of the best round */
	uint64_t unmapped;
	size_t bytes;
	size_t step;
	unsigned long rounds;	/* until the deadline, if 0 */
	time_t deadline;
	pid_t owner;		/* whose pages these are, if not its own */
	unsigned int nth;
	int huge;
	int file;		/* a copy of this file, if not 0 */
};

void die(const char *what);
/* Runs on this CPU from now on. */
void move_to(long cpu);
/* Waits for a process; returns whether it ended by itself and well. */
int ended_well(pid_t child);

/* The number behind a name at the start of a line, or that of a file which has no other. */
unsigned long number_in(const char *path, const char *name);
/* The frame that a page is in: of the process that asks first, so not behind a fork. */
uint64_t frame_of(const char *page);

/* Anonymous memory of its own. */
char *map(size_t bytes, int flags);
/* Writes to each page what no other worker, round or page has. */
void fill(const struct worker *self, char *start, unsigned long round);
/* Whether it is there, or the process ends. */
void check(const struct worker *self, const char *start, unsigned long round);

#endif
