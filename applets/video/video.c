/*
 * libavformat finds the packets, libavcodec makes frames of them, libswscale makes pixels of those.
 */
#include "video.h"
#include "memory_file.h"
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libavutil/log.h>
#include <libswscale/swscale.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* swscale's vector code may write whole vectors: to the caller's rows only where those end with one. */
enum { PIXELS_OF_A_VECTOR = 32, ROW_ALIGNMENT_BYTES = 64 };

struct video {
    struct memory_file file;
    AVIOContext *io;
    AVFormatContext *format;
    AVCodecContext *codec;
    struct SwsContext *scaler;
    AVPacket *packet;
    AVFrame *frame;
    uint8_t *rows; /* a frame whose rows have room behind them, made when one is needed */
    int stream, width, height;
    int drained; /* the codec has been told that there is no more */
    int64_t frames, shown;
    double frames_per_s;
};

static char said[256];

static void keep_what_is_said(void *object, int level, const char *format, va_list arguments) {
    (void)object;
    if (level <= AV_LOG_ERROR) vsnprintf(said, sizeof said, format, arguments);
}

const char *video_message(int error) {
    static char message[sizeof said + AV_ERROR_MAX_STRING_SIZE + 8];
    char meaning[AV_ERROR_MAX_STRING_SIZE] = "";
    av_strerror(error, meaning, sizeof meaning);
    size_t length = strcspn(said, "\r\n");
    snprintf(message, sizeof message, "%s%s%.*s", meaning, length ? ": " : "", (int)length, said);
    return message;
}

/* Playlists name other files and places. A demuxer that opens a second container for one hands on which protocols are
 * allowed (none), but not how to open things; so both are told. */
static const char NO_PROTOCOL[] = "none";

static int refuse_to_open(AVFormatContext *format, AVIOContext **io, const char *url, int flags, AVDictionary **options) {
    (void)format, (void)io, (void)url, (void)flags, (void)options;
    return AVERROR(EPERM);
}

static void close_stream(struct video *video) {
    avcodec_free_context(&video->codec);
    avformat_close_input(&video->format);
    memory_file_close(video->io);
    video->io = NULL;
}

