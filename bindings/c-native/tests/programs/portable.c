/*
 * The ledger of applets/portable, kept by a native program: ARGV is HEAP and what to do with it. Prints a number, or the
 * message of what failed, and ends with its nv_error.
 */
#include "../../../../applets/portable/ledger.c"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(void) {
    printf("%s\n", nv_message());
    return nv_errno();
}

static int told(unsigned long long number) {
    printf("%llu\n", number);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 3) return 99;
    const char *command = argv[2];
    nv_portable(strcmp(command, "plain") != 0);
    nv_heap *heap = nv_heap_open(argv[1]);
    if (!heap) return failed();
    if (!strcmp(command, "plain")) return told(0);
    if (!strcmp(command, "run")) {
        for (;;) {
            if (ledger_add(heap, "program", 0)) return failed();
            told(ledger_in(heap)->count);
            fflush(stdout);
        }
    }
    if (!strcmp(command, "add") && ledger_add(heap, "program", 0)) return failed();
    if (!strcmp(command, "crash")) {
        if (ledger_add(heap, "program", 1)) return failed();
        abort();
    }
    if (!strcmp(command, "other")) return told(ledger_error_as_other(heap, 0) * 1000 + ledger_error_as_other(heap, 1));
    const struct ledger *ledger = ledger_in(heap);
    if (!ledger) return failed();
    const char *fault = ledger_fault(heap, ledger);
    if (fault) {
        printf("%s\n", fault);
        return 98;
    }
    return told(ledger->count);
}
