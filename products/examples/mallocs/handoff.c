/* Many threads allocate, few free: each producer fills blocks of many sizes and hands them to one
 * of the consumers, which check and free them. Most memory is freed by threads that did not
 * allocate it, and few of them return memory to the machine.
 *
 *     handoff [producers [consumers [blocks]]]
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 4096, THREADS_MAX = 256 };

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    unsigned char *slots[SLOTS];
    size_t head, count;
};

static struct queue queues[THREADS_MAX];
static size_t producers = 8, consumers = 2, blocks = 300000;

static void put(struct queue *queue, unsigned char *block) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == SLOTS)
        pthread_cond_wait(&queue->not_full, &queue->lock);
    queue->slots[(queue->head + queue->count++) % SLOTS] = block;
    pthread_cond_signal(&queue->not_empty);
    pthread_mutex_unlock(&queue->lock);
}

static unsigned char *take(struct queue *queue) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0)
        pthread_cond_wait(&queue->not_empty, &queue->lock);
    unsigned char *block = queue->slots[queue->head];
    queue->head = (queue->head + 1) % SLOTS;
    queue->count--;
    pthread_cond_signal(&queue->not_full);
    pthread_mutex_unlock(&queue->lock);
    return block;
}

/* Sizes from 16 bytes to 256 KiB, small ones most often. */
static size_t size_of(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    unsigned shift = 4 + (unsigned)(*state >> 60) % 15;
    size_t rest = (size_t)(*state >> 20) & (((size_t)1 << shift) - 1);
    return shift > 12 && (*state >> 40) % 8 ? 64 + rest % 1024 : ((size_t)1 << shift) / 2 + rest / 2 + 8;
}

static void *produce(void *argument) {
    size_t self = (size_t)argument;
    uint64_t state = self + 1;
    for (size_t nth = 0; nth < blocks; nth++) {
        size_t size = size_of(&state);
        unsigned char *block = malloc(size);
        if (!block) {
            fprintf(stderr, "no memory for %zu bytes\n", size);
            exit(1);
        }
        memset(block, (int)(size & 0xff), size);
        memcpy(block, &size, sizeof size);
        put(&queues[(self + nth) % consumers], block);
    }
    return NULL;
}

static void *consume(void *argument) {
    struct queue *queue = argument;
    for (unsigned char *block; (block = take(queue)) != NULL;) {
        size_t size;
        memcpy(&size, block, sizeof size);
        if (size > sizeof size && block[size - 1] != (size & 0xff)) {
            fprintf(stderr, "a block of %zu bytes was overwritten\n", size);
            exit(1);
        }
        free(block);
    }
    return NULL;
}

int main(int count, char **words) {
    if (count > 1) producers = strtoul(words[1], NULL, 0);
    if (count > 2) consumers = strtoul(words[2], NULL, 0);
    if (count > 3) blocks = strtoul(words[3], NULL, 0);
    if (producers < 1 || consumers < 1 || producers + consumers > THREADS_MAX) {
        fprintf(stderr, "usage: handoff [producers [consumers [blocks]]], %d threads at most\n",
                THREADS_MAX);
        return 2;
    }
    pthread_t threads[THREADS_MAX];
    for (size_t nth = 0; nth < consumers; nth++) {
        pthread_mutex_init(&queues[nth].lock, NULL);
        pthread_cond_init(&queues[nth].not_empty, NULL);
        pthread_cond_init(&queues[nth].not_full, NULL);
        pthread_create(&threads[producers + nth], NULL, consume, &queues[nth]);
    }
    for (size_t nth = 0; nth < producers; nth++)
        pthread_create(&threads[nth], NULL, produce, (void *)nth);
    for (size_t nth = 0; nth < producers; nth++)
        pthread_join(threads[nth], NULL);
    for (size_t nth = 0; nth < consumers; nth++)
        put(&queues[nth], NULL);
    for (size_t nth = 0; nth < consumers; nth++)
        pthread_join(threads[producers + nth], NULL);
    printf("work %zu\n", producers * blocks);
    return 0;
}
