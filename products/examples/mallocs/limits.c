// What a program has that limits itself, locks its memory, or forks.
//
//     limits locked     MiB that it has locked, with all of its memory
//     limits address    nothing if all is well with 2 GiB of address space
//     limits fork       page faults of each of 100 children that exit at once, and of their parent
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile block;

static int locked(void) {
    if (mlockall(MCL_CURRENT)) {
        perror("mlockall");
        return 77;
    }
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long kib;
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmLck: %ld", &kib) == 1) printf("%ld\n", kib >> 10);
    return 0;
}

static void *nothing(void *none) { return none; }

static int address(void) {
    struct rlimit limit = {2ul << 30, 2ul << 30};
    pthread_t thread;
    if (setrlimit(RLIMIT_AS, &limit)) return 77;
    if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL)) return 3;
    if (mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) return 4;
    for (size_t mib = 1; mib <= 800; mib += mib / 2 + 1) {
        block = malloc(mib << 20);
        if (!block) return 5;
        memset(block, 1, 4096);
        free(block);
    }
    return 0;
}

static long faults(int of) {
    struct rusage usage;
    getrusage(of, &usage);
    return usage.ru_minflt;
}

static int forks(void) {
    enum { FORKS = 100 };
    long before = faults(RUSAGE_SELF);
    for (int nth = 0; nth < FORKS; nth++) {
        pid_t child = fork();
        if (!child) _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child) return 1;
    }
    printf("%ld\n", (faults(RUSAGE_SELF) - before + faults(RUSAGE_CHILDREN)) / FORKS);
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    block = malloc(1000);
    if (!strcmp(what, "locked")) return locked();
    if (!strcmp(what, "address")) return address();
    if (!strcmp(what, "fork")) return forks();
    fprintf(stderr, "limits: name one of locked, address and fork\n");
    return 2;
}
