/* Arenas of shared memory, of a file, of huge pages: what the machine gives, and when. */
#define _GNU_SOURCE
#include "check.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static size_t offset_in_file(const freehold_arena *arena, const char *block)
{
    return (size_t)(block - (const char *)freehold_base(arena));
}

/* Memory that another process could map as well. Here the second mapping is our own. */
static void shared_memory(void)
{
    freehold_options options = {
        .size = sizeof options,
        .bytes = 8 * MIB,
        .capacity_bytes = 16 * MIB,
        .flags = FREEHOLD_GUARD_PAGES | FREEHOLD_MIN_FREE, /* all of it is ours */
        .backing = FREEHOLD_MEMFD,
        .numa = FREEHOLD_NUMA_MACHINE,
    };
    freehold_arena *arena;
    OK(freehold_arena_new(&options, &arena));
    int file = freehold_file(arena);
    CHECK(file >= 0);
    char *other = mmap(NULL, 16 * MIB, PROT_READ, MAP_SHARED, file, 0);
    CHECK(other != MAP_FAILED);

    char *blocks[4];
    for (int at = 0; at < 4; at++) {
        OK(freehold_alloc(arena, 9, (void **)&blocks[at])); /* four blocks of 2 MiB: all of it */
        memset(blocks[at], at + 1, 2 * MIB);
    }
    for (int at = 0; at < 4; at++) {
        const char *seen = other + offset_in_file(arena, blocks[at]);
        CHECK(seen[0] == at + 1 && seen[2 * MIB - 1] == at + 1);
    }
    /* A hole in the file: it reads as zero in every mapping. */
    OK(freehold_discard(arena, blocks[2], 2 * MIB));
    CHECK(other[offset_in_file(arena, blocks[2])] == 0 && blocks[2][5] == 0);
    for (int at = 0; at < 4; at++)
        OK(freehold_free(arena, blocks[at]));
    CHECK(munmap(other, 16 * MIB) == 0);
    freehold_arena_destroy(arena);
}

/* The content of a file, which is there again when the file is used the next time. */
static void file(void)
{
    char name[] = "/tmp/freehold-XXXXXX";
    int file = mkstemp(name);
    CHECK(file >= 0 && unlink(name) == 0);
    freehold_options options = {
        .size = sizeof options, .bytes = 4 * MIB, .backing = FREEHOLD_FILE, .file = file,
    };
    freehold_arena *arena;
    OK(freehold_arena_new(&options, &arena));
    CHECK(freehold_file(arena) != file);
    char *block;
    OK(freehold_alloc_bytes(arena, 100000, (void **)&block));
    strcpy(block, "kept");
    off_t offset = (off_t)offset_in_file(arena, block);
    freehold_arena_destroy(arena);
    char text[5];
    CHECK(pread(file, text, 5, offset) == 5 && strcmp(text, "kept") == 0);
    CHECK(lseek(file, 0, SEEK_END) >= (off_t)(4 * MIB));
    CHECK(close(file) == 0);
}

/* Memory that is there before it is touched. */
static void prefaulted(void)
{
    freehold_options options = {
        .size = sizeof options,
        .bytes = 8 * MIB,
        .flags = FREEHOLD_OR_PRIVATE | FREEHOLD_MIN_FREE,
        .min_free_bytes = 2 * MIB,
        .backing = FREEHOLD_HUGETLB,
        .huge_page_bytes = 2 * MIB,
        .prefault_threads = 2,
    };
    freehold_arena *arena;
    freehold_error error = freehold_arena_new(&options, &arena);
    if (error == FREEHOLD_ESYSTEM) { /* a kernel that cannot populate, or valgrind */
        options.prefault_threads = 0;
        error = freehold_arena_new(&options, &arena);
    }
    OK(error);
    char *blocks[4] = { 0 };
    int count = 0;
    while (freehold_alloc(arena, 9, (void **)&blocks[count]) == FREEHOLD_OK)
        count++;
    CHECK(count == 3); /* 2 MiB are kept back */
    error = freehold_prefault(arena, blocks[0], 2 * MIB, 2);
    CHECK(error == FREEHOLD_OK || error == FREEHOLD_ESYSTEM);
    EXPECT(FREEHOLD_EALIGN, freehold_prefault(arena, blocks[0] + 1, 4096, 1));
    EXPECT(FREEHOLD_ENULL, freehold_prefault(NULL, blocks[0], 4096, 1));
    CHECK(freehold_file(arena) == -1);
    while (count > 0)
        OK(freehold_free(arena, blocks[--count]));
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_prefault(arena, blocks[0], 4096, 1));
    freehold_arena_destroy(arena);
}

int main(void)
{
    shared_memory();
    file();
    prefaulted();
    puts("memory of a memfd, a file and huge pages: fine");
    return 0;
}
