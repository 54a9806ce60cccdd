/*
 * holdfast_applet.h: what an applet offers to the program that started it, for applets in C and C++, in WebAssembly and
 * native. (The applet's persistent memory is holdfast.h; either works without the other.)
 *
 * An applet registers functions by name and serves; its host calls them, one at a time, until it has had enough:
 *
 *     static int shout(holdfast_call *call, void *context) {
 *         size_t size;
 *         const char *text = holdfast_input(call, &size);
 *         char *loud = malloc(size);
 *         for (size_t at = 0; at < size; at++) loud[at] = (char)toupper(text[at]);
 *         holdfast_reply(call, loud, size);
 *         free(loud);
 *         return 0;
 *     }
 *
 *     int main(void) {
 *         holdfast_export("shout", shout, NULL);
 *         return holdfast_serve();
 *     }
 *
 * Functions that return int return 0, or a nonzero nv_error of holdfast.h when they fail; nv_strerror says what to do
 * about one, and nv_errno has that of this thread's last failure. A native program that no host has started gets
 * NV_NO_HOST: run it with `holdfast run`.
 *
 * Build: an applet links libholdfast_applet.a. For a native one, `pkg-config --cflags --libs holdfast-applet` says how; it
 * may be static or dynamic, and must not link libholdfast, which has the same names for programs that open heaps on
 * their own.
 *
 * Sealing: while a native applet starts, its dynamic loader may still read files and map code. holdfast_serve ends that
 * when it tells the host what is exported, and holdfast_seal for a program that does not serve. What needs more than
 * memory and the heap (loading a library, say) is done before.
 *
 * Threads (native applets; one in WebAssembly has one): holdfast_serve runs the functions on the thread that called it.
 * Others may call everything here that takes a call, but not two of them at once on one call, and not after the
 * function has returned. They may use the heap while a call is under way; between calls the heap belongs to the host.
 *
 * A function must come back: no exception and no longjmp may leave it. holdfast_applet.hpp turns exceptions into failures.
 */
#ifndef HOLDFAST_APPLET_H
#define HOLDFAST_APPLET_H

#include <holdfast.h>

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
/* An exception that a function lets out ends the program, wherever it would be caught. */
#define HOLDFAST_NOEXCEPT noexcept
#else
#define HOLDFAST_NOEXCEPT
#endif

/* One call by the host. It lives until the function that it was handed to returns. */
typedef struct holdfast_call holdfast_call;

/* What is exported. It returns 0 when it is done; the host gets what holdfast_reply was given, or an empty result. It
 * returns a code of its own choice above 0 (below counts as 1) when it failed: the host gets the code and the text of
 * holdfast_fail, no result, and in the mode `direct` an open transaction is rolled back. */
typedef int (*holdfast_function)(holdfast_call *call, void *context);

/* Offers a function under a name: 1 to 64 bytes of UTF-8, copied, that no other one has. At most 1024, and before
 * holdfast_serve; else NV_BAD_EXPORT. The context is handed to the function at each call. */
int holdfast_export(const char *name, holdfast_function function, void *context);

/* Tells the host what is exported, and serves its calls until it says that there are no more. Once per program. */
int holdfast_serve(void) HOLDFAST_NOEXCEPT;

/* What the host has sent along, size bytes, until the function returns. Never NULL; aligned to 16. No NUL ends it: what
 * follows may be a rest of an earlier call, so give atoi and strlen a copy. */
const void *holdfast_input(const holdfast_call *call, size_t *size);

/* Sets the result, which is copied, and sent when the function has returned 0. At most once: then NV_REPLIED. What
 * is larger than 64 MiB goes in parts or in a buffer: as one message it is NV_TOO_LARGE, and nothing is set. */
int holdfast_reply(holdfast_call *call, const void *bytes, size_t size);

/* Sends a chunk of a result that comes in parts, now; the host gets each as it comes, before what holdfast_reply sets.
 * It waits while the host has more to read than fits into the channel. NV_CANCELLED when the host no longer wants the
 * result: clean up and return. NV_TOO_LARGE beyond 64 MiB. */
int holdfast_send(holdfast_call *call, const void *bytes, size_t size);

/* Sets the text that goes with a failure, which is copied, up to 64 KiB. For a statement: return holdfast_fail(call, "no such
 * word"); it returns 1. */
int holdfast_fail(holdfast_call *call, const char *message);

/* The buffer that the host shares with the applet for this call, and its size; NULL if there is none. What is stored there is
 * seen by the host without a copy. It is aligned to 4096. The host can store to it at any time: read what must not change
 * once, into memory of your own. */
void *holdfast_buffer(const holdfast_call *call, size_t *size);

/* Whether the host no longer wants the result: a function that takes long asks now and then, and returns. Cheap. In
 * WebAssembly it knows that from a holdfast_send that was refused (NV_CANCELLED); whoever sends nothing is ended by the host. */
int holdfast_cancelled(holdfast_call *call);

/* For programs that do not serve: ends the time of the dynamic loader (see above). In WebAssembly nothing to do. */
int holdfast_seal(void);

/* What the host lets the applet call, and only that: functions by name, bytes in and bytes out. They are there at any
 * time, also for a program that does not serve.
 *
 *     int price = holdfast_import("fetch_price");
 *     holdfast_result result = {0};
 *     if (price < 0 || holdfast_call_host(price, "tea", 3, &result)) fputs(nv_message(), stderr);
 *     else printf("%.*s\n", (int)result.size, (const char *)result.bytes);
 *     holdfast_result_free(&result);
 */

/* What a function of the host returned. Zero it before its first use; it can be used for call after call. */
typedef struct holdfast_result {
    const void *bytes; /* size bytes, until the next call with this result; NULL for none */
    size_t size;
    size_t reserved;   /* the library's */
    int code;          /* 0, or the function's own code: then the bytes are its words, as UTF-8 without a NUL */
} holdfast_result;

/* The number of the function of this name, which stays the same while the program runs; or, below 0, a negated error:
 * -NV_NO_FUNCTION when the host lets the applet call none of this name, -NV_NO_HOST, -NV_BAD_NAME. */
int holdfast_import(const char *name);

/* Calls a function of the host with size bytes (64 MiB at most, as what comes back) and waits until it has returned.
 * Other threads that need the host wait, too. NV_HOST_FUNCTION when it failed (code and words are in the result), panicked or
 * took too long (only words); NV_TOO_LARGE when input or result are longer than the host allows (words); NV_NO_FUNCTION for a
 * number that no function has; NV_NO_MEMORY, and then the function has run all the same. A transaction may be open
 * meanwhile: the host cannot see into the heap, nor call the applet. */
int holdfast_call_host(int function, const void *bytes, size_t size, holdfast_result *result);

/* Gives the result's memory back, and empties it. */
void holdfast_result_free(holdfast_result *result);

#ifdef __cplusplus
}
#endif

#endif
