/* Forks while its threads allocate: each child checks what it inherited, frees half of it,
 * allocates on its own, and exits with what it found.
 *
 *     forks [children [threads]]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 4000, THREADS_MAX = 64 };

static unsigned char *kept[BLOCKS];
static atomic_int ends;

static size_t size_of(size_t nth) { return 100 + nth * 2654435761u % 30000; }

static unsigned char *filled(size_t size, int value) {
    unsigned char *block = malloc(size);
    if (!block) exit(3);
    memset(block, value, size);
    return block;
}

static void *churn(void *argument) {
    size_t seed = (size_t)argument;
    for (size_t nth = seed; !atomic_load(&ends); nth++) {
        unsigned char *block = filled(size_of(nth), (int)nth);
        if (nth % 16 == 0) usleep(100);
        free(block);
    }
    return NULL;
}

static int child(void) {
    for (size_t nth = 0; nth < BLOCKS; nth++) {
        size_t size = size_of(nth);
        if (kept[nth][0] != (nth & 0xff) || kept[nth][size - 1] != (nth & 0xff)) return 1;
        if (nth % 2) free(kept[nth]);
    }
    unsigned char *own[1000];
    for (size_t nth = 0; nth < 1000; nth++)
        own[nth] = filled(size_of(nth * 7), 0x5a);
    for (size_t nth = 0; nth < 1000; nth++) {
        if (own[nth][size_of(nth * 7) - 1] != 0x5a) return 1;
        free(own[nth]);
    }
    return 0;
}

int main(int count, char **words) {
    size_t children = count > 1 ? strtoul(words[1], NULL, 0) : 200;
    size_t threads = count > 2 ? strtoul(words[2], NULL, 0) : 2;
    if (threads > THREADS_MAX) {
        fprintf(stderr, "usage: forks [children [threads]], %d threads at most\n", THREADS_MAX);
        return 2;
    }
    for (size_t nth = 0; nth < BLOCKS; nth++)
        kept[nth] = filled(size_of(nth), (int)nth);
    pthread_t others[THREADS_MAX];
    for (size_t nth = 0; nth < threads; nth++)
        pthread_create(&others[nth], NULL, churn, (void *)(nth * 1000));
    for (size_t nth = 0; nth < children; nth++) {
        pid_t pid = fork();
        if (pid == 0) _exit(child());
        int status;
        if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
            fprintf(stderr, "child %zu: status %x\n", nth, status);
            return 1;
        }
    }
    atomic_store(&ends, 1);
    for (size_t nth = 0; nth < threads; nth++)
        pthread_join(others[nth], NULL);
    printf("work %zu\n", children);
    return 0;
}
