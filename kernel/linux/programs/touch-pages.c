// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Touches every page of a mapping of /dev/freehold, and prints what a page costs: the faults and
 * what unmapping frees. Time is the CPU's counter, which under QEMU with -icount counts
 * instructions.
 *
 *     touch-pages SOURCE ORDER THREADS MIB ROUNDS
 *
 * SOURCE is ours, linux or ready; ORDER 0 or 9. Exit codes: 0 done, 1 it failed, 2 bad arguments.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <x86intrin.h>

#define HUGE_BYTES	(2ul << 20)
#define THREADS_MAX	16
#define ROUNDS_MAX	1000

static const char *const sources[] = { "ours", "linux", "ready" };

struct part {
	volatile char *start;
	size_t bytes;
	size_t step;
	pthread_barrier_t *barrier;
	uint64_t began;
	uint64_t ended;
};

static void die(const char *what)
{
	fprintf(stderr, "touch-pages: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *touch(void *of)
{
	struct part *part = of;
	size_t at;

	pthread_barrier_wait(part->barrier);
	part->began = __rdtsc();
	for (at = 0; at < part->bytes; at += part->step)
		part->start[at] = 1;
	part->ended = __rdtsc();
	return NULL;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static unsigned long huge_faults(void)
{
	FILE *file = fopen("/sys/module/freehold/parameters/huge_faults", "r");
	unsigned long count;

	if (!file || fscanf(file, "%lu", &count) != 1)
		die("huge_faults");
	fclose(file);
	return count;
}

/* The threads touch their parts of a mapping: the time of that, and of unmapping. */
static void once(int device, off_t choice, size_t bytes, size_t step, unsigned int threads,
		 uint64_t *touched, uint64_t *unmapped)
{
	struct part parts[THREADS_MAX];
	pthread_t ids[THREADS_MAX];
	pthread_barrier_t barrier;
	volatile char *start;
	unsigned int i;
	uint64_t began = UINT64_MAX, ended = 0, time;

	start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device, choice * HUGE_BYTES);
	if (start == MAP_FAILED)
		die("mmap");
	pthread_barrier_init(&barrier, NULL, threads);
	for (i = 0; i < threads; i++) {
		parts[i] = (struct part) { .start = start + bytes / threads * i,
					   .bytes = bytes / threads, .step = step,
					   .barrier = &barrier };
		errno = pthread_create(&ids[i], NULL, touch, &parts[i]);
		if (errno)
			die("pthread_create");
	}
	for (i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		began = parts[i].began < began ? parts[i].began : began;
		ended = parts[i].ended > ended ? parts[i].ended : ended;
	}
	*touched = ended - began;
	time = __rdtsc();
	if (munmap((void *)start, bytes))
		die("munmap");
	*unmapped = __rdtsc() - time;
}

int main(int argc, char **argv)
{
	static uint64_t touched[ROUNDS_MAX], unmapped[ROUNDS_MAX];
	unsigned long source = 0, order, threads, bytes, rounds, round, blocks, huge;
	int device;

	if (argc != 6)
		goto usage;
	while (source < 3 && strcmp(argv[1], sources[source]))
		source++;
	order = strtoul(argv[2], NULL, 10);
	threads = strtoul(argv[3], NULL, 10);
	bytes = strtoul(argv[4], NULL, 10) << 20;
	rounds = strtoul(argv[5], NULL, 10);
	if (source == 3 || (order && order != 9) || !threads || threads > THREADS_MAX || !rounds ||
	    rounds > ROUNDS_MAX || !bytes || bytes % (HUGE_BYTES * threads))
		goto usage;
	device = open("/dev/freehold", O_RDWR);
	if (device < 0)
		die("/dev/freehold");
	blocks = bytes / (4096ul << order);
	huge = huge_faults();
	for (round = 0; round < rounds; round++)
		once(device, source + (order ? 3 : 0), bytes, 4096ul << order, threads,
		     &touched[round], &unmapped[round]);
	huge = huge_faults() - huge;
	qsort(touched, rounds, sizeof(*touched), by_value);
	qsort(unmapped, rounds, sizeof(*unmapped), by_value);
	printf("freehold: result: run=fault threads=%lu order=%lu from=%s mapped_by=%s "
	       "touch_min=%lu touch_median=%lu unmap_min=%lu unmap_median=%lu\n",
	       threads, order, argv[1], order ? (huge ? "pmd" : "512-ptes") : "pte",
	       touched[0] / blocks, touched[rounds / 2] / blocks, unmapped[0] / blocks,
	       unmapped[rounds / 2] / blocks);
	return 0;
usage:
	fprintf(stderr, "usage: touch-pages ours|linux|ready 0|9 THREADS MIB ROUNDS\n"
			"(MIB in 2 MiB a thread; at most 16 threads and 1000 rounds)\n");
	return 2;
}
