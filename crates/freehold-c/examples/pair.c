/* What an allocation and free of a frame takes: with the arena's functions, by a lease of this
 * thread's, and with automatic leases. An argument is the number of pairs, in millions. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <time.h>

#define MIB ((size_t)1 << 20)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* The nanoseconds of the fastest of ten rounds. */
#define BEST(pairs, pair)                                                                 \
    double best = 1e18;                                                                   \
    for (int round = 0; round < 10; round++) {                                            \
        double start = now();                                                             \
        for (size_t turn = 0; turn < (pairs) / 10; turn++) {                              \
            void *block;                                                                  \
            pair                                                                          \
        }                                                                                 \
        double took = (now() - start) / ((double)(pairs) / 10);                           \
        best = took < best ? took : best;                                                 \
    }                                                                                     \
    return best

static double by_arena(const freehold_arena *arena, size_t pairs)
{
    BEST(pairs, OK(freehold_alloc(arena, 0, &block)); OK(freehold_free(arena, block)););
}

static double by_lease(const freehold_lease *lease, size_t pairs)
{
    BEST(pairs, OK(freehold_lease_alloc(lease, 0, &block)); OK(freehold_lease_free(lease, block)););
}

int main(int count, char **arguments)
{
    size_t pairs = (count > 1 ? (size_t)atoi(arguments[1]) : 1) * 1000000;
    freehold_options options = { .size = sizeof options, .bytes = 64 * MIB };
    freehold_arena *arena;
    OK(freehold_arena_new(&options, &arena));
    printf("arena             %5.1f ns\n", by_arena(arena, pairs));
    freehold_lease *lease;
    if (freehold_lease_begin(arena, &lease) == FREEHOLD_OK) {
        printf("lease             %5.1f ns\n", by_lease(lease, pairs));
        freehold_lease_end(lease);
    }
    freehold_arena_destroy(arena);
    options.flags = FREEHOLD_LEASES;
    OK(freehold_arena_new(&options, &arena));
    printf("automatic leases  %5.1f ns\n", by_arena(arena, pairs));
    freehold_arena_destroy(arena);
    return 0;
}
