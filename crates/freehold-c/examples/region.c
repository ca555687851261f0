/* An arena on memory of the program's own; a signal handler that allocates there. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <signal.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static char memory[9 * MIB];
static freehold_arena *arena;
static volatile sig_atomic_t handled;

/* Allocates and frees without waiting for what it has interrupted. */
static void on_signal(int number)
{
    (void)number;
    freehold_request request = { .size = sizeof request, .flags = FREEHOLD_NOWAIT };
    void *block;
    freehold_error error = freehold_alloc_with(arena, 0, &request, &block);
    if (error == FREEHOLD_OK)
        error = freehold_free_nowait(arena, block);
    handled += error == FREEHOLD_OK;
}

int main(void)
{
    /* The arena begins at a multiple of a pageblock, and at first has one. */
    freehold_options options = { .size = sizeof options, .bytes = 2 * MIB };
    OK(freehold_arena_from_region(memory, sizeof memory, &options, &arena));
    freehold_stats stats = { .size = sizeof stats };
    OK(freehold_stats_get(arena, &stats));
    CHECK(stats.managed * stats.frame_bytes == 2 * MIB);
    CHECK(stats.capacity_bytes >= 7 * MIB && stats.capacity_bytes <= sizeof memory);
    /* An arena grows by whole pageblocks. */
    OK(freehold_grow(arena, stats.capacity_bytes / (2 * MIB) * (2 * MIB) - 2 * MIB));
    EXPECT(FREEHOLD_ECAPACITY, freehold_grow(arena, 1));
    OK(freehold_shrink(arena, 2 * MIB));

    struct sigaction action = { .sa_handler = on_signal };
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    char *block;
    for (int round = 0; round < 100; round++) {
        OK(freehold_alloc_bytes(arena, 10000, (void **)&block));
        CHECK(block >= memory && block + 10000 <= memory + sizeof memory);
        memset(block, 3, 10000);
        CHECK(raise(SIGUSR1) == 0);
        OK(freehold_free(arena, block));
    }
    CHECK(handled == 100);

    OK(freehold_alloc(arena, 0, (void **)&block));
    memset(block, 5, 100);
    freehold_arena_destroy(arena);
    CHECK(block[0] == 5);
    puts("the memory is the program's again: fine");
    return 0;
}
