/*
 * The two callbacks that libavformat asks for bytes, over memory.
 */
#include "memory_file.h"
#include <libavutil/error.h>
#include <libavutil/mem.h>
#include <stdio.h>
#include <string.h>

enum { IO_BUFFER_BYTES = 64 * 1024 };

static int read_bytes(void *opaque, uint8_t *to, int size) {
    struct memory_file *file = opaque;
    int64_t left = file->size - file->position;
    if (left <= 0) return AVERROR_EOF;
    if (size > left) size = (int)left;
    memcpy(to, file->bytes + file->position, (size_t)size);
    file->position += size;
    return size;
}

static int64_t seek(void *opaque, int64_t offset, int whence) {
    struct memory_file *file = opaque;
    int64_t start;
    switch (whence & ~AVSEEK_FORCE) {
    case AVSEEK_SIZE: return file->size;
    case SEEK_SET: start = 0; break;
    case SEEK_CUR: start = file->position; break;
    case SEEK_END: start = file->size; break;
    default: return AVERROR(EINVAL);
    }
    if (offset < -start || offset > file->size - start) return AVERROR(EINVAL);
    return file->position = start + offset;
}

AVIOContext *memory_file_open(struct memory_file *file) {
    file->position = 0;
    uint8_t *buffer = av_malloc(IO_BUFFER_BYTES);
    AVIOContext *io = buffer ? avio_alloc_context(buffer, IO_BUFFER_BYTES, 0, file, read_bytes, NULL, seek) : NULL;
    if (!io) av_free(buffer);
    return io;
}

void memory_file_close(AVIOContext *io) {
    if (!io) return;
    /* libavformat may have put another buffer there. */
    av_freep(&io->buffer);
    avio_context_free(&io);
}
