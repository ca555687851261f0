/* A program that does everything wrong: it gets error codes, and the arena loses nothing. */
#include "check.h"

#include <stdint.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

/* Says where all frames are; they must be consistent. */
static freehold_census census(const freehold_arena *arena)
{
    freehold_census census = { .size = sizeof census };
    OK(freehold_validate(arena, &census));
    CHECK(census.managed ==
          census.allocated + census.free + census.per_cpu + census.isolated);
    return census;
}

static void wrong_arenas(void)
{
    freehold_arena *arena = (void *)1;
    freehold_options options = { .size = sizeof options };
    EXPECT(FREEHOLD_ENULL, freehold_arena_new(NULL, &arena));
    CHECK(arena == NULL);
    EXPECT(FREEHOLD_ENULL, freehold_arena_new(&options, NULL));
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
    char why[200];
    CHECK(freehold_last_message(why, sizeof why) == strlen(why));
    CHECK(strstr(why, "bytes") != NULL);
    CHECK(freehold_last_message(why, 4) > 4 && strlen(why) == 3);
    CHECK(freehold_last_message(NULL, 0) > 4);

    options.bytes = SIZE_MAX;
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
    options.bytes = (size_t)1 << 46;
    CHECK(freehold_arena_new(&options, &arena) != FREEHOLD_OK && arena == NULL);
    options.bytes = MIB;
    options.size = 0;
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
    options.size = SIZE_MAX;
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
    options.size = sizeof options;
    options.flags = 1u << 31;
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
    options.flags = 0;
    options.frame_bytes = 5000;
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
    options.frame_bytes = 0;
    options.nodes = 10000;
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
    options.nodes = 0;
    options.cpus = UINT32_MAX;
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));

    /* Each of these lacks something, or does not go with the rest. */
    const freehold_options wrong[] = {
        { .flags = FREEHOLD_SHARED },
        { .flags = FREEHOLD_OR_PRIVATE },
        { .backing = 9 },
        { .backing = FREEHOLD_HUGETLB },
        { .backing = FREEHOLD_HUGETLB, .huge_page_bytes = 5000 },
        { .backing = FREEHOLD_MEMFD, .huge_page_bytes = 2 * MIB },
        { .backing = FREEHOLD_FILE, .file = -1 },
        { .backing = FREEHOLD_FILE, .file = 1 << 30 },
        { .file = 2 },
        { .min_free_bytes = MIB },
        { .numa = 5 },
        { .reserved = 1 },
    };
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        options = wrong[at];
        options.size = sizeof options;
        options.bytes = MIB;
        EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
        CHECK(arena == NULL && freehold_last_message(NULL, 0) > 4);
    }

    char small[100];
    EXPECT(FREEHOLD_ENULL, freehold_arena_from_region(NULL, MIB, NULL, &arena));
    EXPECT(FREEHOLD_EINVAL, freehold_arena_from_region(small, sizeof small, NULL, &arena));
    EXPECT(FREEHOLD_EINVAL, freehold_arena_from_region(small, SIZE_MAX, NULL, &arena));
    EXPECT(FREEHOLD_EINVAL, freehold_arena_from_region(small, 0, NULL, &arena));
    static char region[6 * MIB];
    const freehold_options not_of_regions[] = {
        { .flags = FREEHOLD_GUARD_PAGES },
        { .backing = FREEHOLD_MEMFD },
        { .file = 1 },
        { .huge_page_bytes = 2 * MIB },
    };
    for (size_t at = 0; at < sizeof not_of_regions / sizeof *not_of_regions; at++) {
        options = not_of_regions[at];
        options.size = sizeof options;
        EXPECT(FREEHOLD_EINVAL,
               freehold_arena_from_region(region, sizeof region, &options, &arena));
    }
    CHECK(freehold_file(NULL) == -1);

    /* Every failure has its own text, also after another one. */
    options = (freehold_options){ .size = 3 };
    EXPECT(FREEHOLD_EINVAL, freehold_arena_new(&options, &arena));
    freehold_last_message(why, sizeof why);
    CHECK(strcmp(why, freehold_strerror(FREEHOLD_EINVAL)) == 0);
    EXPECT(FREEHOLD_ENULL, freehold_arena_new(NULL, NULL));
    freehold_last_message(why, sizeof why);
    CHECK(strcmp(why, freehold_strerror(FREEHOLD_ENULL)) == 0);
    EXPECT(FREEHOLD_ENULL, freehold_discard(NULL, &why, 4096));
    EXPECT(FREEHOLD_ENULL, freehold_validate(NULL, NULL));
    freehold_last_message(why, sizeof why);
    CHECK(strcmp(why, freehold_strerror(FREEHOLD_ENULL)) == 0);
    freehold_arena_destroy(NULL);
}

