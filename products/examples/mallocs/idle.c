// Frees a burst of so many MiB in blocks of so many bytes, and then does nothing for so many
// seconds. Prints how many MiB are resident then. Blocks between two sizes are freed in random
// order. `idle MIB BYTES|LEAST-MOST SECONDS`
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count != 4) {
        fprintf(stderr, "usage: idle MIB BYTES|LEAST-MOST SECONDS\n");
        return 2;
    }
    char *end;
    size_t least = strtoul(words[2], &end, 10);
    size_t most = *end == '-' ? strtoul(end + 1, NULL, 10) : least;
    size_t total = (size_t)atoi(words[1]) << 20, blocks = 0;
    char **burst = malloc((total / least + 1) * sizeof *burst);
    for (size_t done = 0; done + most <= total; blocks++) {
        size_t bytes = least + random() % (most - least + 1);
        burst[blocks] = malloc(bytes);
        memset(burst[blocks], 1, bytes);
        done += bytes;
    }
    for (size_t left = blocks; left > 0; left--) {
        size_t nth = most > least ? random() % left : blocks - left;
        free(burst[nth]);
        if (most > least) burst[nth] = burst[left - 1];
    }
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
