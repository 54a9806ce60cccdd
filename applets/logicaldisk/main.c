/*
 * The map of a logical disk as an applet: table look-ups of nanoseconds each, so that only a call that asks for many of
 * them can pay. It is here to show that.
 *
 *     format   input: physical blocks, blocks per segment, logical blocks. A new disk in place of the one before
 *     write    input: logical blocks, one or more. Result: the place of each that the host is to write it to. Fewer places
 *              than blocks: no segment is empty. Call clean, then write with the rest
 *     read     input: logical blocks. Result: where each lies, 0xffffffff if it was never written
 *     clean    Result: pairs of places, from and to, between which the host is to copy blocks before the next write
 *     update   input: logical blocks. Writes them with the cleaner running in between. Result: pairs of places in the order in
 *              which the host is to do them: 0xffffffff and where the next block is to be written, or from and to, as
 *              clean has them. Fewer of the first than blocks: call it again with the rest; no pair at all: the disk is full
 *
 * All are little-endian 32-bit numbers. The map is the applet's ordinary memory: it ends with the applet. Native and
 * WebAssembly.
 */
#include "logicaldisk.h"
#include <holdfast_applet.h>
#include <stdio.h>
#include <stdlib.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers are read as they come: little-endian"
#endif

/* Codes of failures. */
enum { BAD_INPUT = 1, NO_REPLY = 2, NO_DISK = 3, NO_MEMORY = 4 };

struct state {
    struct logicaldisk *disk;
    uint32_t *result;
    size_t result_bytes;
};

static int fail(holdfast_call *call, int code, const char *message) {
    holdfast_fail(call, message);
    return code;
}

/* The input's numbers; NULL if it is no such input. */
static const uint32_t *numbers(const holdfast_call *call, size_t *count) {
    size_t size;
    const void *input = holdfast_input(call, &size);
    *count = size / sizeof(uint32_t);
    return size % sizeof(uint32_t) ? NULL : input;
}

/* Room for a result, kept from call to call. */
static void *room(struct state *state, size_t bytes) {
    if (bytes > state->result_bytes) {
        void *larger = realloc(state->result, bytes);
        if (!larger) return NULL;
        state->result = larger;
        state->result_bytes = bytes;
    }
    return state->result;
}

static int format(holdfast_call *call, void *context) {
    struct state *state = context;
    size_t count;
    const uint32_t *input = numbers(call, &count);
    if (!input || count != 3) return fail(call, BAD_INPUT, "format takes three numbers of 4 bytes");
    struct logicaldisk *disk = logicaldisk_new(input[0], input[1], input[2]);
    if (!disk) {
        return fail(call, BAD_INPUT,
                    "no such disk: the blocks are a multiple of those of a segment, at most 2^28, the logical ones fewer by two "
                    "segments or more; or the applet has not memory enough");
    }
    logicaldisk_free(state->disk);
    state->disk = disk;
    return 0;
}

/* What write and read share: checks the blocks, and finds room for their places. */
static int look(holdfast_call *call, struct state *state, const uint32_t **blocks, uint32_t **places, size_t *count) {
    if (!state->disk) return fail(call, NO_DISK, "there is no disk; call format first");
    *blocks = numbers(call, count);
    if (!*blocks || !*count) return fail(call, BAD_INPUT, "the blocks are one number of 4 bytes or more");
    uint32_t end = logicaldisk_logical_blocks(state->disk);
    for (size_t i = 0; i < *count; i++) {
        if ((*blocks)[i] >= end) return fail(call, BAD_INPUT, "a logical block is not on this disk");
    }
    *places = room(state, *count * sizeof **places);
    return *places ? 0 : fail(call, NO_MEMORY, "not enough memory for the result; ask for fewer blocks at once");
}

static int write_blocks(holdfast_call *call, void *context) {
    struct state *state = context;
    const uint32_t *blocks;
    uint32_t *places;
    size_t count, done = 0;
    int code = look(call, state, &blocks, &places, &count);
    if (code) return code;
    while (done < count && (places[done] = logicaldisk_write(state->disk, blocks[done])) != LOGICALDISK_NOWHERE) done++;
    return holdfast_reply(call, places, done * sizeof *places) ? NO_REPLY : 0;
}

static int update_blocks(holdfast_call *call, void *context) {
    struct state *state = context;
    const uint32_t *blocks;
    uint32_t *places;
    size_t count, step_count;
    int code = look(call, state, &blocks, &places, &count);
    if (code) return code;
    size_t steps_max = 4 * count + logicaldisk_segment_blocks(state->disk) + 1;
    struct logicaldisk_move *steps = room(state, steps_max * sizeof *steps);
    if (!steps) return fail(call, NO_MEMORY, "not enough memory for the result; write fewer blocks at once");
    logicaldisk_update(state->disk, blocks, count, steps, steps_max, &step_count);
    return holdfast_reply(call, steps, step_count * sizeof *steps) ? NO_REPLY : 0;
}

static int read_blocks(holdfast_call *call, void *context) {
    struct state *state = context;
    const uint32_t *blocks;
    uint32_t *places;
    size_t count;
    int code = look(call, state, &blocks, &places, &count);
    if (code) return code;
    for (size_t i = 0; i < count; i++) places[i] = logicaldisk_read(state->disk, blocks[i]);
    return holdfast_reply(call, places, count * sizeof *places) ? NO_REPLY : 0;
}

static int clean(holdfast_call *call, void *context) {
    struct state *state = context;
    if (!state->disk) return fail(call, NO_DISK, "there is no disk; call format first");
    struct logicaldisk_move *moves = room(state, logicaldisk_segment_blocks(state->disk) * sizeof *moves);
    if (!moves) return fail(call, NO_MEMORY, "not enough memory for the result");
    size_t count = logicaldisk_clean(state->disk, moves);
    return holdfast_reply(call, moves, count * sizeof *moves) ? NO_REPLY : 0;
}

int main(void) {
    static struct state state;
    holdfast_export("format", format, &state);
    holdfast_export("write", write_blocks, &state);
    holdfast_export("read", read_blocks, &state);
    holdfast_export("clean", clean, &state);
    holdfast_export("update", update_blocks, &state);
    if (!holdfast_serve()) return 0;
    fprintf(stderr, "logicaldisk: %s\n", nv_message());
    return 1;
}
