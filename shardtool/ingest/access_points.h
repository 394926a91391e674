// Places in the compressed input files at which decoding can begin, so that a run that continues does not decode all
// that is before: ends of frames and members, and in gzip files ends of blocks, with the 32 KiB of content before them.
// Inside a zstd frame, an xz stream or a bzip2 stream there are no such places: libzstd has no call that saves its
// state, whose window alone has megabytes.
#pragma once

#include "shardtool/ingest/codec.h"

enum {
    ACCESS_POINTS = 16,          // kept; the reader is less than so many ahead of the shards
    ACCESS_POINT_BYTES = 4 << 20 // of content from one to the next, at least
};

typedef struct {
    uint64_t file;    // its number among the inputs
    uint64_t in, out; // the compressed bytes and the bytes of content before it
    CodecState state;
} AccessPoint;

typedef struct AccessPoints {
    uint64_t file;            // being read
    const AccessPoint *start; // of a run that continues, or NULL
    uint64_t added;
    AccessPoint last[ACCESS_POINTS]; // a ring
} AccessPoints;

// Adds the place that `codec` has reached, unless it is not a place to begin. `ended`: the end of a frame or member.
bool access_points_add(AccessPoints *points, uint64_t in, uint64_t out, const Codec *codec, void *state, bool ended);
// The last one at or before a byte of the content of a file, or NULL.
const AccessPoint *access_points_find(const AccessPoints *points, uint64_t file, uint64_t out);
