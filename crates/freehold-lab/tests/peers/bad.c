/* Peers with one fault each, which -DNAME_OF_THE_FAULT plants, to show that it is reported.
 * Without one, this is a peer that serves order 0 and is slow.
 */
#include "freehold_peer.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct peer {
    pthread_mutex_t lock;
    uint64_t count, calls;
    uint64_t frames[];
};

static void *create(const struct freehold_peer_region *region) {
    struct peer *peer = malloc(sizeof *peer + region->frame_count * sizeof(uint64_t));
    pthread_mutex_init(&peer->lock, NULL);
    peer->count = region->frame_count;
    peer->calls = 0;
    for (uint64_t at = 0; at < peer->count; at++)
        peer->frames[at] = at;
#ifdef REFUSES
    free(peer);
    return NULL;
#endif
#ifdef CRASHES_IN_CREATE
    abort();
#endif
    return peer;
}

static void destroy(void *state) {
    free(state);
}

static uint64_t alloc(void *state, uint32_t order, uint32_t thread) {
    struct peer *peer = state;
    uint64_t frame = FREEHOLD_PEER_NONE;
    (void)order, (void)thread;
    pthread_mutex_lock(&peer->lock);
    peer->calls++;
    if (peer->count > 0)
        frame = peer->frames[--peer->count];
#ifdef TWICE
    /* One of a hundred frames stays where it was. */
    if (peer->calls % 100 == 0 && frame != FREEHOLD_PEER_NONE)
        peer->count++;
#endif
#ifdef OUTSIDE
    if (peer->calls % 100 == 0)
        frame += UINT64_C(1) << 30;
#endif
#ifdef MISALIGNED
    if (order > 0)
        frame = 1;
#endif
    pthread_mutex_unlock(&peer->lock);
    return frame;
}

#ifdef NO_FREE
__attribute__((unused))
#endif
static void put(void *state, uint64_t frame, uint32_t order, uint32_t thread) {
    struct peer *peer = state;
    (void)order, (void)thread;
    pthread_mutex_lock(&peer->lock);
    peer->calls++;
#ifdef LOSES
    /* One of a thousand frames is forgotten. */
    if (peer->calls % 1000 != 0)
#endif
        peer->frames[peer->count++] = frame;
    pthread_mutex_unlock(&peer->lock);
}

#if defined(CRASHES) || defined(EXITS)
__attribute__((constructor)) static void loaded(void) {
#ifdef CRASHES
    volatile int *volatile nowhere = NULL;
    *nowhere = 1;
#else
    _exit(0);
#endif
}
#endif

#ifdef NO_SYMBOL
#define SYMBOL freehold_pear
#else
#define SYMBOL freehold_peer
#endif

const struct freehold_peer SYMBOL = {
#ifdef VERSION
    .interface = FREEHOLD_PEER_INTERFACE + 1,
#else
    .interface = FREEHOLD_PEER_INTERFACE,
#endif
#ifdef MISALIGNED
    .orders = 1u << 0 | 1u << 9,
#else
    .orders = 1u << 0,
#endif
#ifdef CLASHES
    .name = "mimalloc",
#else
    .name = "bad",
#endif
    .version = "1.0",
    .create = create,
    .destroy = destroy,
    .alloc = alloc,
#ifndef NO_FREE
    .free = put,
#endif
};
