/* A native program that does the one forbidden, greedy or ordinary thing that its first argument names.
 * It ends with 0 when that thing worked, and with 100 + errno when it was refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static int done(long result) { return result < 0 ? 100 + errno : 0; }

static int connect_unix(const char *path, int is_abstract)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return done(fd);
    strncpy(address.sun_path + is_abstract, path, sizeof address.sun_path - 2);
    socklen_t size = offsetof(struct sockaddr_un, sun_path) + is_abstract + strlen(path);
    return done(connect(fd, (struct sockaddr *)&address, size));
}

static int connect_tcp(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) return done(fd);
    return done(connect(fd, (struct sockaddr *)&address, sizeof address));
}

static int pass_descriptor(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) return done(-1);
    char control[CMSG_SPACE(sizeof(int))] = { 0 };
    struct iovec bytes = { .iov_base = "x", .iov_len = 1 };
    struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control,
                              .msg_controllen = sizeof control };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &pair[0], sizeof(int));
    return done(sendmsg(pair[0], &message, 0));
}

/* Runs code that it writes itself. */
static int run_from_memory(void)
{
    static const unsigned char code[] = { 0xb8, 7, 0, 0, 0, 0xc3 };
    usleep(200000);
    char *bytes = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return done(-1);
    memcpy(bytes, code, sizeof code);
    if (mprotect(bytes, 4096, PROT_READ | PROT_EXEC) < 0) return done(-1);
    int (*function)(void) = (int (*)(void))bytes;
    return function() == 7 ? 0 : 1;
}

static int read_others_memory(int pid)
{
    char byte;
    struct iovec to = { &byte, 1 }, from = { (void *)(uintptr_t)&done, 1 };
    return done(process_vm_readv(pid, &to, 1, &from, 1, 0)) == 100 + EFAULT ? 0 : done(-1);
}

static void *sleep_for_ever(void *unused)
{
    for (;;) pause();
    return unused;
}

/* A thread with the flags that Go's runtime gives: nobody is told its number. It ends the program with 7. */
static int thread_of_go(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_SYSVSEM | CLONE_THREAD, result;
    __asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n mov $231, %%eax\n mov $7, %%edi\n syscall\n 1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(stack + sizeof stack), "d"(0)
                     : "rcx", "r11", "memory");
    if (result < 0) return 100 - (int)result;
    for (;;) pause();
}

static int start_threads(int count)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, &attributes, sleep_for_ever, 0);
        if (error) return 100 + error;
    }
    return 0;
}

static int use_memory(void)
{
    for (;;) {
        char *bytes = malloc(1 << 20);
        if (!bytes) abort();
        memset(bytes, 1, 1 << 20);
    }
}

static int write_for_ever(int fd)
{
    static char bytes[65536];
    for (;;)
        if (write(fd, bytes, sizeof bytes) < 0) return done(-1);
}

static int open_for_ever(const char *path)
{
    for (int i = 0; i < 100000; i++)
        if (open(path, O_RDONLY) < 0) return done(-1);
    return 0;
}

/* Reads a file again and again; 0 as soon as it has other bytes than "open". */
static int read_until_secret(const char *path, int times)
{
    for (int i = 0; i < times; i++) {
        char bytes[16] = { 0 };
        int fd = open(path, O_RDONLY);
        if (fd < 0) continue;
        ssize_t count = read(fd, bytes, sizeof bytes - 1);
        close(fd);
        if (count > 0 && strncmp(bytes, "open", 4)) return 0;
    }
    return 100 + ENOENT;
}

static int find_descriptors(void)
{
    for (int fd = 3; fd < 4096; fd++)
        if (fcntl(fd, F_GETFD) >= 0) return 0;
    return 100 + EBADF;
}

static long int_0x80(long number)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(0), "c"(0), "d"(0), "S"(0), "D"(0) : "memory");
    return result;
}

static int call(char **words)
{
    long values[7] = { 0 };
    for (int i = 0; i < 7 && words[i]; i++) values[i] = (long)strtoull(words[i], 0, 0);
    return done(syscall(values[0], values[1], values[2], values[3], values[4], values[5], values[6]));
}

