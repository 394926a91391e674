// Archives through libarchive: tar, also several concatenated ones, and zip. Members are streams again.
#include "common/err.h"
#include "shardtool/ingest/input_format.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 65536, TAR_BLOCK_BYTES = 512 };

typedef struct {
    FormatReader reader;
    Stream *outer;
    SourceOptions *options;
    struct archive *archive;
    bool is_zip;
    bool broken;        // this archive, not one of its members, cannot be read further
    uint64_t bytes;     // read of the outer stream, or the offset of the next read_at
    uint64_t out_bytes; // data of all members so far
    Stream member;      // the current one
    FormatReader *inner;
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
    if (archive_errno(self->archive) == ENOMEM) return fail(EX_MEMORY, "out of memory: archive '%s'", name);
    const char *text = archive_error_string(self->archive);
    if (!text || strstr(text, "No progress")) text = "it ends too early";
    return fail(EX_DATA, "'%s': truncated or damaged at byte %" PRIu64 " of '%s' (%s)", name, self->bytes,
                self->outer->name, text);
}

static la_ssize_t read_block(struct archive *archive, void *data, const void **block) {
    (void)archive;
    ArchiveReader *self = data;
    Stream *outer = self->outer;
    ssize_t got = self->is_zip && outer->read_at ? stream_read_at(outer, self->bytes, self->block, sizeof self->block)
                                                 : stream_read(outer, self->block, sizeof self->block);
    *block = self->block;
    if (got > 0) self->bytes += (uint64_t)got;
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
    uint64_t in_bytes = self->is_zip && self->outer->read_at ? self->outer->size : self->bytes;
    if (ratio_check(stream->name, self->options, in_bytes, self->out_bytes) < 0) {
        self->broken = true;
        return -1;
    }
    return (ssize_t)done;
}

void archive_close(FormatReader *reader) {
    ArchiveReader *self = (ArchiveReader *)reader;
    reader_close(self->inner);
    archive_read_free(self->archive);
    free(self);
}

static int configure(ArchiveReader *self) {
    struct archive *archive = self->archive;
    if (self->is_zip) {
        if (self->outer->read_at && archive_read_set_seek_callback(archive, seek_to) != ARCHIVE_OK) return -1;
        return archive_read_support_format_zip(archive) == ARCHIVE_OK ? 0 : -1;
    }
    if (archive_read_support_format_tar(archive) != ARCHIVE_OK) return -1;
    return archive_read_set_options(archive, "tar:read_concatenated_archives") == ARCHIVE_OK ? 0 : -1;
}

FormatReader *archive_open(Stream *stream, SourceOptions *options) {
    Bytes head;
    if (stream_peek(stream, &head) < 0) return NULL;
    ArchiveReader *self = allocate_zeroed(1, sizeof *self);
    self->outer = stream, self->options = options, self->is_zip = is_zip(head);
    self->archive = archive_read_new();
    if (!self->archive) die(EX_MEMORY, "out of memory: archive '%s'", stream->name);
    self->member.level = stream->level + !stream->decompressed; // a tar.xz is one level
    int status = level_check(&self->member, options) < 0 ? fail_in("'%s'", stream->name) : configure(self);
    if (status == 0) status = archive_read_open(self->archive, self, NULL, read_block, NULL) == ARCHIVE_OK ? 0 : -1;
    if (status == 0) return &self->reader;
    fail_archive(self, stream->name);
    archive_close(&self->reader);
    return NULL;
}

static int open_member(ArchiveReader *self, struct archive_entry *entry) {
    const char *name = archive_entry_pathname(entry);
    if (!name) name = "?";
    const char *last = strrchr(name, '/');
    last = last ? last + 1 : name;
    if (archive_entry_filetype(entry) != AE_IFREG || *last == '.') return 0;
    unsigned level = self->member.level;
    self->member = (Stream){.read = member_read, .level = level, .is_listed = true};
    stream_name(&self->member, self->outer->name, name);
    if (archive_entry_is_encrypted(entry)) return fail(EX_DATA, "'%s' is encrypted", self->member.name);
    return reader_open(&self->inner, &self->member, self->options);
}

// A tar that ends without a block of zeros may be truncated between two members.
static int check_end(ArchiveReader *self) {
    uint8_t rest[4096];
    ssize_t got;
    if (self->is_zip) return 0;
    while ((got = stream_read(self->outer, rest, sizeof rest)) > 0)
        for (ssize_t i = 0; i < got; i++)
            if (rest[i]) return fail(EX_DATA, "'%s': data after the end of the archive", self->outer->name);
    return got < 0 ? -1 : 0;
}

static void close_member(ArchiveReader *self) {
    reader_close(self->inner);
    self->inner = NULL;
}

static int skip_member(ArchiveReader *self, Part *part) {
    int status = reader_skip(self->inner, &self->member, self->options, part);
    if (status > 0) close_member(self);
    return status;
}

int archive_next(FormatReader *reader, Part *part) {
    ArchiveReader *self = (ArchiveReader *)reader;
    for (;;) {
        if (self->inner) {
            int status = reader_next(self->inner, part);
            if (status < 0 && !self->broken) status = skip_member(self, part);
            if (status != 0) return status;
            close_member(self);
        }
        struct archive_entry *entry;
        int status = archive_read_next_header(self->archive, &entry);
        if (status == ARCHIVE_EOF) return check_end(self);
        if (status == ARCHIVE_RETRY) continue;
        if (status < ARCHIVE_WARN) return fail_archive(self, self->outer->name);
        if (open_member(self, entry) < 0 && (self->broken || skip_member(self, part) < 0)) return -1;
    }
}
