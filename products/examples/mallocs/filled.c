// Blocks of KIB_MIN to KIB_MAX, of which LIVE are there at a time, and all of each is written.
//
//     filled KIB_MIN KIB_MAX LIVE PAIRS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    uint64_t random = 88172645463325252u;
    if (count < 5) {
        fprintf(stderr, "filled: name the least and the largest size in KiB, how many blocks there "
                        "are at a time, and how many are allocated\n");
        return 2;
    }
    size_t least = strtoul(words[1], NULL, 10), most = strtoul(words[2], NULL, 10);
    size_t live = strtoul(words[3], NULL, 10);
    char **blocks = calloc(live, sizeof *blocks);
    if (!blocks || most < least) return 1;
    for (long nth = strtol(words[4], NULL, 10); nth > 0; nth--) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        char **block = &blocks[random % live];
        free(*block);
        size_t bytes = (least + (random >> 20) % (most - least + 1)) << 10;
        *block = malloc(bytes);
        if (!*block) return 1;
        memset(*block, 1, bytes);
    }
    return 0;
}
