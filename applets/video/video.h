/*
 * A video in memory, frame by frame, decoded by libavcodec on the calling thread. Knows nothing of applets.
 *
 * Invariants: no thread is created; no file, socket or device is opened, whatever the video says. Functions return 0 or a
 * negative AVERROR; video_message tells what libav said about the latest.
 */
#ifndef HOLDFAST_APPLET_VIDEO_H
#define HOLDFAST_APPLET_VIDEO_H

#include <libavutil/pixfmt.h>
#include <stddef.h>
#include <stdint.h>

struct video;

struct video_properties {
    int width, height;
    int64_t frames; /* as many as the file has packets of video */
    double frames_per_s;
    const char *codec;
};

/* Opens a video of `size` bytes, which must stay there and as they are until video_close. */
int video_open(struct video **video, const uint8_t *bytes, size_t size);
void video_close(struct video *video);
struct video_properties video_properties(const struct video *video);

/* Decodes the next frame into rows of packed pixels (AV_PIX_FMT_RGBA, AV_PIX_FMT_RGB24), one after the other from `to`, which has
 * room for width * height of them; and when it is to be shown, in microseconds from the start of the video. AVERROR_EOF after
 * the last one. */
int video_next_frame(struct video *video, enum AVPixelFormat format, uint8_t *to, int64_t *time_us);
/* The next frame is the first one again. */
int video_rewind(struct video *video);

/* The text of an error: what libav said last, if it said anything, and what the number means. Valid until the next call. */
const char *video_message(int error);

#endif
