// metrics.jsonl as an event file, which TensorBoard reads: every number of a line is a scalar under its key.
//
// The file is written again from the lines whenever metrics.jsonl is opened, so that both hold the same steps after a
// resume, which drops the later ones. Format: TFRecord (length, masked CRC32C of the length, data, masked
// CRC32C of the data), whose records are Event messages of tensorboard/compat/proto/event.proto.
#pragma once

#include "common/file/file.h"

typedef struct {
    int fd; // 0: not open
    char path[PATH_MAX_BYTES];
    uint64_t bytes; // written
    Buffer pending; // records that could not be written yet
} EventFile;

// Makes the event file of out_dir from lines of metrics.jsonl, the last of them written at `last_time` (seconds), and
// removes earlier event files of a trainer. -1 after fail().
int event_file_open(EventFile *file, const char *out_dir, Bytes lines, double last_time);
void event_file_add(EventFile *file, Bytes lines); // whole lines; nothing where it is not open
int event_file_flush(EventFile *file);             // -1 after fail(): the records are kept
void event_file_close(EventFile *file);            // accepts a zeroed struct