static void null_everywhere(const freehold_arena *arena)
{
    void *block = (void *)1;
    size_t size = 1;
    freehold_lease *lease;
    EXPECT(FREEHOLD_ENULL, freehold_alloc(NULL, 0, &block));
    CHECK(block == NULL);
    EXPECT(FREEHOLD_ENULL, freehold_alloc(arena, 0, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_alloc_with(NULL, 0, NULL, &block));
    EXPECT(FREEHOLD_ENULL, freehold_alloc_with(arena, 0, NULL, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_alloc_bytes(NULL, 1, &block));
    EXPECT(FREEHOLD_ENULL, freehold_alloc_bytes(arena, 1, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_alloc_range(NULL, 1, 0, NULL, &block));
    EXPECT(FREEHOLD_ENULL, freehold_alloc_range(arena, 1, 0, NULL, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_alloc_bulk(NULL, 0, NULL, &block, 1, &size));
    CHECK(size == 0);
    EXPECT(FREEHOLD_ENULL, freehold_alloc_bulk(arena, 0, NULL, NULL, 1, &size));
    EXPECT(FREEHOLD_ENULL, freehold_alloc_bulk(arena, 0, NULL, &block, 1, NULL));
    OK(freehold_alloc_bulk(arena, 0, NULL, NULL, 0, &size));
    EXPECT(FREEHOLD_ENULL, freehold_free(NULL, &block));
    EXPECT(FREEHOLD_ENULL, freehold_free(arena, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_free_sized(NULL, &block, 1));
    EXPECT(FREEHOLD_ENULL, freehold_free_sized(arena, NULL, 1));
    EXPECT(FREEHOLD_ENULL, freehold_free_nowait(NULL, &block));
    EXPECT(FREEHOLD_ENULL, freehold_free_nowait(arena, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_free_bulk(NULL, &block, 1, &size));
    EXPECT(FREEHOLD_ENULL, freehold_free_bulk(arena, NULL, 1, &size));
    OK(freehold_free_bulk(arena, NULL, 0, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_usable_bytes(NULL, &block, &size));
    EXPECT(FREEHOLD_ENULL, freehold_usable_bytes(arena, NULL, &size));
    EXPECT(FREEHOLD_ENULL, freehold_usable_bytes(arena, &block, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_grow(NULL, 1));
    EXPECT(FREEHOLD_ENULL, freehold_shrink(NULL, 1));
    EXPECT(FREEHOLD_ENULL, freehold_purge(NULL, &size));
    EXPECT(FREEHOLD_ENULL, freehold_discard(NULL, &block, 1));
    EXPECT(FREEHOLD_ENULL, freehold_discard(arena, NULL, 1));
    EXPECT(FREEHOLD_ENULL, freehold_validate(NULL, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_stats_get(NULL, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_stats_get(arena, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_stats_text(NULL, 0, NULL, 0, &size));
    EXPECT(FREEHOLD_ENULL, freehold_stats_text(arena, 0, NULL, 1, NULL));
    OK(freehold_stats_text(arena, 0, NULL, 0, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_lease_begin(NULL, &lease));
    EXPECT(FREEHOLD_ENULL, freehold_lease_begin(arena, NULL));
    EXPECT(FREEHOLD_ENULL, freehold_lease_alloc(NULL, 0, &block));
    EXPECT(FREEHOLD_ENULL, freehold_lease_free(NULL, &block));
    EXPECT(FREEHOLD_ENULL, freehold_lease_renew(NULL));
    freehold_lease_end(NULL);
    CHECK(!freehold_contains(NULL, &block) && !freehold_contains(arena, NULL));
    CHECK(freehold_base(NULL) == NULL && freehold_frame_bytes(NULL) == 0);
    CHECK(freehold_is_full(FREEHOLD_ENOMEM) && freehold_is_full(FREEHOLD_EWATERMARK));
    CHECK(freehold_is_full(FREEHOLD_EBUSY) && !freehold_is_full(FREEHOLD_EWOULDWAIT));
    CHECK(!freehold_is_full(FREEHOLD_OK) && !freehold_is_full(-1));
    CHECK(freehold_strerror(-1) != NULL && freehold_strerror(1000) != NULL);
}

static void wrong_sizes(const freehold_arena *arena)
{
    void *block;
    EXPECT(FREEHOLD_EORDER, freehold_alloc(arena, 40, &block));
    EXPECT(FREEHOLD_EORDER, freehold_alloc(arena, UINT32_MAX, &block));
    EXPECT(FREEHOLD_ESIZE, freehold_alloc_bytes(arena, 0, &block));
    EXPECT(FREEHOLD_ENOMEM, freehold_alloc_bytes(arena, 100 * MIB, &block));
    EXPECT(FREEHOLD_ENOMEM, freehold_alloc_bytes(arena, SIZE_MAX, &block));
    EXPECT(FREEHOLD_ESIZE, freehold_alloc_range(arena, 0, 0, NULL, &block));
    EXPECT(FREEHOLD_ENOMEM, freehold_alloc_range(arena, SIZE_MAX, 0, NULL, &block));
    EXPECT(FREEHOLD_EALIGN, freehold_alloc_range(arena, 1, 3, NULL, &block));
    EXPECT(FREEHOLD_EALIGN, freehold_alloc_range(arena, 1, ~(SIZE_MAX >> 1), NULL, &block));

    freehold_request request = { .size = sizeof request, .flags = FREEHOLD_NOWAIT };
    size_t got;
    EXPECT(FREEHOLD_EINVAL, freehold_alloc_range(arena, 1, 0, &request, &block));
    EXPECT(FREEHOLD_EINVAL, freehold_alloc_bulk(arena, 0, &request, &block, 1, &got));
    request.flags = 1u << 30;
    EXPECT(FREEHOLD_EINVAL, freehold_alloc_with(arena, 0, &request, &block));
    request.flags = FREEHOLD_ONLY_NODE;
    request.node = 5000;
    EXPECT(FREEHOLD_ENODE, freehold_alloc_with(arena, 0, &request, &block));
    request.node = UINT32_MAX;
    EXPECT(FREEHOLD_ENODE, freehold_alloc_with(arena, 0, &request, &block));
    request.size = 3;
    EXPECT(FREEHOLD_EINVAL, freehold_alloc_with(arena, 0, &request, &block));
    EXPECT(FREEHOLD_ECAPACITY, freehold_grow(arena, MIB));
    EXPECT(FREEHOLD_ECAPACITY, freehold_grow(arena, SIZE_MAX));
    EXPECT(FREEHOLD_ECAPACITY, freehold_shrink(arena, SIZE_MAX));

    freehold_stats stats = { .size = 1 };
    EXPECT(FREEHOLD_EINVAL, freehold_stats_get(arena, &stats));
    freehold_census sized = { .size = SIZE_MAX };
    EXPECT(FREEHOLD_EINVAL, freehold_validate(arena, &sized));
    EXPECT(FREEHOLD_EINVAL, freehold_stats_text(arena, 99, NULL, 0, NULL));
}

/* Leaves one block allocated, and returns it. */
static void *wrong_frees(const freehold_arena *arena)
{
    size_t page = freehold_frame_bytes(arena), size;
    char *base = freehold_base(arena), *block;
    void *malloced = malloc(page);
    EXPECT(FREEHOLD_EFOREIGN, freehold_free(arena, malloced));
    EXPECT(FREEHOLD_EFOREIGN, freehold_free(arena, &size));
    EXPECT(FREEHOLD_EFOREIGN, freehold_free(arena, (void *)1));
    EXPECT(FREEHOLD_EFOREIGN, freehold_free(arena, (void *)UINTPTR_MAX));
    EXPECT(FREEHOLD_EFOREIGN, freehold_free(arena, base - 1));
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free(arena, base));
    free(malloced);

    /* Blocks: inside, twice, with another size. */
    OK(freehold_alloc(arena, 4, (void **)&block));
    EXPECT(FREEHOLD_EINTERIOR, freehold_free(arena, block + 1));
    EXPECT(FREEHOLD_EINTERIOR, freehold_free(arena, block + 4 * page));
    EXPECT(FREEHOLD_EINTERIOR, freehold_free_nowait(arena, block + 15 * page));
    EXPECT(FREEHOLD_EINTERIOR, freehold_usable_bytes(arena, block + page, &size));
    EXPECT(FREEHOLD_ESIZE, freehold_free_sized(arena, block, 0));
    EXPECT(FREEHOLD_ESIZE, freehold_free_sized(arena, block, 8 * page));
    EXPECT(FREEHOLD_ESIZE, freehold_free_sized(arena, block, 16 * page + 1));
    EXPECT(FREEHOLD_ESIZE, freehold_free_sized(arena, block, SIZE_MAX));
    OK(freehold_free_sized(arena, block, 9 * page));
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free(arena, block));
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free_sized(arena, block, 16 * page));
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free_nowait(arena, block));
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_usable_bytes(arena, block, &size));

    /* Ranges consist of several blocks, and are one allocation all the same. */
    for (size_t frames = 1; frames < 1500; frames += 1 + frames / 3) {
        OK(freehold_alloc_range(arena, frames * page, 0, NULL, (void **)&block));
        OK(freehold_usable_bytes(arena, block, &size));
        CHECK(size == frames * page);
        for (size_t frame = 1; frame < frames; frame++)
            EXPECT(FREEHOLD_EINTERIOR, freehold_free(arena, block + frame * page));
        EXPECT(FREEHOLD_ESIZE, freehold_free_sized(arena, block, (2 * frames + 1) * page));
        CHECK(census(arena).allocated == frames);
        OK(freehold_free_sized(arena, block, frames * page));
        for (size_t frame = 0; frame < frames; frame++)
            EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free(arena, block + frame * page));
        CHECK(census(arena).allocated == 0);
    }

    /* A bulk with a wrong pointer in the middle: those before it are freed. */
    void *blocks[300];
    OK(freehold_alloc_bulk(arena, 1, NULL, blocks, 300, &size));
    CHECK(size == 300);
    void *right = blocks[200];
    blocks[200] = blocks[10];
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free_bulk(arena, blocks, 300, &size));
    CHECK(size == 200 && census(arena).allocated == 200);
    blocks[200] = (char *)right + page;
    EXPECT(FREEHOLD_EINTERIOR, freehold_free_bulk(arena, blocks + 200, 100, &size));
    CHECK(size == 0 && census(arena).allocated == 200);
    blocks[200] = NULL;
    EXPECT(FREEHOLD_ENULL, freehold_free_bulk(arena, blocks + 200, 100, NULL));
    /* One of them twice in what is freed together. */
    blocks[200] = right;
    void *left = blocks[205];
    blocks[205] = blocks[202];
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free_bulk(arena, blocks + 200, 100, &size));
    CHECK(size == 5);
    blocks[205] = blocks[299];
    OK(freehold_free_bulk(arena, blocks + 205, 94, NULL));
    CHECK(census(arena).allocated == 2);
    return left;
}

static void wrong_discards(const freehold_arena *arena, void *left)
{
    size_t page = freehold_frame_bytes(arena);
    char *block;
    int local;
    OK(freehold_alloc(arena, 1, (void **)&block));
    EXPECT(FREEHOLD_EFOREIGN, freehold_discard(arena, &local, page));
    EXPECT(FREEHOLD_EALIGN, freehold_discard(arena, block + 1, page));
    EXPECT(FREEHOLD_ESIZE, freehold_discard(arena, block, 0));
    EXPECT(FREEHOLD_ESIZE, freehold_discard(arena, block, page + 1));
    EXPECT(FREEHOLD_ESIZE, freehold_discard(arena, block, ~(page - 1)));
    OK(freehold_discard(arena, block, 2 * page));
    OK(freehold_free(arena, block));
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_discard(arena, block, page));
    OK(freehold_free(arena, left));
}

static void exhaustion(const freehold_arena *arena)
{
    /* Each block's first word links it to the one before. */
    void **last = NULL, **block;
    size_t blocks = 0, freed = 0, got;
    freehold_error error;
    while ((error = freehold_alloc(arena, 0, (void **)&block)) == FREEHOLD_OK) {
        *block = last;
        last = block;
        blocks++;
    }
    CHECK(error == FREEHOLD_ENOMEM || error == FREEHOLD_EWATERMARK);
    CHECK(block == NULL && blocks > 1000);
    CHECK(freehold_alloc_bytes(arena, 3 * MIB, (void **)&block) != FREEHOLD_OK);
    EXPECT(FREEHOLD_ENOMEM, freehold_alloc_bulk(arena, 0, NULL, (void **)&block, 1, &got));
    CHECK(freehold_shrink(arena, 2 * MIB) != FREEHOLD_OK);
    freehold_request request = { .size = sizeof request, .flags = FREEHOLD_NOWAIT };
    CHECK(freehold_alloc_with(arena, 0, &request, (void **)&block) != FREEHOLD_OK);
    while ((block = last) != NULL) {
        last = *block;
        OK(freehold_free(arena, block));
        EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free(arena, block));
        freed++;
    }
    CHECK(freed == blocks);
}

int main(void)
{
    wrong_arenas();
    freehold_options options = { .size = sizeof options, .bytes = 16 * MIB };
    freehold_arena *arena;
    OK(freehold_arena_new(&options, &arena));
    freehold_census first = census(arena);
    CHECK(first.allocated == 0 && first.managed * freehold_frame_bytes(arena) == 16 * MIB);
    null_everywhere(arena);
    CHECK(census(arena).allocated == 0);
    wrong_sizes(arena);
    CHECK(census(arena).allocated == 0);
    wrong_discards(arena, wrong_frees(arena));
    CHECK(census(arena).allocated == 0);
    exhaustion(arena);
    CHECK(census(arena).allocated == 0 && census(arena).managed == first.managed);

    /* Two arenas: each refuses what is the other's. */
    freehold_arena *other;
    void *block;
    OK(freehold_arena_new(&options, &other));
    OK(freehold_alloc(other, 0, &block));
    EXPECT(FREEHOLD_EFOREIGN, freehold_free(arena, block));
    OK(freehold_free(other, block));
    freehold_arena_destroy(other);
    freehold_arena_destroy(arena);
    puts("everything was wrong, and nothing was lost: fine");
    return 0;
}
