// A program with a malloc of its own, without the functions that are made of others: the C library's
// reach them by symbol, so what they return is of this malloc. Prints what is not.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(4096) char pool[16 << 20];
static size_t used;

static int is_own(const void *memory) {
    return (const char *)memory >= pool && (const char *)memory < pool + sizeof pool;
}

// Behind its length, at a multiple of `align`. Another thread's call waits for none: there is none.
void *aligned_alloc(size_t align, size_t bytes) {
    size_t start = (used + sizeof bytes + align - 1) / align * align;
    if (start > sizeof pool || bytes > sizeof pool - start) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(pool + start - sizeof bytes, &bytes, sizeof bytes);
    used = start + bytes;
    return pool + start;
}

void *malloc(size_t bytes) { return aligned_alloc(16, bytes); }

void free(void *memory) {
    if (memory && !is_own(memory)) abort();
}

void *calloc(size_t count, size_t bytes) {
    if (bytes && count > SIZE_MAX / bytes) return NULL;
    return malloc(count * bytes);
}

void *realloc(void *memory, size_t bytes) {
    size_t had = 0;
    void *larger = malloc(bytes);
    if (memory && larger) {
        memcpy(&had, (char *)memory - sizeof had, sizeof had);
        memcpy(larger, memory, had < bytes ? had : bytes);
    }
    return larger;
}

// Of C23, which the C library may not have.
__attribute__((weak)) void free_sized(void *memory, size_t bytes);
__attribute__((weak)) void free_aligned_sized(void *memory, size_t align, size_t bytes);

int main(void) {
    char *text = malloc(100);
    strcpy(text, "kept");
    text = reallocarray(text, 50, 4);
    void *others[] = {text, memalign(64, 100), valloc(100), pvalloc(100)};
    const char *names[] = {"reallocarray", "memalign", "valloc", "pvalloc"};
    int wrong = strcmp(text, "kept") != 0;
    for (int nth = 0; nth < 4; nth++) {
        if (!is_own(others[nth])) {
            printf("%s: %p is not of this malloc\n", names[nth], others[nth]);
            wrong = 1;
        }
    }
    if (free_sized) free_sized(malloc(10), 10);
    if (free_aligned_sized) free_aligned_sized(aligned_alloc(32, 10), 32, 10);
    return wrong;
}
