// The common part of the readers of tar and zip: libarchive finds the members in order, and each is a stream.
#pragma once

#include "common/err.h"
#include "shardtool/ingest/input_format.h"
#include "shardtool/ingest/member_queue.h"
#include <archive.h>
#include <locale.h>

typedef struct ArchiveReader ArchiveReader;

// The differences between tar and zip.
typedef struct {
    bool has_directory; // libarchive reads it at any offset, and finds the member after a damaged one
    int (*prepare)(ArchiveReader *archive);   // sets `begin`, or finds the directory
    int (*configure)(struct archive *handle); // ARCHIVE_OK
    archive_read_callback *read;
    int (*check_end)(ArchiveReader *archive); // after the last member
} ArchiveKind;

// The state after the members in the queue.
typedef enum {
    LOOK_ON,     // the next header
    LOOK_WAITS,  // a member that is read in place
    LOOK_FAILED, // an error
    LOOK_ENDED   // the end of the archive
} LookAhead;

// The member that is read.
typedef struct {
    Stream *stream; // in the queue, or `found`
    FormatReader *reader;
    ReadPlace place;
    uint64_t documents; // of it so far
} OpenMember;

struct ArchiveReader {
    FormatReader reader;
    const ArchiveKind *kind;
    Stream *outer;
    SourceOptions *options;
    struct archive *handle;
    locale_t utf8;      // of a zip, while a header is read; 0 if there is none
    uint64_t begin;     // the byte of `outer` that libarchive counts as the first
    uint64_t bytes;     // read of `outer`, or the offset of the next read_at
    uint64_t out_bytes; // data of all members so far
    uint64_t first;     // the number of the first file to be read
    uint64_t headers;   // of all members found so far, also of directories
    uint64_t files;     // found so far
    uint64_t links;     // second names of them
    bool broken;        // this archive, not one of its members, cannot be read further
    bool resyncs;       // libarchive searches the next header after a damaged one
    LookAhead ahead;
    Error error;        // of `found` or the archive, with LOOK_FAILED
    Stream found;       // the member of the last header
    MemberQueue *queue; // members before `found` that are still to be read; opened for the first compressed one
    OpenMember member;
};

// `archive` is zeroed. After -1, members_close frees it.
int members_open(ArchiveReader *archive, const ArchiveKind *kind, Stream *stream, SourceOptions *options);
int members_next(ArchiveReader *archive, Part *part); // as InputFormat.next
void members_close(ArchiveReader *archive);

static inline bool are_zeros(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) return false;
    return true;
}
