// Archives through libarchive: tar, also several concatenated ones, and zip. Members are streams again.
//
// A zip is read by the directory at its end: a tool may delete a member by removing its entry there and nothing else.
// One from a pipe or in another container is first copied to a temporary file.
#include "common/err.h"
#include "common/log.h"
#include "shardtool/ingest/input_format.h"
#include "shardtool/ingest/member_queue.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 65536, TAR_BLOCK_BYTES = 512 };

// What comes after the members in the queue.
typedef enum {
    LOOK_ON,     // the next header
    LOOK_WAITS,  // a member that is read in place
    LOOK_FAILED, // an error
    LOOK_ENDED   // the end of the archive
} LookAhead;

typedef struct {
    FormatReader reader;
    Stream *outer;
    SpooledStream *spooled; // `outer`, for a zip that came without read_at
    SourceOptions *options;
    struct archive *archive;
    bool is_zip;
    bool broken;        // this archive, not one of its members, cannot be read further
    bool resyncs;       // libarchive searches the next header behind a damaged one
    bool ends_in_zeros; // the last 512 bytes read are zeros, as at the end of a tar
    uint64_t bytes;     // read of the outer stream, or the offset of the next read_at
    uint64_t out_bytes; // data of all members so far
    Stream member;      // of the last header
    MemberQueue *queue; // members before `member` that are still to be read; opened for the first compressed one
    LookAhead ahead;
    Error error; // of `member` or the archive, with LOOK_FAILED
    Stream *current;
    uint64_t first;      // the number of the first file to be read
    uint64_t begin;      // the byte of the outer stream that libarchive counts as the first
    uint64_t members;    // files found so far
    uint64_t links;      // second names of them
    uint64_t headers;    // of a zip: of all members found so far, also of directories
    uint64_t listed;     // of a zip: the number of members that its end record has, modulo 65536
    uint64_t extra;      // of a zip: bytes behind the end record that are not zeros only
    uint64_t number;     // of `current` among them
    uint64_t offset;     // of its header
    uint64_t preceding;  // documents of it
    FormatReader *inner; // reads `current`
    uint8_t block[BLOCK_BYTES];
} ArchiveReader;

static bool is_zip(Bytes head) {
    return head.size >= 4 && (!memcmp(head.data, "PK\3\4", 4) || !memcmp(head.data, "PK\5\6", 4));
}

static bool is_tar(Bytes head) {
    if (head.size < TAR_BLOCK_BYTES || !head.data[0]) return false;
    uint64_t sum = 8 * ' '; // the checksum field counts as spaces
    for (int i = 0; i < TAR_BLOCK_BYTES; i++)
        if (i < 148 || i >= 156) sum += head.data[i];
    char field[9] = {0};
    memcpy(field, head.data + 148, 8);
    return strtoull(field, NULL, 8) == sum;
}

int archive_bid(Bytes head) { return is_zip(head) || is_tar(head) ? BID_MAGIC : BID_NONE; }

// A pending error of ours is the cause. libarchive may have no message of its own.
static int fail_archive(ArchiveReader *self, const char *name) {
    self->broken = true;
    if (err_code()) return -1;
    if (archive_errno(self->archive) == ENOMEM || errno == ENOMEM)
        return fail(EX_MEMORY, "out of memory: archive '%s'", name);
    const char *text = archive_error_string(self->archive);
    if (!text || strstr(text, "No progress")) text = "it ends too early";
    return fail(EX_DATA, "'%s': truncated or damaged at byte %" PRIu64 " of '%s' (%s)", name, self->bytes,
                self->outer->name, text);
}

static bool are_zeros(const uint8_t *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (bytes[i]) return false;
    return true;
}

static la_ssize_t read_block(struct archive *archive, void *data, const void **block) {
    (void)archive;
    ArchiveReader *self = data;
    Stream *outer = self->outer;
    ssize_t got = self->is_zip ? stream_read_at(outer, self->bytes, self->block, sizeof self->block)
                               : stream_read(outer, self->block, sizeof self->block);
    *block = self->block;
    if (got <= 0) return got;
    self->bytes += (uint64_t)got;
    const size_t last = got < TAR_BLOCK_BYTES ? (size_t)got : TAR_BLOCK_BYTES; // a pipe gives any number of bytes
    self->ends_in_zeros = are_zeros(self->block + got - last, last) && (last == TAR_BLOCK_BYTES || self->ends_in_zeros);
    return got;
}

