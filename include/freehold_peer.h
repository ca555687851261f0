/* The interface of an allocator for `freehold race --peer LIBRARY.so`.
 *
 * A peer is a shared library that exports one symbol, `freehold_peer`: a table of its properties
 * and functions. Frames are numbers, from 0 to `frame_count` - 1; frame n is the memory at
 * `base + n * frame_bytes`, which is mapped, zeroed, and the peer's to write into. A block of order
 * n is 2^n contiguous frames, and its first frame is a multiple of 2^n.
 *
 *     cc -O2 -shared -fPIC -Iinclude -o peer.so peer.c
 *     freehold race --peer ./peer.so
 *
 * examples/peers/spinlock_stack.c is a complete peer; docs/lab.md states what races require.
 */
#ifndef FREEHOLD_PEER_H
#define FREEHOLD_PEER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. A peer of another version is refused. */
#define FREEHOLD_PEER_INTERFACE 1

/* The result of `alloc` if there is no such block. */
#define FREEHOLD_PEER_NONE UINT64_MAX

/* The memory that a peer manages, and the number of threads that will call it. */
struct freehold_peer_region {
    void *base;            /* a multiple of 2 MiB */
    uint64_t frame_count;
    uint64_t frame_bytes;
    uint32_t thread_count; /* threads are numbered from 0 */
};

/* Several threads call all functions but `create` and `destroy` at once. Each call passes the
 * number of its thread; calls of one thread are sequential. */
struct freehold_peer {
    /* FREEHOLD_PEER_INTERFACE, as the peer was compiled with. */
    uint32_t interface;

    /* Bit n is set if the peer has blocks of order n. Bit 0 must be set. */
    uint32_t orders;

    /* The peer's name in results, up to 22 letters, digits and `-`, `_`, `.`; and its version, any
     * short text. */
    const char *name;
    const char *version;

    /* Starts to manage a region; NULL on failure. The region description is invalid afterwards, the
     * region stays until `destroy`. Several peers of one library may be in use at a time. */
    void *(*create)(const struct freehold_peer_region *region);

    /* Stops managing it. No other call is under way or follows. Blocks may still be allocated. */
    void (*destroy)(void *peer);

    /* Allocates a block and returns its first frame; FREEHOLD_PEER_NONE if there is none. It need
     * not find what other threads have freed while these may still use it, but when each thread in
     * turn allocates frames until there are none, they must get all of the memory. */
    uint64_t (*alloc)(void *peer, uint32_t order, uint32_t thread);

    /* Frees a block that `alloc` or `alloc_bulk` has returned, to any thread. */
    void (*free)(void *peer, uint64_t frame, uint32_t order, uint32_t thread);

    /* Optional, both or neither: single frames, many a call. `alloc_bulk` returns how many it has
     * written into `frames`, fewer than `count` only if there are no more. */
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
