/* spinlock-stack: a complete peer for `freehold race --peer`.
 *
 * Memory is divided into pageblocks of 512 frames. A block is whole, or split; a split block keeps
 * its free frames on its own stack, and split blocks with free frames form a list. So a frame comes
 * from the first block of that list, a block that is whole again is recognised at once, and both
 * take a few instructions. One spin lock guards all of it: simple, small, correct, and no faster
 * with more threads.
 *
 *     cc -std=c11 -O2 -shared -fPIC -Iinclude -o spinlock_stack.so examples/peers/spinlock_stack.c
 */
#include "freehold_peer.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define BLOCK_ORDER 9
#define BLOCK_FRAMES (UINT32_C(1) << BLOCK_ORDER)
#define NO_BLOCK UINT32_MAX

struct block {
    uint32_t next, prev;           /* in the list of split blocks, or `next` among whole ones */
    uint32_t free_count;           /* of a split block */
    uint16_t stack[BLOCK_FRAMES];  /* its free frames, counted from its first */
};

struct peer {
    atomic_flag lock;
    uint32_t whole;  /* the first whole block */
    uint32_t split;  /* the first split block with free frames */
    struct block *blocks;
};

static void lock(struct peer *peer) {
    while (atomic_flag_test_and_set_explicit(&peer->lock, memory_order_acquire)) {
    }
}

static void unlock(struct peer *peer) {
    atomic_flag_clear_explicit(&peer->lock, memory_order_release);
}

static void enlist(struct peer *peer, uint32_t at) {
    struct block *block = &peer->blocks[at];
    block->prev = NO_BLOCK;
    block->next = peer->split;
    if (peer->split != NO_BLOCK)
        peer->blocks[peer->split].prev = at;
    peer->split = at;
}

static void unlist(struct peer *peer, uint32_t at) {
    struct block *block = &peer->blocks[at];
    if (block->prev != NO_BLOCK)
        peer->blocks[block->prev].next = block->next;
    else
        peer->split = block->next;
    if (block->next != NO_BLOCK)
        peer->blocks[block->next].prev = block->prev;
}

static void push_whole(struct peer *peer, uint32_t at) {
    peer->blocks[at].next = peer->whole;
    peer->whole = at;
}

static uint32_t pop_whole(struct peer *peer) {
    uint32_t at = peer->whole;
    if (at != NO_BLOCK)
        peer->whole = peer->blocks[at].next;
    return at;
}

static uint64_t alloc_frame(struct peer *peer) {
    uint32_t at = peer->split;
    if (at == NO_BLOCK) {
        at = pop_whole(peer);
        if (at == NO_BLOCK)
            return FREEHOLD_PEER_NONE;
        struct block *fresh = &peer->blocks[at];
        fresh->free_count = BLOCK_FRAMES;
        for (uint32_t i = 0; i < BLOCK_FRAMES; i++)
            fresh->stack[i] = (uint16_t)(BLOCK_FRAMES - 1 - i);
        enlist(peer, at);
    }
    struct block *block = &peer->blocks[at];
    uint16_t frame = block->stack[--block->free_count];
    if (block->free_count == 0)
        unlist(peer, at);
    return (uint64_t)at * BLOCK_FRAMES + frame;
}

static void free_frame(struct peer *peer, uint64_t frame) {
    uint32_t at = (uint32_t)(frame / BLOCK_FRAMES);
    struct block *block = &peer->blocks[at];
    block->stack[block->free_count++] = (uint16_t)(frame % BLOCK_FRAMES);
    if (block->free_count == 1)
        enlist(peer, at);
    if (block->free_count == BLOCK_FRAMES) {
        unlist(peer, at);
        push_whole(peer, at);
    }
}

static void *peer_create(const struct freehold_peer_region *region) {
    uint64_t count = region->frame_count / BLOCK_FRAMES;
    if (count == 0 || count >= NO_BLOCK)
        return NULL;
    struct peer *peer = malloc(sizeof *peer);
    if (peer == NULL)
        return NULL;
    peer->blocks = calloc(count, sizeof *peer->blocks);
    if (peer->blocks == NULL) {
        free(peer);
        return NULL;
    }
    atomic_flag_clear(&peer->lock);
    peer->whole = peer->split = NO_BLOCK;
    for (uint64_t at = count; at-- > 0;)
        push_whole(peer, (uint32_t)at);
    return peer;
}

static void peer_destroy(void *state) {
    struct peer *peer = state;
    free(peer->blocks);
    free(peer);
}

static uint64_t peer_alloc(void *state, uint32_t order, uint32_t thread) {
    struct peer *peer = state;
    uint64_t frame;
    (void)thread;
    lock(peer);
    if (order == 0) {
        frame = alloc_frame(peer);
    } else {
        uint32_t at = pop_whole(peer);
        frame = at == NO_BLOCK ? FREEHOLD_PEER_NONE : (uint64_t)at * BLOCK_FRAMES;
    }
    unlock(peer);
    return frame;
}

static void peer_free(void *state, uint64_t frame, uint32_t order, uint32_t thread) {
    struct peer *peer = state;
    (void)thread;
    lock(peer);
    if (order == 0)
        free_frame(peer, frame);
    else
        push_whole(peer, (uint32_t)(frame / BLOCK_FRAMES));
    unlock(peer);
}

static uint64_t peer_alloc_bulk(void *state, uint64_t *frames, uint64_t count, uint32_t thread) {
    struct peer *peer = state;
    uint64_t got = 0;
    (void)thread;
    lock(peer);
    while (got < count && (frames[got] = alloc_frame(peer)) != FREEHOLD_PEER_NONE)
        got++;
    unlock(peer);
    return got;
}

static void peer_free_bulk(void *state, const uint64_t *frames, uint64_t count, uint32_t thread) {
    struct peer *peer = state;
    (void)thread;
    lock(peer);
    for (uint64_t at = 0; at < count; at++)
        free_frame(peer, frames[at]);
    unlock(peer);
}

const struct freehold_peer freehold_peer = {
    .interface = FREEHOLD_PEER_INTERFACE,
    .orders = 1u << 0 | 1u << BLOCK_ORDER,
    .name = "spinlock-stack",
    .version = "1.0",
    .create = peer_create,
    .destroy = peer_destroy,
    .alloc = peer_alloc,
    .free = peer_free,
    .alloc_bulk = peer_alloc_bulk,
    .free_bulk = peer_free_bulk,
};