static la_int64_t seek_to(struct archive *archive, void *data, la_int64_t offset, int whence) {
    (void)archive;
    ArchiveReader *self = data;
    int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? (int64_t)self->bytes : (int64_t)self->outer->size;
    if (base + offset < 0) return ARCHIVE_FATAL;
    self->bytes = (uint64_t)(base + offset);
    return (la_int64_t)self->bytes;
}

static ssize_t member_read(Stream *stream, void *data, size_t size) {
    ArchiveReader *self = (ArchiveReader *)((char *)stream - offsetof(ArchiveReader, member));
    size_t done = 0;
    while (done < size) {
        la_ssize_t got = archive_read_data(self->archive, (char *)data + done, size - done);
        if (got == ARCHIVE_RETRY) continue;
        if (got < 0) return fail_archive(self, stream->name); // a warning here is a wrong CRC
        if (got == 0) break;
        done += (size_t)got;
    }
    self->out_bytes += done;
    uint64_t in_bytes = self->is_zip ? self->outer->size : self->bytes;
    if (ratio_check(stream->name, self->options, in_bytes, self->out_bytes) < 0) {
        self->broken = true;
        return -1;
    }
    return (ssize_t)done;
}

void archive_close(FormatReader *reader) {
    ArchiveReader *self = (ArchiveReader *)reader;
    reader_close(self->inner);
    member_queue_close(self->queue);
    archive_read_free(self->archive);
    spooled_close(self->spooled);
    free(self);
}

static int configure(ArchiveReader *self) {
    struct archive *archive = self->archive;
    if (self->is_zip) {
        if (archive_read_set_seek_callback(archive, seek_to) != ARCHIVE_OK) return -1;
        return archive_read_support_format_zip(archive) == ARCHIVE_OK ? 0 : -1;
    }
    if (archive_read_support_format_tar(archive) != ARCHIVE_OK) return -1;
    return archive_read_set_options(archive, "tar:read_concatenated_archives") == ARCHIVE_OK ? 0 : -1;
}

// Finds the end record of a zip. libarchive reads a zip without its central directory member by member, as from a pipe;
// here it is damage: the end is missing.
static int find_end_record(ArchiveReader *self) {
    enum { RECORD_BYTES = 22, COMMENT_BYTES_MAX = 65535 };
    Stream *outer = self->outer;
    uint64_t most = RECORD_BYTES + COMMENT_BYTES_MAX;
    Buffer tail = {0};
    buffer_reserve(&tail, most);
    ssize_t got = stream_read_at(outer, outer->size > most ? outer->size - most : 0, tail.data, most);
    bool found = false;
    for (ssize_t at = got - RECORD_BYTES; at >= 0; at--) {
        const uint8_t *record = tail.data + at;
        ssize_t extra = got - at - RECORD_BYTES - get_u16(record + 20); // behind its comment
        if (memcmp(record, "PK\5\6", 4) || extra < 0) continue;
        if (are_zeros(tail.data + got - extra, (size_t)extra)) extra = 0;
        if (found && extra) continue;
        found = true, self->listed = get_u16(record + 10), self->extra = (uint64_t)extra;
        if (!extra) break; // the one whose comment ends the file
    }
    buffer_close(&tail);
    if (got < 0 || found) return got < 0 ? -1 : 0;
    return fail(EX_DATA, "'%s': truncated or damaged: the zip archive has no central directory", outer->name);
}

// Begins at the member from which a run continues.
static int seek_member(ArchiveReader *self) {
    const ReadPlace *start = &self->outer->start;
    if (!start->byte) return 0;
    self->begin = self->bytes = start->byte, self->members = start->number;
    return stream_seek(self->outer, start->byte);
}

static int open_zip(ArchiveReader *self) {
    if (!self->outer->read_at) {
        self->spooled = stream_spool(self->outer);
        if (!self->spooled) return -1;
        self->outer = &self->spooled->stream;
    }
    return find_end_record(self);
}

