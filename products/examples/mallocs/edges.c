// What the C library's functions for memory do at their edges: errors that are told by errno, and
// alignments that are none. Prints what is wrong.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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

#define EXPECT(call, error, align) (errno = 0, expect(#call, call, error, align))

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
    return wrong;
}
