// Decompresses a stream, at once or ahead of its reader: bytes that were decoded ahead, in any thread, are read first.
#pragma once

#include "shardtool/ingest/access_points.h"
#include "shardtool/ingest/source_options.h"

typedef struct Decoder Decoder;

// `outer` starts with the magic number of `codec` and is borrowed, as is `name`, which messages print.
Decoder *decoder_open(Stream *outer, const Codec *codec, const SourceOptions *options);
// Decodes up to `limit` bytes into `out` and keeps them there for decoder_read. An error is kept too, and is reported
// by the decoder_read that reaches it. `out` is borrowed until decoder_close.
void decoder_run_ahead(Decoder *decoder, Buffer *out, size_t limit);
// As Stream.read. 65 when the data are damaged or truncated, or expand beyond --max-ratio.
ssize_t decoder_read(Decoder *decoder, void *data, size_t size);
// Notes the access points of `outer`, an input file of its own, and can begin at the one of a run that continues.
void decoder_use_points(Decoder *decoder, AccessPoints *points);
// Whether decoding can begin at a place after the beginning and before byte `offset` of the content.
bool decoder_has_point(const Decoder *decoder, uint64_t offset);
int decoder_seek(Decoder *decoder, uint64_t offset); // there, then decodes up to `offset`
void decoder_close(Decoder *decoder);                // accepts NULL