static int open_archive(ArchiveReader *self) {
    self->archive = archive_read_new();
    if (!self->archive) die(EX_MEMORY, "out of memory: archive '%s'", self->outer->name);
    if (configure(self) < 0) return -1;
    return archive_read_open(self->archive, self, NULL, read_block, NULL) == ARCHIVE_OK ? 0 : -1;
}

FormatReader *archive_open(Stream *stream, SourceOptions *options) {
    Bytes head;
    if (stream_peek(stream, &head) < 0) return NULL;
    ArchiveReader *self = allocate_zeroed(1, sizeof *self);
    self->outer = stream, self->options = options, self->is_zip = is_zip(head);
    self->first = stream->start.number;
    self->member.level = stream->level + !stream->decompressed; // a tar.xz is one level
    int status = level_check(&self->member, options) < 0 ? fail_in("'%s'", stream->name) : 0;
    if (status == 0) status = self->is_zip ? open_zip(self) : seek_member(self);
    if (status == 0 && open_archive(self) == 0) return &self->reader;
    fail_archive(self, stream->name);
    archive_close(&self->reader);
    return NULL;
}

static int check_zip_end(const ArchiveReader *self) {
    const char *name = self->outer->name;
    if (self->extra) return fail(EX_DATA, "'%s': %" PRIu64 " bytes after the end of the archive", name, self->extra);
    if (self->headers % 65536 != self->listed)
        log_warn("'%s' counts %" PRIu64 " members at its end and has %" PRIu64 ": some may be lost", name, self->listed,
                 self->headers);
    return 0;
}

static int check_end(ArchiveReader *self) {
    uint8_t rest[4096];
    ssize_t got;
    if (self->is_zip) return check_zip_end(self);
    while ((got = stream_read(self->outer, rest, sizeof rest)) > 0) {
        self->ends_in_zeros = true;
        if (!are_zeros(rest, (size_t)got))
            return fail(EX_DATA, "'%s': data after the end of the archive", self->outer->name);
    }
    if (got == 0 && !self->ends_in_zeros)
        log_warn("'%s' lacks the zeros that end a tar: it may be cut after its member %" PRIu64, self->outer->name,
                 self->members);
    return got < 0 ? -1 : 0;
}

static uint64_t header_position(const ArchiveReader *self) {
    return self->begin + (uint64_t)archive_read_header_position(self->archive);
}

// Names the member of a header. False when it is not a file to be read, or before the start.
static bool find_member(ArchiveReader *self, struct archive_entry *entry) {
    const char *name = archive_entry_pathname(entry);
    if (!name) name = "?";
    const char *last = strrchr(name, '/');
    last = last ? last + 1 : name;
    const char *link = archive_entry_hardlink(entry);
    if (link && !self->links++)
        log_warn("skipped '%s:%s': the same file as '%s' of the archive", self->outer->name, name, link);
    if (archive_entry_filetype(entry) != AE_IFREG || link || *last == '.') return false;
    if (self->members++ < self->first) return false;
    unsigned level = self->member.level;
    self->member = (Stream){.read = member_read, .level = level, .is_listed = true, .number = self->members - 1};
    if (!self->is_zip) self->member.offset = header_position(self);
    stream_name(&self->member, self->outer->name, name);
    return true;
}

// Puts a small compressed member into the queue, so that it is decoded ahead; any other one waits to be read in place.
static LookAhead place_member(ArchiveReader *self, struct archive_entry *entry) {
    Bytes head;
    if (archive_entry_is_encrypted(entry)) fail(EX_DATA, "'%s' is encrypted", self->member.name);
    if (err_code() || stream_peek(&self->member, &head) < 0) return LOOK_FAILED;
    if (!archive_entry_size_is_set(entry) || archive_entry_size(entry) > MEMBER_BYTES_MAX ||
        !stream_is_compressed(&self->member, head))
        return LOOK_WAITS;
    if (!self->queue && !(self->queue = member_queue_open(self->options))) {
        self->broken = true;
        return LOOK_FAILED;
    }
    return member_queue_add(self->queue, &self->member) < 0 ? LOOK_ENDED : LOOK_ON; // the error is in the queue
}

