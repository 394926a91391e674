// All documents of all files, in order: argument -> files -> Stream -> InputFormat -> Parts.
#pragma once

#include "shardtool/ingest/inputs.h"
#include "shardtool/ingest/source_options.h"

typedef struct Source Source;
Source *source_open(const Inputs *inputs, SourceOptions *options);
// Begins in file `file` at a place of an earlier Part, of document `document`. Call it before the first source_next.
void source_start(Source *source, uint64_t file, ReadPlace place, uint64_t document);
int source_next(Source *source, Part *part);                // 1, 0 at the end, -1 after fail()
int source_fail_in(const Source *source, const Part *part); // names its document in the pending error; returns -1
uint64_t source_bytes_read(const Source *source);           // of the files' bytes, for progress
int source_check(const Source *source); // 74 when the file that is being read has changed: for a reader that ends early
// Whether the file that is being read is remote, and its number: after an error 65 the bytes may be wrong.
bool source_is_remote(const Source *source, uint64_t *file);
void source_close(Source *source); // accepts NULL
