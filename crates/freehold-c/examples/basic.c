/* An arena, allocations of all kinds, statistics. */
#include "check.h"

#include <string.h>

#define MIB ((size_t)1 << 20)

int main(void)
{
    freehold_options options = { .size = sizeof options, .bytes = 64 * MIB };
    freehold_arena *arena;
    OK(freehold_arena_new(&options, &arena));
    size_t page = freehold_frame_bytes(arena);

    /* A block of 2^3 frames, freed by its address alone. */
    void *block;
    OK(freehold_alloc(arena, 3, &block));
    memset(block, 7, 8 * page);
    OK(freehold_free(arena, block));

    /* By bytes, and with wishes. */
    size_t usable;
    OK(freehold_alloc_bytes(arena, 5 * page, &block));
    OK(freehold_usable_bytes(arena, block, &usable));
    CHECK(usable == 8 * page);
    OK(freehold_free_sized(arena, block, 5 * page));

    freehold_request request = { .size = sizeof request, .migratetype = FREEHOLD_UNMOVABLE };
    OK(freehold_alloc_with(arena, 0, &request, &block));
    OK(freehold_free(arena, block));

    /* A range of any size, aligned, and many frames at once. */
    OK(freehold_alloc_range(arena, 5 * MIB + 1, MIB, NULL, &block));
    CHECK((size_t)block % MIB == 0);
    OK(freehold_usable_bytes(arena, block, &usable));
    CHECK(usable == 5 * MIB + page);
    memset(block, 1, usable);
    OK(freehold_discard(arena, block, MIB));
    CHECK(((char *)block)[0] == 0 && ((char *)block)[MIB] == 1);
    OK(freehold_free(arena, block));

    void *blocks[1000];
    size_t got, freed;
    OK(freehold_alloc_bulk(arena, 0, NULL, blocks, 1000, &got));
    CHECK(got == 1000);
    OK(freehold_free_bulk(arena, blocks, got, &freed));
    CHECK(freed == got);

    /* A lease: caches of this thread's own. */
    freehold_lease *lease;
    freehold_error leased = freehold_lease_begin(arena, &lease);
    if (leased == FREEHOLD_OK) {
        for (int round = 0; round < 1000; round++) {
            OK(freehold_lease_alloc(lease, 0, &block));
            OK(freehold_lease_free(lease, block));
        }
        OK(freehold_lease_renew(lease));
        freehold_lease_end(lease);
    } else {
        EXPECT(FREEHOLD_ENOBARRIER, leased);
    }

    OK(freehold_purge(arena, &freed));
    printf("purged %zu MiB\n", freed / MIB);

    freehold_stats stats = { .size = sizeof stats };
    OK(freehold_stats_get(arena, &stats));
    CHECK(stats.allocated == 0 && stats.allocated_total == stats.freed_total);
    char text[1024];
    size_t length;
    OK(freehold_stats_text(arena, FREEHOLD_TEXT_JSON, text, sizeof text, &length));
    CHECK(length < sizeof text && strlen(text) == length);
    puts(text);
    OK(freehold_validate(arena, NULL));
    freehold_arena_destroy(arena);
    printf("freehold %s: fine\n", freehold_version());
    return 0;
}
