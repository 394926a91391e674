// metrics.jsonl as an event file, which TensorBoard reads: every number of a line is a scalar under its key.
//
// Whenever metrics.jsonl is opened, a new file begins at the last step that the earlier files have, which are cut
// there: a resume drops the later ones. So each step is in one file, and a reader that follows an earlier file by its
// name finds the next one. Format: TFRecord (length, masked CRC32C of the length, data, masked CRC32C of the data),
// whose records are Event messages of tensorboard/compat/proto/event.proto.
#pragma once

#include "common/file/file.h"

typedef struct {
    int fd; // 0: not open
    char path[PATH_MAX_BYTES];
    uint64_t bytes; // written
    Buffer pending; // records that could not be written yet
} EventFile;

// Makes the next event file of out_dir from lines of metrics.jsonl, the last of them written at `last_time` (seconds).
// -1 after fail().
int event_file_open(EventFile *file, const char *out_dir, Bytes lines, double last_time);
void event_file_add(EventFile *file, Bytes lines); // whole lines; nothing if it is not open
int event_file_flush(EventFile *file);             // -1 after fail(): the records are kept
void event_file_close(EventFile *file);            // accepts a zeroed struct
