// SPDX-License-Identifier: MIT OR Apache-2.0
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workers.h"

void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

void move_to(long cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		die("sched_setaffinity");
}

int ended_well(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		die("waitpid");
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

unsigned long number_in(const char *path, const char *name)
{
	char line[128];
	FILE *file = fopen(path, "r");
	unsigned long number = 0;

	if (!file)
		die(path);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			number = strtoul(line + strlen(name), NULL, 10);
	fclose(file);
	return number;
}

uint64_t frame_of(const char *page)
{
	static int pagemap = -1;
	uint64_t entry;

	if (pagemap < 0)
		pagemap = open("/proc/self/pagemap", O_RDONLY);
	if (pread(pagemap, &entry, sizeof(entry), (uintptr_t)page / PAGE_BYTES * 8) != 8)
		die("pagemap");
	return entry & ((1ull << 55) - 1);
}

char *map(size_t bytes, int flags)
{
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	if (start == MAP_FAILED)
		die("mmap");
	return start;
}

/* No other worker, round or page has this. */
static uint64_t stamp(const struct worker *self, unsigned long round, size_t at)
{
	pid_t owner = self->owner ?: getpid();

	return ((uint64_t)(owner + self->nth) << 48) ^ ((uint64_t)round << 32) ^ (at | 1);
}

void fill(const struct worker *self, char *start, unsigned long round)
{
	size_t at;

	for (at = 0; at < self->bytes; at += self->step)
		*(volatile uint64_t *)(start + at) = stamp(self, round, at);
}

void check(const struct worker *self, const char *start, unsigned long round)
{
	size_t at;

	for (at = 0; at < self->bytes; at += PAGE_BYTES) {
		const uint64_t *page = (const uint64_t *)(start + at);
		uint64_t wanted = at % self->step ? 0 : stamp(self, round, at);
		uint64_t last = self->file ? FILE_WORD : 0;

		if (page[0] == wanted && page[PAGE_BYTES / 8 - 1] == last)
			continue;
		fprintf(stderr, "freehold: error: page %zu has %llx and %llx, not %llx and %llx\n",
			at / PAGE_BYTES, (unsigned long long)page[0],
			(unsigned long long)page[PAGE_BYTES / 8 - 1], (unsigned long long)wanted,
			(unsigned long long)last);
		exit(1);
	}
}
