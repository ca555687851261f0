// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Loads on the page allocator of the kernel that runs it.
 *
 *     exercise faults processes|threads WORKERS MIB ROUNDS [huge|file]
 *         each worker maps memory, or copies of a file's pages in memory, touches each page, checks
 *         each page, and unmaps it, again and again; prints what a page costs the first one: faults,
 *         and what unmapping frees. Time is the CPU's counter, which under QEMU with -icount counts
 *         instructions
 *     exercise load SECONDS
 *         the same of two processes, of differing sizes, until time is up
 *     exercise oom
 *         a process takes memory until it is killed, which must not be before it has most of what
 *         is free
 *     exercise reclaim DISK [PIPES]
 *         reads 512 MiB of it once, and 80 MiB again and again meanwhile, which share pageblocks;
 *         most of the latter must stay in memory. Makes pipes meanwhile, each of which needs a block
 *         of order 2, for which only so many pages may move
 *     exercise stranded MIB
 *         a process touches memory on the last of three CPUs or more, which goes offline; frees it
 *         on CPU 1, but for a page of each 2 MiB; and has CPU 1 go offline. No cache may keep that
 *     exercise hugetlb PAGES
 *         maps that many pages of the pool and checks them
 *     exercise fork PROCESSES
 *         as many live at the same time, since the kernel's stacks come in bulk
 *
 * A page that has another content than it was given ends it: another process has that page, too.
 *
 * Exit codes: 0 done, 1 it failed, 2 bad arguments.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#include "workers.h"

/* For each pipe, on average: some ten do. To empty a pageblock takes hundreds. */
#define PIPE_MOVES_MAX	64

/* A copy of its file: each page that is written to is copied. */
static char *map_copy(const struct worker *self)
{
	char *start = mmap(NULL, self->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, self->file, 0);

	if (start == MAP_FAILED)
		die("mmap");
	return start;
}

/* A file in memory, as large as a worker's. */
static int make_file(size_t bytes)
{
	uint64_t page[PAGE_BYTES / 8];
	int file = memfd_create("file", 0);
	size_t at;

	for (at = 0; at < PAGE_BYTES / 8; at++)
		page[at] = FILE_WORD;
	for (at = 0; at < bytes; at += PAGE_BYTES)
		if (write(file, page, PAGE_BYTES) != (ssize_t)PAGE_BYTES)
			die("memfd");
	return file;
}

static void once(struct worker *self, unsigned long round)
{
	size_t length = self->bytes + (self->huge ? HUGE_BYTES : 0);
	uint64_t began, touched, unmapped;
	char *all = self->file ? map_copy(self) : map(length, 0), *start = all;

	if (self->huge) {
		start = (char *)(((uintptr_t)all + HUGE_BYTES - 1) & -HUGE_BYTES);
		if (madvise(all, length, MADV_HUGEPAGE))
			die("madvise");
	}
	began = __rdtsc();
	fill(self, start, round);
	touched = __rdtsc() - began;
	check(self, start, round);
	began = __rdtsc();
	if (munmap(all, length))
		die("munmap");
	unmapped = __rdtsc() - began;
	if (touched < self->touched)
		self->touched = touched;
	if (unmapped < self->unmapped)
		self->unmapped = unmapped;
}

static void *work(void *of)
{
	struct worker *self = of;
	cpu_set_t cpus;
	unsigned long round;

	CPU_ZERO(&cpus);
	CPU_SET(self->nth % sysconf(_SC_NPROCESSORS_ONLN), &cpus);
	/* It may fail where CPUs come and go, and matters to figures only. */
	sched_setaffinity(0, sizeof(cpus), &cpus);
	for (round = 0; self->rounds ? round < self->rounds : time(NULL) < self->deadline; round++)
		once(self, round);
	return NULL;
}

/* Runs all workers; returns whether all ended well. */
static int run(struct worker *workers, unsigned int many, int threads)
{
	pthread_t thread[WORKERS_MAX];
	pid_t child[WORKERS_MAX];
	unsigned int i;
	int well = 1;

	for (i = 0; i < many; i++) {
		if (threads) {
			errno = pthread_create(&thread[i], NULL, work, &workers[i]);
			if (errno)
				die("pthread_create");
			continue;
		}
		child[i] = fork();
		if (child[i] < 0)
			die("fork");
		if (!child[i]) {
			work(&workers[i]);
			_exit(0);
		}
	}
	for (i = 0; i < many; i++) {
		if (threads)
			pthread_join(thread[i], NULL);
		else
			well &= ended_well(child[i]);
	}
	return well;
}

/* The sum of the figures that follow a name in a file; 0 if there is no such file. */
static unsigned long sum_of(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	unsigned long sum = 0, one;
	char line[128], word[64];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %lu", word, &one) == 2 && !strcmp(word, name))
			sum += one;
	if (file)
		fclose(file);
	return sum;
}