/* Makes a file, or changes one, with each of the 4,096 modes; prints what came of each: the error number, and the mode. */
static int try_modes(const char *how, const char *directory)
{
    static char path[4096], plain[4096];
    snprintf(plain, sizeof plain, "%s/plain", directory);
    umask(0);
    int there = open(plain, O_RDONLY);
#define HOW(name) else if (!strcmp(how, name))
    for (int mode = 0; mode < 010000; mode++) {
        struct stat found = { 0 };
        long result;
        int opened = -1;
        snprintf(path, sizeof path, "%s/%04o", directory, mode);
        if (!strcmp(how, "open")) result = opened = syscall(SYS_open, path, O_CREAT | O_WRONLY, mode);
        HOW("openat") result = opened = syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY, mode);
        HOW("creat") result = opened = syscall(SYS_creat, path, mode);
        HOW("temporary") result = opened = syscall(SYS_openat, AT_FDCWD, directory, O_TMPFILE | O_WRONLY, mode);
        HOW("open what is there") result = opened = syscall(SYS_openat, AT_FDCWD, plain, O_RDONLY, mode);
        HOW("mkdir") result = syscall(SYS_mkdir, path, mode);
        HOW("mkdirat") result = syscall(SYS_mkdirat, AT_FDCWD, path, mode);
        HOW("chmod") result = syscall(SYS_chmod, plain, mode);
        HOW("fchmod") result = syscall(SYS_fchmod, there, mode);
        HOW("fchmodat") result = syscall(SYS_fchmodat, AT_FDCWD, plain, mode);
        HOW("fchmodat2") result = syscall(452, AT_FDCWD, plain, mode, 0);
        else return 98;
        int error = result < 0 ? errno : 0;
        if (opened >= 0) fstat(opened, &found), close(opened);
        else if (!error) stat(strstr(how, "chmod") ? plain : path, &found);
        printf("%d %o\n", error, found.st_mode & 07777);
    }
    return 0;
}

/* Sets the times of files, by path and by descriptor, and those of its standard streams; of how many files. */
static int set_times(char **paths)
{
    struct timespec times[2] = { { 12345, 0 }, { 12345, 0 } };
    int set = 0;
    for (int number = 0; number < 3; number++) {
        int copy = dup(number);
        futimens(number, times);
        if (copy >= 0) futimens(copy, times);
    }
    for (; *paths; paths++) {
        int fd = open(*paths, O_RDONLY);
        int by_path = !utimensat(AT_FDCWD, *paths, times, 0), by_descriptor = !futimens(fd, times);
        if (fd < 0 || by_path != by_descriptor) return 99;
        set += by_path;
        close(fd);
    }
    return set;
}

/* Opens /dev/null as these flags say; 0 if it is that device, and takes and gives what such a one does. */
static int open_null(int flags)
{
    char bytes[8] = "bytes";
    struct stat found;
    int fd = open("/dev/null", flags, 0666);
    if (fd < 0) return done(fd);
    if (fstat(fd, &found) || !S_ISCHR(found.st_mode) || found.st_rdev != makedev(1, 3)) return 1;
    if ((flags & O_ACCMODE) != O_RDONLY && write(fd, bytes, 5) != 5) return done(-1);
    if ((flags & O_ACCMODE) != O_WRONLY && read(fd, bytes, 5) != 0) return 2;
    return !(flags & O_CLOEXEC) == !(fcntl(fd, F_GETFD) & FD_CLOEXEC) ? 0 : 3;
}

static char raced_path[16] = "/dev/null";

static void *swap_path(void *other)
{
    for (;;) {
        memcpy(raced_path, other, 10);
        __asm__ volatile("" ::: "memory");
        memcpy(raced_path, "/dev/null", 10);
        __asm__ volatile("" ::: "memory");
    }
}

/* Opens /dev/null again and again while another thread puts another path there; 0 as soon as another file is open. */
static int race_null(char *other, int times)
{
    pthread_t thread;
    int error = pthread_create(&thread, 0, swap_path, other), opened = 0;
    if (error) return 100 + error;
    for (int i = 0; i < times; i++) {
        struct stat found;
        int fd = open(raced_path, O_RDWR);
        if (fd < 0) continue;
        if (fstat(fd, &found) || found.st_rdev != makedev(1, 3)) return 0;
        close(fd);
        opened++;
    }
    return opened ? 100 + ENOENT : 1;
}

static int write_into(const char *path)
{
    int fd = open(path, O_WRONLY);
    return done(fd < 0 ? fd : write(fd, "x", 1));
}

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "nothing", *more = count > 2 ? words[2] : "";
    int number = atoi(more);
