// Shared by the journals of unfinished runs: lines with a checksum, and the access point near the place from which a
// run continues.
#pragma once

#include "common/hash.h"
#include "shardtool/ingest/access_points.h"
#include "shardtool/ingest/inputs.h"
#include "shardtool/ingest/stream.h"

struct json_t; // of libjansson

// A position in the inputs: the file, the document in it, and the ids of that document before the position. The
// document is preceded by `preceding` others after a place of the file.
typedef struct {
    uint64_t file, document, token;
    uint64_t record; // where the document is in the file (dataset/provenance.h)
    ReadPlace place;
    uint64_t preceding;
} InputPosition;

// Whether the document of `a` is before the document of `b`.
static inline bool position_is_before(InputPosition a, InputPosition b) {
    return a.file < b.file || (a.file == b.file && a.document < b.document);
}

// A line is the CRC32C of its JSON text in hex, a space, and the text.
bool journal_line_next(Bytes *text, Bytes *json); // removes one from `text`, if its checksum is correct
int journal_line_add(int fd, const char *path, const Buffer *json);         // durably
int journal_write(int fd, const void *data, size_t size, const char *path); // bytes that are not a line, durably
int journal_file_open(const char *path, int flags); // creates it if it is missing; refuses links

bool journal_get_number(const struct json_t *object, const char *key, uint64_t *number); // false: no number
void journal_get_params(Bytes header, Buffer *params); // appends the "params" of a first line

bool journal_has_stream(const Inputs *inputs); // one that cannot be read twice

// The access point of a journal's last line. Its window is in a file of its own.
typedef struct {
    AccessPoint point; // all zero at first
    char path[PATH_MAX_BYTES];
} JournalPoint;

// Replaces the point by a nearer one before `position`, if there is one; `points` may be NULL. Sets *has_point when the
// point is at or before the position.
int journal_point_keep(JournalPoint *kept, const AccessPoints *points, InputPosition position, bool *has_point);
void journal_point_add(Buffer *json, const AccessPoint *point);
// Reads the point of journal_point_add, and the window from `path`. *point is all zero without a complete point.
void journal_point_get(const struct json_t *object, const char *path, AccessPoint *point);
