/* Linked into SQLite's own test programs, whose SQLite is compiled with -DSQLITE_EXTRA_INIT=holdfast_suite_init: it is called
 * whenever the library is initialised. Without HOLDFAST_SUITE_VFS the programs are as SQLite has made them; with it, the
 * library of that name makes its VFS the default one. So one build serves both. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int holdfast_suite_init(const char *unused) {
    const char *path = getenv("HOLDFAST_SUITE_VFS");
    if (!path) return 0;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*enter)(const char *) = library ? (int (*)(const char *))dlsym(library, "holdfast_sqlite_register") : NULL;
    if (!enter) {
        fprintf(stderr, "HOLDFAST_SUITE_VFS: %s\n", dlerror());
        return 1;
    }
    return enter(unused);
}
