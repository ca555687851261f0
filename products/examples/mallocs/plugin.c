// A program that opens a library with RTLD_DEEPBIND, again and again, and frees what it has allocated;
// and that library, with -DPLUGIN. `plugin LIBRARY`
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLUGIN
char *plugin_make(void) { return strdup("long enough to be in a block of the heap"); }
__attribute__((constructor)) static void begin(void) { free(malloc(1000)); }
__attribute__((destructor)) static void end(void) { free(malloc(1000)); }
#else
int main(int count, char **words) {
    for (int round = 0; count == 2 && round < 50; round++) {
        void *library = dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND);
        char *(*make)(void);
        if (!library || !(*(void **)&make = dlsym(library, "plugin_make"))) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        free(make());
        dlclose(library);
    }
    return count != 2;
}
#endif
