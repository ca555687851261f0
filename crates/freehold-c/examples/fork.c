/* Children of a fork have copies of the arenas of their parent, whatever its threads were doing. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static freehold_arena *arena;
static atomic_bool stop;

static void *busy(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        void *block;
        OK(freehold_alloc(arena, 2, &block));
        OK(freehold_free(arena, block));
    }
    return NULL;
}

static void in_child(char *mine)
{
    CHECK(strcmp(mine, "of the parent") == 0);
    strcpy(mine, "of the child");
    void *block;
    for (int round = 0; round < 1000; round++) {
        OK(freehold_alloc(arena, 0, &block));
        OK(freehold_free(arena, block));
    }
    OK(freehold_free(arena, mine));
    EXPECT(FREEHOLD_EDOUBLEFREE, freehold_free(arena, mine));
    OK(freehold_validate(arena, NULL));
    freehold_arena_destroy(arena);
}

int main(void)
{
    freehold_options options = { .size = sizeof options, .bytes = 32 * MIB };
    OK(freehold_arena_new(&options, &arena));
    char *mine;
    OK(freehold_alloc(arena, 0, (void **)&mine));
    strcpy(mine, "of the parent");

    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, busy, NULL) == 0);
    for (int child = 0; child < 10; child++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            in_child(mine);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK(strcmp(mine, "of the parent") == 0);
    }
    atomic_store(&stop, true);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(freehold_free(arena, mine));
    freehold_census census = { .size = sizeof census };
    OK(freehold_validate(arena, &census));
    CHECK(census.allocated == 0);
    freehold_arena_destroy(arena);
    puts("parent and children: fine");
    return 0;
}
