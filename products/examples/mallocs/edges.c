// What the C library's functions for memory do at their edges: errors that are told by errno,
// alignments that are none, threads that allocate nothing. Prints what is wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int wrong;

static void expect(const char *what, void *memory, int error, size_t align) {
    int is_right = error ? !memory && errno == error : memory && (uintptr_t)memory % align == 0;
    if (!is_right) {
        printf("%s: %p, errno %d\n", what, memory, errno);
        wrong = 1;
    }
    free(memory);
    errno = 0;
}

// Returns its error, and leaves errno and the pointer alone.
static void expect_aligned(size_t align, size_t bytes, int error) {
    void *memory = &wrong;
    errno = EXDEV;
    int told = posix_memalign(&memory, align, bytes);
    if (told != error || errno != EXDEV || (error && memory != &wrong)) {
        printf("posix_memalign(%zu, %zu): %d, errno %d, %p\n", align, bytes, told, errno, memory);
        wrong = 1;
    }
    if (!told) free(memory);
}

// What is freed goes back to a machine that refuses it: errno is the caller's.
static void expect_frees_to_keep_errno(void) {
    static void *blocks[4000];
    if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) {
        fprintf(stderr, "!! SKIPPED: errno of free: this user may lock no memory\n");
        return;
    }
    for (int round = 0; round < 20; round++) {
        for (size_t nth = 0; nth < 4000; nth++) {
            size_t bytes = nth % 100 ? nth * 7 : nth * 1000;
            blocks[nth] = malloc(bytes);
            if (blocks[nth]) memset(blocks[nth], 1, bytes);
        }
        for (size_t nth = 0; nth < 4000; nth++) {
            errno = EXDEV;
            // A block that is freed by its new size, now and then.
            if (nth % 7) free(blocks[nth]);
            else if (blocks[nth] && realloc(blocks[nth], 0)) wrong = printf("realloc to 0\n");
            if (errno != EXDEV) {
                printf("free: errno %d\n", errno);
                wrong = 1;
                return;
            }
        }
    }
    munlockall();
}

#define EXPECT(call, error, align) (errno = 0, expect(#call, call, error, align))

static void *nothing(void *none) { return none; }

// Of threads that allocate nothing, the C library frees null as they end.
static void expect_idle_threads_to_end(void) {
    for (int round = 0; round < 500; round++) {
        pthread_t one, other;
        if (pthread_create(&one, NULL, nothing, NULL)) continue;
        if (!pthread_create(&other, NULL, nothing, NULL)) pthread_join(other, NULL);
        pthread_join(one, NULL);
    }
}

int main(void) {
    // Read at run time, or the compiler knows the answers.
    volatile size_t most = SIZE_MAX, half = SIZE_MAX / 2 + 2;
    EXPECT(malloc(most), ENOMEM, 1);
    EXPECT(malloc(half), ENOMEM, 1);
    EXPECT(calloc(half, 2), ENOMEM, 1);
    EXPECT(realloc(NULL, most), ENOMEM, 1);
    EXPECT(reallocarray(NULL, half, 2), ENOMEM, 1);
    EXPECT(valloc(most), ENOMEM, 1);
    EXPECT(pvalloc(most), ENOMEM, 1);
    EXPECT(pvalloc(1), 0, 4096);
    EXPECT(aligned_alloc(64, most), ENOMEM, 1);
    EXPECT(aligned_alloc(24, 100), EINVAL, 1);
    EXPECT(memalign(24, 100), 0, 32);
    EXPECT(memalign(0, 100), 0, 1);
    EXPECT(memalign(half, 100), EINVAL, 1);
    EXPECT(memalign(64, most), ENOMEM, 1);
    void *volatile kept = malloc(100);
    EXPECT(realloc(kept, most), ENOMEM, 1);
    EXPECT(reallocarray(kept, half, 2), ENOMEM, 1);
    free(kept);
    expect_aligned(64, 100, 0);
    expect_aligned(0, 100, EINVAL);
    expect_aligned(24, 100, EINVAL);
    expect_aligned(4, 100, EINVAL);
    expect_aligned(64, most - 100, ENOMEM);
    expect_frees_to_keep_errno();
    expect_idle_threads_to_end();
    return wrong;
}
