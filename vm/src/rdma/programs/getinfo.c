/* Calls fi_getinfo ten times, reports it, and lives on until it is killed. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

typedef int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const void *, void **);
typedef void (*freeinfo)(void *);

int main(void)
{
    /* Version 1.9 of the interface. */
    const uint32_t version = 1u << 16 | 9;
    void *library = dlopen("libfabric.so.1", RTLD_NOW);
    getinfo get = library ? (getinfo)dlsym(library, "fi_getinfo") : NULL;
    freeinfo release = library ? (freeinfo)dlsym(library, "fi_freeinfo") : NULL;

    if (!get || !release) {
        printf("failed: %s\n", dlerror());
        return 1;
    }
    for (int call = 0; call < 10; call++) {
        void *info = NULL;
        int code = get(version, NULL, NULL, 0, NULL, &info);
        if (code || !info) {
            printf("failed: call %d: %d\n", call, code);
            return 1;
        }
        release(info);
    }
    puts("answered");
    fflush(stdout);
    for (;;)
        pause();
}
