// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Loads in which pages are freed elsewhere, or all at once.
 *
 *     traffic exits WORKERS MIB ROUNDS
 *         as many processes fill memory, and then exit at the same time
 *     traffic passed PAIRS MIB ROUNDS
 *         one process of a pair fills shared memory on one CPU, MiB by MiB; the other one checks it
 *         on another CPU and punches it out, as many times
 *
 * Exit codes: 0 done, 1 it failed, 2 bad arguments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workers.h"

#define MIB	(1ul << 20)

/* The other end is closed once all may go on. */
static void wait_for_close(int ends[2])
{
	char byte;

	close(ends[1]);
	if (read(ends[0], &byte, 1) != 0)
		die("read");
}

static void give(int pipe_end)
{
	if (write(pipe_end, "", 1) != 1)
		die("write");
}

static void take(int pipe_end)
{
	char byte;

	if (read(pipe_end, &byte, 1) != 1)
		die("read");
}

static int exit_together(unsigned int many, size_t mib, unsigned long round)
{
	int filled[2], go[2], well = 1;
	pid_t child[WORKERS_MAX];
	unsigned int i;

	if (pipe(filled) || pipe(go))
		die("pipe");
	for (i = 0; i < many; i++) {
		struct worker self = { .bytes = mib << 20, .step = PAGE_BYTES, .nth = i };
		char *start;

		child[i] = fork();
		if (child[i] < 0)
			die("fork");
		if (child[i])
			continue;
		move_to(i % sysconf(_SC_NPROCESSORS_ONLN));
		start = map(self.bytes, 0);
		fill(&self, start, round);
		check(&self, start, round);
		give(filled[1]);
		wait_for_close(go);
		_exit(0);
	}
	for (i = 0; i < many; i++)
		take(filled[0]);
	close(go[1]);
	for (i = 0; i < many; i++)
		well &= ended_well(child[i]);
	close(filled[0]);
	close(filled[1]);
	close(go[0]);
	return well;
}

static int exits(unsigned int many, size_t mib, unsigned long rounds)
{
	unsigned long round;

	for (round = 0; round < rounds; round++)
		if (!exit_together(many, mib, round))
			return 1;
	printf("freehold: result: run=exits workers=%u pages=%lu\n", many,
	       many * rounds * (mib << 20) / PAGE_BYTES);
	return 0;
}

/* Both processes of a pair have the same number, so that they agree on what is in a page. */
static void of_pair(unsigned int nth, int fills, char *start, size_t mib, unsigned long rounds,
		    int filled, int emptied)
{
	struct worker self = { .bytes = MIB, .step = PAGE_BYTES, .nth = nth };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned long round;
	size_t at;

	move_to((2 * nth + fills) % cpus);
	self.owner = getppid();
	for (round = 0; round < rounds; round++) {
		for (at = 0; at < mib * MIB; at += MIB) {
			if (fills) {
				take(emptied);
				fill(&self, start + at, round);
				give(filled);
				continue;
			}
			take(filled);
			check(&self, start + at, round);
			if (madvise(start + at, MIB, MADV_REMOVE))
				die("madvise");
			give(emptied);
		}
	}
	_exit(0);
}

static int passed(unsigned int pairs, size_t mib, unsigned long rounds)
{
	pid_t child[2 * WORKERS_MAX];
	unsigned int i;
	int well = 1;

	for (i = 0; i < 2 * pairs; i++) {
		static int filled[2], emptied[2];
		static char *start;
		size_t many;

		if (i % 2 == 0) {
			if (pipe(filled) || pipe(emptied))
				die("pipe");
			start = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
			if (start == MAP_FAILED)
				die("mmap");
			/* All of it is empty. */
			for (many = 0; many < mib; many++)
				give(emptied[1]);
		}
		child[i] = fork();
		if (child[i] < 0)
			die("fork");
		if (!child[i])
			of_pair(i / 2, i % 2, start, mib, rounds, filled[i % 2], emptied[1 - i % 2]);
	}
	for (i = 0; i < 2 * pairs; i++)
		well &= ended_well(child[i]);
	printf("freehold: result: run=passed pairs=%u pages=%lu\n", pairs,
	       pairs * rounds * (mib << 20) / PAGE_BYTES);
	return !well;
}

int main(int argc, char **argv)
{
	unsigned long numbers[3] = { 0 };
	int i;

	for (i = 0; argc == 5 && i < 3; i++)
		numbers[i] = strtoul(argv[2 + i], NULL, 10);
	if (numbers[0] && numbers[0] <= WORKERS_MAX && numbers[1] && numbers[2]) {
		if (!strcmp(argv[1], "exits"))
			return exits(numbers[0], numbers[1], numbers[2]);
		if (!strcmp(argv[1], "passed"))
			return passed(numbers[0], numbers[1], numbers[2]);
	}
	fprintf(stderr, "traffic: bad arguments: see traffic.c\n");
	return 2;
}
