/* What is easily got wrong at the edges of holdfast.h: `edges COMMAND`. What differs from what must be is printed. */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(condition)                                                                                   \
    do {                                                                                                  \
        if (!(condition)) {                                                                               \
            printf("line %d: not so: %s (%d: %s)\n", __LINE__, #condition, nv_errno(), nv_message());     \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

/* Somebody who is called in a transaction gives up, and the caller goes on without looking. */
static void nested(void) {
    char **root = nvmalloc("root", sizeof *root);
    MUST(root && (*root = nvmalloc(NULL, 100)));
    strcpy(*root, "precious");
    MUST(nv_tx_begin() == 0 && nv_tx_begin() == 0 && nv_tx_abort() == 0);
    MUST(nv_tx_add(root, sizeof *root) == 0 && nvfree(*root) == 0 && nvmalloc("late", 8));
    *root = NULL;
    MUST(nv_commit(NV_PROCESS) == NV_IN_TRANSACTION);
    MUST(nv_tx_commit() == NV_ABORTED && strstr(nv_message(), "inner"));
    MUST(nv_tx_commit() == NV_NO_TRANSACTION);
    MUST(!nvread("late", NULL) && *root && !strcmp(*root, "precious"));
    MUST(nvmalloc(NULL, 100) != *root && nvfree(*root) == 0);
    /* The next transaction knows nothing of it. */
    MUST(nv_tx_begin() == 0 && nvmalloc("next", 8) && nv_tx_commit() == 0 && nvread("next", NULL));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } commands[] = {
        {"nested", nested},
    };
    alarm(60); /* nothing here takes a second */
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (argc == 2 && !strcmp(argv[1], commands[i].name)) {
            commands[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: edges COMMAND\n");
    return 2;
}