static struct worker *shared_workers(void)
{
	struct worker *workers = mmap(NULL, WORKERS_MAX * sizeof(*workers), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (workers == MAP_FAILED)
		die("mmap");
	return workers;
}

static int faults(const char *kind, unsigned int many, size_t mib, unsigned long rounds,
		  const char *page)
{
	struct worker *workers = shared_workers();
	int huge = !strcmp(page, "2MiB"), threads = !strcmp(kind, "threads");
	size_t step = huge ? HUGE_BYTES : PAGE_BYTES;
	unsigned long huge_pages = sum_of("/proc/vmstat", "thp_fault_alloc");
	unsigned int i;

	if (!many || many > WORKERS_MAX || !mib || !rounds || (!threads && strcmp(kind, "processes")))
		return 2;
	for (i = 0; i < many; i++)
		workers[i] = (struct worker) { .touched = UINT64_MAX, .unmapped = UINT64_MAX,
					       .bytes = mib << 20, .step = step,
					       .rounds = rounds, .nth = i, .huge = huge,
					       .file = strcmp(page, "file") ? 0
									    : make_file(mib << 20) };
	if (!run(workers, many, threads))
		return 1;
	huge_pages = sum_of("/proc/vmstat", "thp_fault_alloc") - huge_pages;
	printf("freehold: result: run=faults kind=%s workers=%u page=%s huge_pages=%lu "
	       "touch_min=%lu unmap_min=%lu\n", kind, many, page, huge_pages,
	       workers[0].touched / (workers[0].bytes / step),
	       workers[0].unmapped / (workers[0].bytes / step));
	/* Memory may be too scattered for some, but not for all. */
	return huge && !huge_pages;
}

static int load(unsigned long seconds)
{
	struct worker *workers = shared_workers();
	unsigned int i;

	for (i = 0; i < 2; i++)
		workers[i] = (struct worker) { .bytes = (i + 1) * 12ul << 20, .step = PAGE_BYTES,
					       .deadline = time(NULL) + seconds, .nth = i };
	return !run(workers, 2, 0);
}

static int oom(void)
{
	unsigned long free_pages = sum_of("/proc/meminfo", "MemFree:") / 4;
	_Atomic unsigned long *taken = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE,
					    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = fork();
	int status;

	if (taken == MAP_FAILED || child < 0)
		die("fork");
	if (!child) {
		/* More than any machine of the tests has. */
		size_t bytes = 64ul << 30, at;
		FILE *score = fopen("/proc/self/oom_score_adj", "w");
		char *start;

		if (!score || fputs("1000", score) < 0 || fclose(score))
			die("oom_score_adj");
		start = map(bytes, MAP_NORESERVE);
		for (at = 0; at < bytes; at += PAGE_BYTES) {
			start[at] = 1;
			++*taken;
		}
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child)
		die("waitpid");
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		fprintf(stderr, "exercise: not killed: status %x\n", status);
		return 1;
	}
	printf("freehold: result: run=oom free_pages=%lu taken=%lu\n", free_pages, *taken);
	return *taken < free_pages / 10 * 9;
}

static unsigned long reclaimed_pages(void)
{
	return sum_of("/proc/vmstat", "pgsteal_kswapd") + sum_of("/proc/vmstat", "pgsteal_direct");
}

static void read_page(int disk, unsigned long page)
{
	char buffer[PAGE_BYTES];

	if (pread(disk, buffer, PAGE_BYTES, page * PAGE_BYTES) != (ssize_t)PAGE_BYTES)
		die("pread");
}

/* A pipe of 1 MiB, whose ring takes a block of order 2. */
static void make_pipe(void)
{
	int ends[2];

	if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) < 0)
		die("pipe");
}

static int reclaim(const char *path, unsigned long pipes)
{
	const unsigned long hot = 20480, cold = 131072;
	unsigned long moved = sum_of("/proc/vmstat", "pgmigrate_success");
	unsigned long before = sum_of("/proc/vmstat", "pgpgin"), reclaimed = reclaimed_pages();
	unsigned long i, again, free_min = -1ul;
	int disk = open(path, O_RDONLY);

	if (disk < 0)
		die(path);
	/* One page a read. */
	errno = posix_fadvise(disk, 0, 0, POSIX_FADV_RANDOM);
	if (errno)
		die("posix_fadvise");
	for (i = 0; i < cold; i++) {
		read_page(disk, i % hot);
		read_page(disk, hot + i);
		if (pipes && i % (cold / pipes) == 0)
			make_pipe();
		if (i % 256 == 0) {
			unsigned long free_pages = sum_of("/proc/vmstat", "nr_free_pages");

			free_min = free_pages < free_min ? free_pages : free_min;
		}
	}
	/* In KiB; less what was read for the first time. */
	again = (sum_of("/proc/vmstat", "pgpgin") - before) / 4 - hot - cold;
	reclaimed = reclaimed_pages() - reclaimed;
	moved = sum_of("/proc/vmstat", "pgmigrate_success") - moved;
	printf("freehold: result: run=%s read_again=%lu reclaimed=%lu free_min=%lu moved=%lu\n",
	       pipes ? "pipes" : "reclaim", again, reclaimed, free_min, moved);
	return again > hot / 4 || (pipes && moved > pipes * PIPE_MOVES_MAX);
}

