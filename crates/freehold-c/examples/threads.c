/* Threads with automatic leases pass blocks to each other; some race to free the same ones. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define THREADS 4
#define ROUNDS 4000
#define SLOTS 64

static freehold_arena *arena;
static _Atomic(void *) slots[SLOTS];
static _Atomic(void *) contended;
static atomic_int freed;
static pthread_barrier_t barrier;

static void *exchange(void *seed)
{
    unsigned state = (unsigned)(size_t)seed * 2654435761u + 1;
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 1664525u + 1013904223u;
        void *block;
        if (state >> 29 == 0)
            OK(freehold_alloc_bytes(arena, (state >> 9) % 100000 + 1, &block));
        else
            OK(freehold_alloc(arena, (state >> 20) % 4, &block));
        memcpy(block, &round, sizeof round);
        void *other = atomic_exchange(&slots[(state >> 10) % SLOTS], block);
        if (other != NULL)
            OK(freehold_free(arena, other));
    }
    return NULL;
}

/* Of all threads that free one range, one succeeds; all of it is free then. */
static void *race(void *unused)
{
    (void)unused;
    for (int round = 0; round < 200; round++) {
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
            void *range;
            OK(freehold_alloc_range(arena, (size_t)(round + 1) * 12288, 0, NULL, &range));
            atomic_store(&contended, range);
            atomic_store(&freed, 0);
        }
        pthread_barrier_wait(&barrier);
        freehold_error error = freehold_free(arena, atomic_load(&contended));
        CHECK(error == FREEHOLD_OK || error == FREEHOLD_EDOUBLEFREE);
        atomic_fetch_add(&freed, error == FREEHOLD_OK);
        pthread_barrier_wait(&barrier);
        CHECK(atomic_load(&freed) == 1);
    }
    return NULL;
}

/* A lease is one thread's. */
static void *use_lease_of_another(void *lease)
{
    void *block;
    EXPECT(FREEHOLD_ETHREAD, freehold_lease_alloc(lease, 0, &block));
    EXPECT(FREEHOLD_ETHREAD, freehold_lease_renew(lease));
    return NULL;
}

static void run(void *(*work)(void *))
{
    pthread_t threads[THREADS];
    for (size_t thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, work, (void *)thread) == 0);
    for (size_t thread = 0; thread < THREADS; thread++)
        CHECK(pthread_join(threads[thread], NULL) == 0);
}

int main(void)
{
    freehold_options options = {
        .size = sizeof options, .bytes = 128 * MIB, .flags = FREEHOLD_LEASES
    };
    OK(freehold_arena_new(&options, &arena));
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    run(exchange);
    run(race);
    for (int slot = 0; slot < SLOTS; slot++)
        if (slots[slot] != NULL)
            OK(freehold_free(arena, slots[slot]));

    freehold_lease *lease;
    pthread_t other;
    if (freehold_lease_begin(arena, &lease) == FREEHOLD_OK) {
        CHECK(pthread_create(&other, NULL, use_lease_of_another, lease) == 0);
        CHECK(pthread_join(other, NULL) == 0);
        void *block;
        OK(freehold_lease_alloc(lease, 0, &block));
        OK(freehold_free(arena, block));
        OK(freehold_purge(arena, NULL));
        OK(freehold_lease_alloc(lease, 2, &block));
        OK(freehold_lease_free(lease, block));
        EXPECT(FREEHOLD_EDOUBLEFREE, freehold_lease_free(lease, block));
        freehold_lease_end(lease);
    }

    freehold_census census = { .size = sizeof census };
    OK(freehold_validate(arena, &census));
    CHECK(census.allocated == 0);
    CHECK(pthread_barrier_destroy(&barrier) == 0);
    freehold_arena_destroy(arena);
    puts("nothing was lost, nothing was freed twice: fine");
    return 0;
}
