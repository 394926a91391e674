// Compressed members of an archive: loaded whole, decoded ahead by workers, returned in the order of the archive.
#pragma once

#include "shardtool/ingest/source_options.h"

enum { MEMBER_BYTES_MAX = 4 << 20 }; // a larger member is not for the queue

typedef struct MemberQueue MemberQueue;
MemberQueue *member_queue_open(SourceOptions *options); // NULL after fail()
bool member_queue_has_space(const MemberQueue *queue);
bool member_queue_is_empty(const MemberQueue *queue); // accepts NULL, as the next two do
// Loads the rest of `member`, whose first bytes were peeked at and have the magic number of a codec. -1, with the error
// taken from this thread, when it cannot be read to its end: the stream in the queue ends in that error.
int member_queue_add(MemberQueue *queue, Stream *member);
// Returns the oldest member, for reader_open; it is valid until the next call. NULL when the queue is empty.
Stream *member_queue_next(MemberQueue *queue);
void member_queue_close(MemberQueue *queue);
