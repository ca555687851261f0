// Frees a burst of so many MiB in blocks of so many bytes, and then does nothing for so many
// seconds. Prints how many MiB are resident then. `idle MIB BYTES SECONDS`
#include <fcntl.h>
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
    // Nothing is allocated until the figure is read, and no stream is opened, which would be.
    char text[64] = "";
    long resident = 0;
    int statm = open("/proc/self/statm", O_RDONLY);
    if (statm < 0 || read(statm, text, sizeof text - 1) < 0) return 1;
    if (sscanf(text, "%*d %ld", &resident) != 1) return 1;
    printf("%ld\n", resident * sysconf(_SC_PAGESIZE) >> 20);
    return 0;
}
