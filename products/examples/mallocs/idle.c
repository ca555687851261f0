// Frees a burst of so many MiB in blocks of so many bytes, and then does nothing for so many
// seconds. Prints how many MiB are resident then. `idle MIB BYTES SECONDS`
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: idle MIB BYTES SECONDS\n");
        return 2;
    }
    size_t bytes = strtoul(words[2], NULL, 10);
    size_t blocks = ((size_t)atoi(words[1]) << 20) / bytes;
    char **burst = malloc(blocks * sizeof *burst);
    for (size_t nth = 0; nth < blocks; nth++) {
        burst[nth] = malloc(bytes);
        memset(burst[nth], 1, bytes);
    }
    for (size_t nth = 0; nth < blocks; nth++) free(burst[nth]);
    free(burst);
    sleep(atoi(words[3]));
    // Nothing is allocated until the figure is read.
    static char buffer[BUFSIZ];
    FILE *statm = fopen("/proc/self/statm", "r");
    long resident = 0;
    if (!statm || setvbuf(statm, buffer, _IOFBF, sizeof buffer)) return 1;
    if (fscanf(statm, "%*d %ld", &resident) != 1) return 1;
    printf("%ld\n", resident * sysconf(_SC_PAGESIZE) >> 20);
    return 0;
}