#define WHEN(name) if (!strcmp(what, name))
    WHEN("nothing") return 0;
    WHEN("prints") return printf("hello\n") < 0 || fprintf(stderr, "world\n") < 0;
    WHEN("exits") return number;
    WHEN("environment") return puts(getenv("WORD") ? getenv("WORD") : "none") < 0;
    WHEN("crashes") { *(volatile int *)8 = 1; return 0; }
    WHEN("aborts") abort();
    WHEN("marks") return done(write(3, "x", 1));
    WHEN("waits") for (;;) pause();
    WHEN("spins") for (volatile long i = 0;; i++) {}
    WHEN("ptrace") return done(ptrace(PTRACE_SEIZE, number, 0, 0));
    WHEN("kill") return done(kill(number, SIGCONT));
    WHEN("kill itself") return done(kill(getpid(), SIGTERM));
    WHEN("a thread of Go's") return thread_of_go();
    WHEN("sealed, reads") { usleep(200000); return done(open(more, O_RDONLY)); }
    WHEN("read others' memory") return read_others_memory(number);
    WHEN("user name space") return done(unshare(CLONE_NEWUSER));
    WHEN("mount") return done(mount("none", "/", "tmpfs", 0, 0));
    WHEN("io_uring") { char parameters[256] = { 0 }; return done(syscall(SYS_io_uring_setup, 4, parameters)); }
    WHEN("bpf") {
        union bpf_attr attributes = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };
        return done(syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes));
    }
    WHEN("own memory file") return done(open("/proc/self/mem", O_RDWR));
    WHEN("read") return done(open(more, O_RDONLY));
    WHEN("write") return done(open(more, O_WRONLY));
    WHEN("create") return done(open(more, O_WRONLY | O_CREAT, 0600));
    WHEN("null") return open_null(number);
    WHEN("sealed, null") { usleep(200000); return open_null(number); }
    WHEN("race null") return race_null(words[2], atoi(words[3]));
    WHEN("write at the end of memory") {
        char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(page + 4096, 4096);
        return done(open(memcpy(page + 4096 - number, "/dev/null", number), O_WRONLY));
    }
    WHEN("set times") return set_times(words + 2);
    WHEN("modes") return count > 3 ? try_modes(more, words[3]) : 98;
    WHEN("make a directory") return done(mkdir(more, 0777));
    WHEN("write into") return write_into(more);
    WHEN("cut off") return done(open(more, O_WRONLY | O_TRUNC));
    WHEN("rename") return done(syscall(SYS_renameat2, AT_FDCWD, more, AT_FDCWD, words[3], atoi(words[4])));
    WHEN("stat") { struct stat unused; return done(stat(more, &unused)); }
    WHEN("find descriptors") return find_descriptors();
    WHEN("type into the terminal") return done(ioctl(number, TIOCSTI, "x"));
    WHEN("open the terminal") return done(open("/dev/tty", O_RDONLY));
    WHEN("pass a descriptor") return pass_descriptor();
    WHEN("connect to a path") return connect_unix(more, 0);
    WHEN("connect to a name") return connect_unix(more, 1);
    WHEN("connect to a port") return connect_tcp(number);
    WHEN("memory file") return done(memfd_create("code", 0));
    WHEN("run from memory") return run_from_memory();
    WHEN("attach shared memory") return done(shmget(number, 1, 0));
    WHEN("fork") return done(fork());
    WHEN("fork for ever") for (;;) fork();
    WHEN("threads") return start_threads(number);
    WHEN("memory") return use_memory();
    WHEN("write for ever") return write_for_ever(number);
    WHEN("fill a file") return write_for_ever(open(more, O_WRONLY | O_CREAT, 0600));
    WHEN("open for ever") return open_for_ever(more);
    WHEN("ask for ever") for (;;) open("/nothing", O_RDONLY);
    WHEN("race") return read_until_secret(more, 20000);
    WHEN("int 0x80") { long result = int_0x80(number); return result < 0 ? 100 - (int)result : 0; }
    WHEN("call") return call(words + 2);
    WHEN("exec") return done(execl(words[0], words[0], (char *)0));
    WHEN("set-user program") return done(execl("/bin/su", "su", (char *)0));
    WHEN("map the region") {
        /* Stores to pages 1 and 3 of a private mapping of descriptor 4, tells where, and waits. */
        char *base = mmap(0, 16 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE, 4, 8192);
        if (base == MAP_FAILED) return done(-1);
        base[1 << 12] = 'a';
        base[3 << 12] = 'b';
        printf("%p\n", (void *)base);
        fflush(stdout);
        for (;;) pause();
    }
    return 99;
}