/* Opens the container and the decoder at the start of the file. */
static int open_stream(struct video *video) {
    video->io = memory_file_open(&video->file);
    video->format = avformat_alloc_context();
    if (!video->io || !video->format) return AVERROR(ENOMEM);
    video->format->protocol_whitelist = av_strdup(NO_PROTOCOL);
    if (!video->format->protocol_whitelist) return AVERROR(ENOMEM);
    video->format->pb = video->io;
    video->format->flags |= AVFMT_FLAG_CUSTOM_IO;
    video->format->io_open = refuse_to_open;
    int error = avformat_open_input(&video->format, NULL, NULL, NULL);
    if (error < 0 || (error = avformat_find_stream_info(video->format, NULL)) < 0) return error;
    const AVCodec *decoder;
    video->stream = av_find_best_stream(video->format, AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
    if (video->stream < 0) return video->stream;
    for (unsigned i = 0; i < video->format->nb_streams; i++) {
        if ((int)i != video->stream) video->format->streams[i]->discard = AVDISCARD_ALL;
    }
    video->codec = avcodec_alloc_context3(decoder);
    if (!video->codec) return AVERROR(ENOMEM);
    error = avcodec_parameters_to_context(video->codec, video->format->streams[video->stream]->codecpar);
    if (error < 0) return error;
    video->codec->thread_count = 1;
    video->codec->pkt_timebase = video->format->streams[video->stream]->time_base;
    video->drained = 0;
    video->shown = 0;
    return avcodec_open2(video->codec, decoder, NULL);
}

static int count_frames(struct video *video) {
    int error;
    while ((error = av_read_frame(video->format, video->packet)) >= 0) {
        if (video->packet->stream_index == video->stream) video->frames++;
        av_packet_unref(video->packet);
    }
    return error == AVERROR_EOF ? 0 : error;
}

int video_open(struct video **opened, const uint8_t *bytes, size_t size) {
    av_log_set_callback(keep_what_is_said);
    said[0] = 0;
    struct video *video = av_mallocz(sizeof *video);
    if (!video) return AVERROR(ENOMEM);
    video->file = (struct memory_file){.bytes = bytes, .size = (int64_t)size};
    video->packet = av_packet_alloc();
    video->frame = av_frame_alloc();
    int error = video->packet && video->frame ? open_stream(video) : AVERROR(ENOMEM);
    if (!error) {
        const AVStream *stream = video->format->streams[video->stream];
        AVRational rate = stream->avg_frame_rate.num ? stream->avg_frame_rate : stream->r_frame_rate;
        video->width = video->codec->width;
        video->height = video->codec->height;
        video->frames_per_s = rate.num && rate.den ? av_q2d(rate) : 0;
        error = av_image_check_size((unsigned)video->width, (unsigned)video->height, 0, NULL);
        if (!error) error = count_frames(video);
        if (!error) error = video_rewind(video);
    }
    if (error < 0) {
        video_close(video);
        return error;
    }
    *opened = video;
    return 0;
}

void video_close(struct video *video) {
    if (!video) return;
    close_stream(video);
    sws_freeContext(video->scaler);
    av_packet_free(&video->packet);
    av_frame_free(&video->frame);
    av_free(video->rows);
    av_free(video);
}

struct video_properties video_properties(const struct video *video) {
    return (struct video_properties){
        .width = video->width,
        .height = video->height,
        .frames = video->frames,
        .frames_per_s = video->frames_per_s,
        .codec = avcodec_get_name(video->codec->codec_id),
    };
}

/* Not a seek, which some containers do only nearly: the same frames come as at the first time. */
int video_rewind(struct video *video) {
    close_stream(video);
    return open_stream(video);
}

/* Gives the decoder the next packet of the video, or tells it that there is none. */
static int feed(struct video *video) {
    int error = av_read_frame(video->format, video->packet);
    if (error == AVERROR_EOF) {
        video->drained = 1;
        return avcodec_send_packet(video->codec, NULL);
    }
    if (error < 0) return error;
    if (video->packet->stream_index == video->stream) error = avcodec_send_packet(video->codec, video->packet);
    av_packet_unref(video->packet);
    /* A damaged packet costs its frame; the next one may be whole. */
    return error == AVERROR_INVALIDDATA ? 0 : error;
}

/* The decoded frame to packed pixels; the library reads four planes and strides, whatever the format has. */
static int scale(const struct video *video, uint8_t *to, int row_bytes) {
    const AVFrame *frame = video->frame;
    uint8_t *const planes[4] = {to};
    const int strides[4] = {row_bytes};
    return sws_scale(video->scaler, (const uint8_t *const *)frame->data, frame->linesize, 0, frame->height, planes, strides);
}

/* Writes the decoded frame to rows without gaps, in the size that the video has had from the start. */
static int write_pixels(struct video *video, enum AVPixelFormat format, uint8_t *to) {
    const AVFrame *frame = video->frame;
    video->scaler =
        sws_getCachedContext(video->scaler, frame->width, frame->height, frame->format, video->width, video->height, format,
                             SWS_BILINEAR, NULL, NULL, NULL);
    int row_bytes = av_image_get_linesize(format, video->width, 0);
    if (!video->scaler || row_bytes <= 0) return AVERROR(EINVAL);
    if (video->width % PIXELS_OF_A_VECTOR == 0) {
        int rows = scale(video, to, row_bytes);
        return rows < 0 ? rows : 0;
    }
    /* Room for the widest pixels, so that it fits whatever is asked for next. */
    int padded_bytes = FFALIGN(4 * video->width, ROW_ALIGNMENT_BYTES) + ROW_ALIGNMENT_BYTES;
    if (!video->rows) video->rows = av_malloc_array((size_t)video->height, (size_t)padded_bytes);
    if (!video->rows) return AVERROR(ENOMEM);
    int rows = scale(video, video->rows, padded_bytes);
    if (rows < 0) return rows;
    av_image_copy_plane(to, row_bytes, video->rows, padded_bytes, row_bytes, video->height);
    return 0;
}

static int64_t presentation_time_us(const struct video *video) {
    const AVStream *stream = video->format->streams[video->stream];
    int64_t pts = video->frame->best_effort_timestamp;
    if (pts == AV_NOPTS_VALUE) {
        return video->frames_per_s > 0 ? (int64_t)((double)video->shown * 1e6 / video->frames_per_s) : 0;
    }
    if (stream->start_time != AV_NOPTS_VALUE) pts -= stream->start_time;
    return av_rescale_q(pts, stream->time_base, AV_TIME_BASE_Q);
}

int video_next_frame(struct video *video, enum AVPixelFormat format, uint8_t *to, int64_t *time_us) {
    said[0] = 0;
    /* An open that failed half-way through a rewind. */
    if (!video->codec) return AVERROR(EINVAL);
    int error;
    while ((error = avcodec_receive_frame(video->codec, video->frame)) == AVERROR(EAGAIN)) {
        if (video->drained) return AVERROR_EOF;
        if ((error = feed(video)) < 0) return error;
    }
    if (error < 0) return error;
    *time_us = presentation_time_us(video);
    video->shown++;
    error = write_pixels(video, format, to);
    av_frame_unref(video->frame);
    return error;
}
