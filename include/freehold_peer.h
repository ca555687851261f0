/* The interface of an allocator that `freehold race --peer LIBRARY.so` races.
 *
 * A peer is a shared library that exports one symbol, `freehold_peer`: a table of what it is and
 * what it can do. Frames are numbers, from 0 to `frame_count` - 1; frame n is the memory at
 * `base + n * frame_bytes`, which is mapped, zeroed, and the peer's to write into. A block of order
 * n is 2^n frames that lie side by side, and its first frame is a multiple of 2^n.
 *
 *     cc -O2 -shared -fPIC -Iinclude -o peer.so peer.c
 *     freehold race --peer ./peer.so
 *
 * examples/peers/spinlock_stack.c is a complete peer; docs/races.md says what races ask of one.
 */
#ifndef FREEHOLD_PEER_H
#define FREEHOLD_PEER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. A peer of another version is refused. */
#define FREEHOLD_PEER_INTERFACE 1

/* What `alloc` answers when there is no such block. */
#define FREEHOLD_PEER_NONE UINT64_MAX

/* The memory that a peer manages, and who will ask it for frames. */
struct freehold_peer_region {
    void *base;            /* a multiple of 2 MiB */
    uint64_t frame_count;
    uint64_t frame_bytes;
    uint32_t thread_count; /* threads are numbered from 0 */
};

/* All functions but `create` and `destroy` are called by several threads at once. Each call says
 * which thread makes it; calls of one thread follow each other. */
struct freehold_peer {
    /* FREEHOLD_PEER_INTERFACE, as the peer was compiled with. */
    uint32_t interface;

    /* Bit n is set if the peer has blocks of order n. Bit 0 must be set. */
    uint32_t orders;

    /* What results call the peer, in up to 22 letters, digits and `-`, `_`, `.`; and its version,
     * any short text. */
    const char *name;
    const char *version;

    /* Begins to manage a region; NULL if it cannot. The region description is gone afterwards, the
     * region stays until `destroy`. Several peers of one library may be in use at a time. */
    void *(*create)(const struct freehold_peer_region *region);

    /* Ends that. No other call is going on or will come. Blocks may still be allocated. */
    void (*destroy)(void *peer);

    /* Takes a block and returns its first frame; FREEHOLD_PEER_NONE if there is none. What other
     * threads have given back need not be found while they may still want it, but when each thread
     * in turn takes frames until there are none, all of the memory must be had. */
    uint64_t (*alloc)(void *peer, uint32_t order, uint32_t thread);

    /* Gives back a block that `alloc` or `alloc_bulk` has returned, to whatever thread. */
    void (*free)(void *peer, uint64_t frame, uint32_t order, uint32_t thread);

    /* Optional, both or neither: single frames, many a call. `alloc_bulk` returns how many it has
     * written into `frames`, less than `count` only if there are no more. */
    uint64_t (*alloc_bulk)(void *peer, uint64_t *frames, uint64_t count, uint32_t thread);
    void (*free_bulk)(void *peer, const uint64_t *frames, uint64_t count, uint32_t thread);
};

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const struct freehold_peer freehold_peer;

#ifdef __cplusplus
}
#endif

#endif
