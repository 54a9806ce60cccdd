/*
 * A video decoder as an applet: a large library that nobody has proved, fed with bytes from anywhere, where a fault of it
 * costs a frame and nothing else. The papers' MPEG player, with today's libavcodec. Native only.
 *
 *     open        input: the video, any format that libavformat knows; or no input, and the video in the shared buffer (which is
 *                 copied, so that the buffer may be used otherwise). Result: JSON with width, height, frames, rate, codec
 *     next_frame  input: "rgba", the default, or "rgb24". Writes the frame's pixels into the call's shared buffer, row by row
 *                 without gaps. Result: when it is to be shown, in microseconds from the start (a little-endian 64-bit
 *                 number); nothing after the last frame
 *     rewind      the next frame is the first one again
 *     play        for hosts without a shared buffer: streams the frames from here to the last one, each a chunk: when it is to be
 *                 shown, as next_frame says it, and its pixels (RGBA)
 */
#include "video.h"
#include <holdfast_applet.h>
#include <libavutil/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Codes of failures. */
enum { BAD_INPUT = 1, NO_REPLY = 2, NOT_OPEN = 3, NO_MEMORY = 4, BAD_VIDEO = 5 };

/* What is past the end is read as zeroes by readers of bits that look ahead (AV_INPUT_BUFFER_PADDING_SIZE). */
enum { PADDING_BYTES = 64 };

struct player {
    struct video *video;
    uint8_t *bytes;
};

static int fail(holdfast_call *call, int code, const char *message) {
    holdfast_fail(call, message);
    return code;
}

static void close_player(struct player *player) {
    video_close(player->video);
    free(player->bytes);
    *player = (struct player){0};
}

static int open_video(holdfast_call *call, void *context) {
    struct player *player = context;
    size_t size;
    const void *bytes = holdfast_input(call, &size);
    if (!size) bytes = holdfast_buffer(call, &size);
    if (!bytes || !size) return fail(call, BAD_INPUT, "open needs a video, as its input or in its shared buffer");
    close_player(player);
    player->bytes = malloc(size + PADDING_BYTES);
    if (!player->bytes) return fail(call, NO_MEMORY, "the video is too large for the applet's memory; raise its limit");
    memcpy(player->bytes, bytes, size);
    memset(player->bytes + size, 0, PADDING_BYTES);
    int error = video_open(&player->video, player->bytes, size);
    if (error) {
        close_player(player);
        return fail(call, BAD_VIDEO, video_message(error));
    }
    struct video_properties it = video_properties(player->video);
    char json[256];
    int length = snprintf(json, sizeof json, "{\"width\":%d,\"height\":%d,\"frames\":%lld,\"rate\":%.6g,\"codec\":\"%s\"}", it.width,
                          it.height, (long long)it.frames, it.frames_per_s, it.codec);
    return holdfast_reply(call, json, (size_t)length) ? NO_REPLY : 0;
}

static int next_frame(holdfast_call *call, void *context) {
    struct player *player = context;
    if (!player->video) return fail(call, NOT_OPEN, "no video is open; call open first");
    size_t size, room;
    const void *input = holdfast_input(call, &size);
    int with_alpha = size == 0 || (size == 4 && !memcmp(input, "rgba", 4));
    if (!with_alpha && (size != 5 || memcmp(input, "rgb24", 5))) {
        return fail(call, BAD_INPUT, "the input of next_frame is \"rgba\", \"rgb24\", or nothing");
    }
    uint8_t *to = holdfast_buffer(call, &room);
    struct video_properties it = video_properties(player->video);
    size_t needed = (size_t)it.width * (size_t)it.height * (with_alpha ? 4 : 3);
    if (!to || room < needed) return fail(call, BAD_INPUT, "next_frame needs a shared buffer of width * height pixels");
    int64_t time_us;
    int error = video_next_frame(player->video, with_alpha ? AV_PIX_FMT_RGBA : AV_PIX_FMT_RGB24, to, &time_us);
    if (error == AVERROR_EOF) return holdfast_reply(call, "", 0) ? NO_REPLY : 0;
    if (error) return fail(call, BAD_VIDEO, video_message(error));
    uint8_t reply[8];
    for (int i = 0; i < 8; i++) reply[i] = (uint8_t)((uint64_t)time_us >> (8 * i));
    return holdfast_reply(call, reply, sizeof reply) ? NO_REPLY : 0;
}

static int rewind_video(holdfast_call *call, void *context) {
    struct player *player = context;
    if (!player->video) return fail(call, NOT_OPEN, "no video is open; call open first");
    int error = video_rewind(player->video);
    if (!error) return 0;
    int code = fail(call, BAD_VIDEO, video_message(error));
    close_player(player);
    return code;
}

static int play(holdfast_call *call, void *context) {
    struct player *player = context;
    if (!player->video) return fail(call, NOT_OPEN, "no video is open; call open first");
    struct video_properties it = video_properties(player->video);
    size_t size = 8 + (size_t)it.width * (size_t)it.height * 4;
    uint8_t *chunk = malloc(size);
    if (!chunk) return fail(call, NO_MEMORY, "a frame is too large for the applet's memory; raise its limit");
    int code = 0;
    while (!code) {
        int64_t time_us;
        int error = video_next_frame(player->video, AV_PIX_FMT_RGBA, chunk + 8, &time_us);
        if (error == AVERROR_EOF) break;
        if (error) code = fail(call, BAD_VIDEO, video_message(error));
        for (int i = 0; i < 8; i++) chunk[i] = (uint8_t)((uint64_t)time_us >> (8 * i));
        if (!code && holdfast_send(call, chunk, size)) code = NO_REPLY;
    }
    free(chunk);
    return code;
}

int main(void) {
    static struct player player;
    holdfast_export("open", open_video, &player);
    holdfast_export("next_frame", next_frame, &player);
    holdfast_export("rewind", rewind_video, &player);
    holdfast_export("play", play, &player);
    if (!holdfast_serve()) return 0;
    fprintf(stderr, "video: %s\n", nv_message());
    return 1;
}
