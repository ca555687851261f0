// A program that opens a library again and again, and frees what it has allocated; and that library,
// with -DPLUGIN, which starts threads from threads meanwhile. `plugin LIBRARY` opens it with
// RTLD_DEEPBIND, `plugin LIBRARY plainly` without.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLUGIN
char *plugin_make(void) { return strdup("long enough to be in a block of the heap"); }
static void *work(void *more) {
    pthread_t thread;
    free(malloc(1000));
    if (more && pthread_create(&thread, NULL, work, NULL) == 0) pthread_join(thread, NULL);
    return NULL;
}
__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, "more") == 0) pthread_join(thread, NULL);
}
__attribute__((destructor)) static void end(void) { free(malloc(1000)); }
#else
int main(int count, char **words) {
    for (int round = 0; count > 1 && round < 50; round++) {
        void *library = dlopen(words[1], RTLD_NOW | (count == 2 ? RTLD_DEEPBIND : 0));
        char *(*make)(void);
        if (!library || !(*(void **)&make = dlsym(library, "plugin_make"))) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        free(make());
        dlclose(library);
    }
    return count < 2;
}
#endif
