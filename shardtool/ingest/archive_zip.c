// zip archives, read by the directory at their end: a tool may delete a member by removing its entry there and nothing
// else.
#include "common/log.h"
#include "shardtool/ingest/archive_members.h"
#include <inttypes.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 65536 };

typedef struct {
    ArchiveReader archive;
    uint64_t listed; // the number of members that its end record has, modulo 65536
    uint64_t extra;  // bytes after the end record that are not zeros only
    uint8_t block[BLOCK_BYTES];
} ZipReader;

int zip_bid(Bytes head) {
    bool is_zip = head.size >= 4 && (!memcmp(head.data, "PK\3\4", 4) || !memcmp(head.data, "PK\5\6", 4));
    return is_zip ? BID_MAGIC : BID_NONE;
}

// libarchive reads a zip without its central directory member by member, as from a pipe; here it is damage: the end is
// missing.
static int find_end_record(ArchiveReader *archive) {
    ZipReader *zip = (ZipReader *)archive;
    enum { RECORD_BYTES = 22, COMMENT_BYTES_MAX = 65535 };
    Stream *outer = archive->outer;
    uint64_t most = RECORD_BYTES + COMMENT_BYTES_MAX;
    Buffer tail = {0};
    buffer_reserve(&tail, most);
    ssize_t got = stream_read_at(outer, outer->size > most ? outer->size - most : 0, tail.data, most);
    bool found = false;
    for (ssize_t at = got - RECORD_BYTES; at >= 0; at--) {
        const uint8_t *record = tail.data + at;
        ssize_t extra = got - at - RECORD_BYTES - get_u16(record + 20); // after its comment
        if (memcmp(record, "PK\5\6", 4) || extra < 0) continue;
        if (are_zeros(tail.data + got - extra, (size_t)extra)) extra = 0;
        if (found && extra) continue;
        found = true, zip->listed = get_u16(record + 10), zip->extra = (uint64_t)extra;
        if (!extra) break; // its comment ends the file
    }
    buffer_close(&tail);
    if (got < 0 || found) return got < 0 ? -1 : 0;
    return fail(EX_DATA, "'%s': truncated or damaged: the zip archive has no central directory", outer->name);
}

static la_ssize_t read_block(struct archive *handle, void *data, const void **block) {
    (void)handle;
    ZipReader *zip = data;
    ssize_t got = stream_read_at(zip->archive.outer, zip->archive.bytes, zip->block, sizeof zip->block);
    *block = zip->block;
    if (got > 0) zip->archive.bytes += (uint64_t)got;
    return got;
}

static la_int64_t seek_to(struct archive *handle, void *data, la_int64_t offset, int whence) {
    (void)handle;
    ArchiveReader *archive = data;
    if (whence == SEEK_CUR) offset += (int64_t)archive->bytes;
    if (whence == SEEK_END) offset += (int64_t)archive->outer->size;
    if (offset < 0) return ARCHIVE_FATAL;
    archive->bytes = (uint64_t)offset;
    return offset;
}

static int configure(struct archive *handle) {
    int status = archive_read_set_seek_callback(handle, seek_to);
    return status == ARCHIVE_OK ? archive_read_support_format_zip(handle) : status;
}

static int check_end(ArchiveReader *archive) {
    const ZipReader *zip = (ZipReader *)archive;
    const char *name = archive->outer->name;
    if (zip->extra) return fail(EX_DATA, "'%s': %" PRIu64 " bytes after the end of the archive", name, zip->extra);
    if (archive->headers % 65536 != zip->listed)
        log_warn("'%s' counts %" PRIu64 " members at its end and has %" PRIu64 ": some may be lost", name, zip->listed,
                 archive->headers);
    return 0;
}

static const ArchiveKind zip_kind = {.has_directory = true,
                                     .prepare = find_end_record,
                                     .configure = configure,
                                     .read = read_block,
                                     .check_end = check_end};

FormatReader *zip_open(Stream *stream, SourceOptions *options) {
    ZipReader *zip = allocate_zeroed(1, sizeof *zip);
    if (members_open(&zip->archive, &zip_kind, stream, options) == 0) return &zip->archive.reader;
    zip_close(&zip->archive.reader);
    return NULL;
}

int zip_next(FormatReader *reader, Part *part) { return members_next((ArchiveReader *)reader, part); }

void zip_close(FormatReader *reader) {
    members_close((ArchiveReader *)reader);
    free(reader);
}
