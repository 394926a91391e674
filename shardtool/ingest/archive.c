// Archives and compression through libarchive: tar, and gz, xz and zst over anything. Members are streams again.
#include "common/err.h"
#include "shardtool/ingest/input_format.h"
#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 65536 };

typedef struct {
    FormatReader reader;
    Stream *outer;
    SourceOptions *options;
    int depth;
    struct archive *archive;
    uint64_t bytes;      // read of the outer stream
    Stream member;       // the one being read
    FormatReader *inner; // of the member
    uint8_t block[BLOCK_BYTES];
} ArchiveReader;

static bool tar_checksum_fits(const uint8_t *header) {
    uint64_t sum = 8 * ' ';
    for (int i = 0; i < 512; i++)
        if (i < 148 || i >= 156) sum += header[i];
    char field[9] = {0};
    memcpy(field, header + 148, 8);
    return strtoull(field, NULL, 8) == sum;
}

static const char *find_filter(Bytes head) {
    if (head.size >= 2 && !memcmp(head.data, "\x1F\x8B", 2)) return "gzip";
    if (head.size >= 6 && !memcmp(head.data, "\xFD\x37\x7A\x58\x5A\x00", 6)) return "xz";
    if (head.size >= 4 && (get_u32(head.data) == 0xFD2FB528u || get_u32(head.data) >> 4 == 0x184D2A5)) return "zstd";
    return NULL;
}

int archive_bid(Bytes head) {
    if (find_filter(head)) return 90;
    return head.size >= 512 && head.data[0] && tar_checksum_fits(head.data) ? 80 : 0;
}

// A pending error of ours is the cause. libarchive may have no message of its own.
static int fail_archive(ArchiveReader *self, const char *name) {
    if (err_code()) return -1;
    const char *words = archive_error_string(self->archive);
    if (!words || strstr(words, "No progress")) words = "it ends too early or holds no more that can be decoded";
    return fail(EX_DATA, "'%s': truncated or damaged at byte %" PRIu64 " of '%s' (%s)", name, self->bytes,
                self->outer->name, words);
}

static la_ssize_t give_block(struct archive *archive, void *data, const void **block) {
    (void)archive;
    ArchiveReader *self = data;
    ssize_t got = stream_read(self->outer, self->block, sizeof self->block);
    *block = self->block;
    if (got > 0) self->bytes += (uint64_t)got;
    return got;
}

static ssize_t member_read(Stream *stream, void *data, size_t size) {
    ArchiveReader *self = (ArchiveReader *)((char *)stream - offsetof(ArchiveReader, member));
    size_t done = 0;
    while (done < size) {
        la_ssize_t got = archive_read_data(self->archive, (char *)data + done, size - done);
        if (got == ARCHIVE_RETRY || got == ARCHIVE_WARN) continue;
        if (got < 0) return fail_archive(self, stream->name);
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

void archive_close(FormatReader *reader) {
    ArchiveReader *self = (ArchiveReader *)reader;
    reader_close(self->inner);
    archive_read_free(self->archive);
    free(self);
}

FormatReader *archive_open(Stream *stream, SourceOptions *options, int depth) {
    if (depth == SOURCE_DEPTH_MAX) {
        fail(EX_DATA, "'%s': archives nested more than %d deep", stream->name, SOURCE_DEPTH_MAX);
        return NULL;
    }
    ArchiveReader *self = calloc(1, sizeof *self);
    struct archive *archive = archive_read_new();
    if (!self || !archive) die(EX_MEMORY, "no memory for an archive");
    self->outer = stream, self->options = options, self->depth = depth, self->archive = archive;
    archive_read_support_filter_gzip(archive);
    archive_read_support_filter_xz(archive);
    archive_read_support_filter_zstd(archive);
    archive_read_support_format_tar(archive);
    archive_read_support_format_raw(archive);
    archive_read_support_format_empty(archive);
    if (archive_read_open(archive, self, NULL, give_block, NULL) == ARCHIVE_OK) return &self->reader;
    fail_archive(self, stream->name);
    archive_close(&self->reader);
    return NULL;
}

// libarchive returns the stream itself as a raw member without filter when the magic number was misleading.
static int open_member(ArchiveReader *self, struct archive_entry *entry) {
    bool raw = archive_format(self->archive) == ARCHIVE_FORMAT_RAW;
    if (raw && archive_filter_code(self->archive, 0) == ARCHIVE_FILTER_NONE)
        return fail(EX_DATA, "'%s' begins like a compressed file or an archive, but is none", self->outer->name);
    const char *name = archive_entry_pathname(entry);
    const char *last = name ? strrchr(name, '/') : NULL;
    last = last ? last + 1 : name;
    if (archive_entry_filetype(entry) != AE_IFREG || (!raw && last && *last == '.')) return 0;
    self->member = (Stream){.read = member_read};
    stream_name(&self->member, self->outer->name, raw ? NULL : name ? name : "?");
    return reader_open(&self->inner, &self->member, self->options, self->depth + 1);
}

int archive_next(FormatReader *reader, Part *part) {
    ArchiveReader *self = (ArchiveReader *)reader;
    for (;;) {
        if (self->inner) {
            int status = reader_next(self->inner, part);
            if (status != 0) return status;
            reader_close(self->inner);
            self->inner = NULL;
        }
        struct archive_entry *entry;
        int status = archive_read_next_header(self->archive, &entry);
        if (status == ARCHIVE_EOF) return 0;
        if (status == ARCHIVE_RETRY) continue;
        if (status < ARCHIVE_WARN) return fail_archive(self, self->outer->name);
        if (open_member(self, entry) < 0) return -1;
    }
}
