// Blocks of any size up to some MiB, of which 64 are there at a time, and a page of each is touched.
//
//     blocks MIB PAIRS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    static char *blocks[64];
    uint64_t random = 88172645463325252u;
    if (count < 3) {
        fprintf(stderr, "blocks: name the largest size in MiB, and how many are allocated\n");
        return 2;
    }
    size_t bytes_max = strtoul(words[1], NULL, 10) << 20;
    for (long nth = strtol(words[2], NULL, 10); nth > 0; nth--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        char **block = &blocks[random % 64];
        free(*block);
        *block = malloc((random >> 20) % bytes_max + 1);
        if (!*block) return 1;
        **block = 1;
    }
    return 0;
}
