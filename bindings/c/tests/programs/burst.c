/*
 * Uses the heap while a filter kills the program at any system call but its end.
 *
 *     burst           nvmalloc, nvfree, nvread, nvrealloc and transactions, 100,000 rounds; exit status 0
 *     burst grow      allocates more than is backed, for which the host must be asked: dies
 */
#define _GNU_SOURCE
#include <holdfast_applet.h>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 100000, KEPT = 64 };

static void forbid_system_calls(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(90);
}

static void finish(int status) {
    for (;;) syscall(SYS_exit_group, status);
}

static void must(int holds) {
    if (!holds) finish(91);
}

int main(int argc, char **argv) {
    if (argc > 2) return 92;
    uint64_t *counter = nvmalloc("counter", sizeof *counter);
    if (!counter || holdfast_seal()) return 93;
    forbid_system_calls();
    if (argc > 1 && !strcmp(argv[1], "grow")) {
        for (;;) must(nvmalloc(NULL, 60000) != NULL);
    }
    unsigned char *kept[KEPT] = {0};
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned char **place = &kept[round * 7 % KEPT];
        if (*place) {
            must(**place == (unsigned char)((uintptr_t)place >> 3));
            must(nvfree(*place) == NV_OK);
        }
        *place = nvmalloc(NULL, 16 + round * 13 % 2000);
        must(*place != NULL);
        **place = (unsigned char)((uintptr_t)place >> 3);
        if (round % 10 == 0) {
            *place = nvrealloc(*place, 3000);
            must(*place != NULL);
        }
        must(nv_tx_begin() == NV_OK && nv_tx_add(counter, sizeof *counter) == NV_OK);
        ++*counter;
        if (round % 5) {
            must(nv_tx_commit() == NV_OK);
        } else {
            must(nvmalloc("in vain", 100) != NULL && nv_tx_abort() == NV_OK);
        }
        must(nvread("counter", NULL) == counter);
        must(nvread("in vain", NULL) == NULL && nv_errno() == NV_NO_SUCH_ROOT && nv_message());
        must(nv_commit(NV_PROCESS) == NV_OK);
    }
    must(*counter == ROUNDS / 5 * 4);
    finish(0);
}
