/*
 * A file in memory for libavformat: the applet has the video's bytes, and opens no files.
 */
#ifndef HOLDFAST_APPLET_MEMORY_FILE_H
#define HOLDFAST_APPLET_MEMORY_FILE_H

#include <libavformat/avio.h>

struct memory_file {
    const uint8_t *bytes;
    int64_t size, position;
};

/* Opens the file for reading, from its start. NULL if there is no memory. The memory_file and its bytes must outlive it. */
AVIOContext *memory_file_open(struct memory_file *file);
/* NULL is nothing to close. */
void memory_file_close(AVIOContext *io);

#endif