static void set_online(long cpu, int online)
{
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%ld/online", cpu);
	file = fopen(path, "w");
	if (!file || fprintf(file, "%d", online) < 0 || fclose(file))
		die(path);
}

static unsigned long cached_pages(void)
{
	return sum_of("/sys/kernel/debug/freehold/stat", "nr_pcp_pages");
}

static int stranded(size_t mib)
{
	long last = sysconf(_SC_NPROCESSORS_ONLN) - 1;
	struct worker self = { .bytes = mib << 20, .step = PAGE_BYTES };
	unsigned long before, after;
	char *start;
	size_t at;

	if (last < 2)
		die("not enough CPUs");
	set_online(last, 0);
	set_online(1, 0);
	before = cached_pages();
	set_online(1, 1);
	set_online(last, 1);
	move_to(last);
	start = map(self.bytes, 0);
	fill(&self, start, 0);
	set_online(last, 0);
	check(&self, start, 0);
	move_to(1);
	for (at = 0; at < self.bytes; at += HUGE_BYTES)
		if (madvise(start + at, HUGE_BYTES - PAGE_BYTES, MADV_DONTNEED))
			die("madvise");
	set_online(1, 0);
	after = cached_pages();
	set_online(1, 1);
	set_online(last, 1);
	printf("freehold: result: run=stranded cached_before=%lu cached_after=%lu freed=%lu\n",
	       before, after, self.bytes / PAGE_BYTES);
	return after > before + self.bytes / PAGE_BYTES / 2;
}

static int hugetlb(size_t pages)
{
	char *start = map(pages * HUGE_BYTES, MAP_HUGETLB);
	size_t at;

	for (at = 0; at < pages * HUGE_BYTES; at += PAGE_BYTES)
		*(size_t *)(start + at) = at;
	for (at = 0; at < pages * HUGE_BYTES; at += PAGE_BYTES) {
		if (*(size_t *)(start + at) != at) {
			fprintf(stderr, "freehold: error: content of huge pages at %zx\n", at);
			return 1;
		}
	}
	if (munmap(start, pages * HUGE_BYTES))
		die("munmap");
	printf("freehold: result: run=hugetlb pages=%zu\n", pages);
	return 0;
}

static int fork_many(unsigned int many)
{
	pid_t *children = calloc(many, sizeof(*children));
	unsigned int i;
	int pipes[2], well = 1;

	if (!children || pipe(pipes))
		die("pipe");
	for (i = 0; i < many; i++) {
		char byte;

		children[i] = fork();
		if (children[i] < 0)
			die("fork");
		if (!children[i]) {
			/* Until the parent has them all. */
			close(pipes[1]);
			_exit(read(pipes[0], &byte, 1) != 0);
		}
	}
	close(pipes[1]);
	for (i = 0; i < many; i++)
		well &= ended_well(children[i]);
	printf("freehold: result: run=fork processes=%u\n", many);
	return !well;
}

static unsigned long number(const char *text)
{
	return strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	int status = 2;

	if (!strcmp(what, "faults") && argc == 6)
		status = faults(argv[2], number(argv[3]), number(argv[4]), number(argv[5]), "4KiB");
	else if (!strcmp(what, "faults") && argc == 7 && !strcmp(argv[6], "huge"))
		status = faults(argv[2], number(argv[3]), number(argv[4]), number(argv[5]), "2MiB");
	else if (!strcmp(what, "faults") && argc == 7 && !strcmp(argv[6], "file"))
		status = faults(argv[2], number(argv[3]), number(argv[4]), number(argv[5]), "file");
	else if (!strcmp(what, "load") && argc == 3)
		status = load(number(argv[2]));
	else if (!strcmp(what, "oom") && argc == 2)
		status = oom();
	else if (!strcmp(what, "reclaim") && argc >= 3 && argc <= 4)
		status = reclaim(argv[2], argc == 4 ? number(argv[3]) : 0);
	else if (!strcmp(what, "stranded") && argc == 3)
		status = stranded(number(argv[2]));
	else if (!strcmp(what, "hugetlb") && argc == 3)
		status = hugetlb(number(argv[2]));
	else if (!strcmp(what, "fork") && argc == 3)
		status = fork_many(number(argv[2]));
	if (status == 2)
		fprintf(stderr, "exercise: bad arguments: see exercise.c\n");
	return status;
}