// The member behind a damaged header is lost. It counts as one bad input, whatever its size.
static void fail_header(ArchiveReader *self) {
    fail(EX_DATA, "'%s': a damaged header at byte %" PRIu64 ", its member is lost", self->outer->name,
         header_position(self));
    self->ahead = LOOK_FAILED, self->resyncs = true;
    unsigned level = self->member.level;
    self->member = (Stream){.level = level, .number = self->members};
    stream_name(&self->member, self->outer->name, NULL);
}

// Reads headers until the queue is full or something comes that is not for the queue.
static void look_ahead(ArchiveReader *self) {
    while (self->ahead == LOOK_ON && (!self->queue || member_queue_has_space(self->queue))) {
        struct archive_entry *entry;
        errno = 0; // libarchive does not report every allocation that fails
        int status = archive_read_next_header(self->archive, &entry);
        if (status == ARCHIVE_RETRY) { // a header with a wrong checksum, then the data that belong to it
            if (!self->resyncs) fail_header(self);
            continue;
        }
        self->resyncs = false;
        if (status == ARCHIVE_EOF)
            self->ahead = LOOK_ENDED;
        else if (status < ARCHIVE_WARN)
            self->ahead = LOOK_FAILED, fail_archive(self, self->outer->name);
        else if (self->headers++, find_member(self, entry))
            self->ahead = place_member(self, entry);
    }
    if (err_code()) err_take(&self->error); // LOOK_FAILED since just now
}

// An error of the archive itself is that of its last member.
static bool is_broken(const ArchiveReader *self) { return self->broken && member_queue_is_empty(self->queue); }

static void close_member(ArchiveReader *self) {
    reader_close(self->inner);
    self->inner = NULL;
}

// After an error in the data of `current`, the central directory of a zip leads to the next member.
static bool reopen(ArchiveReader *self) {
    if (!self->is_zip || self->ahead == LOOK_FAILED || !self->current || self->current->number < self->first)
        return false;
    archive_read_free(self->archive);
    self->first = self->current->number + 1;
    self->bytes = self->members = self->headers = 0;
    self->ahead = LOOK_ON, self->broken = false;
    return open_archive(self) == 0;
}

static int skip_member(ArchiveReader *self, Part *part) {
    const Skips *skips = &self->options->skips;
    bool skips_some = skips->keep_going || skips->max || skips->max_share > 0;
    if (is_broken(self) && (!skips_some || !reopen(self)))
        return skips_some ? fail_in("the rest of '%s' is not read", self->outer->name) : -1;
    int status = reader_skip(self->inner, self->current, self->options, part);
    if (status > 0) close_member(self);
    return status;
}

// Opens the next member. 0 at the end of the archive.
static int open_member(ArchiveReader *self) {
    look_ahead(self);
    self->current = member_queue_next(self->queue);
    if (!self->current) {
        LookAhead ahead = self->ahead;
        if (ahead == LOOK_ENDED) return 0;
        self->ahead = LOOK_ON, self->current = &self->member;
        if (ahead == LOOK_FAILED) {
            err_give(&self->error);
            return -1;
        }
    }
    self->number = self->current->number, self->offset = self->current->offset, self->preceding = 0;
    return reader_open(&self->inner, self->current, self->options) < 0 ? -1 : 1;
}

// The place of a document is its member.
static void set_place(ArchiveReader *self, Part *part) {
    part->has_place = true;
    part->place = (ReadPlace){self->offset, self->number};
    part->preceding = self->preceding += part->skipped;
    self->preceding += part->last;
}

int archive_next(FormatReader *reader, Part *part) {
    ArchiveReader *self = (ArchiveReader *)reader;
    for (;;) {
        if (self->inner) {
            int status = reader_next(self->inner, part);
            if (status < 0) status = skip_member(self, part);
            if (status > 0) set_place(self, part);
            if (status != 0) return status;
            close_member(self);
        }
        int status = open_member(self);
        if (status == 0) return check_end(self);
        if (status < 0 && skip_member(self, part) < 0) return -1;
    }
}
