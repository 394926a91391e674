// tar archives, also several concatenated ones, read forward from the beginning or from the header of a member.
#include "common/log.h"
#include "shardtool/ingest/archive_members.h"
#include <inttypes.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 65536, TAR_BLOCK_BYTES = 512 };

typedef struct {
    ArchiveReader archive;
    bool ends_in_zeros; // the last 512 bytes read are zeros, as at the end of a tar
    uint8_t block[BLOCK_BYTES];
} TarReader;

int tar_bid(Bytes head) {
    if (head.size < TAR_BLOCK_BYTES || !head.data[0]) return BID_NONE;
    uint64_t sum = 8 * ' '; // the sum includes its own field as spaces
    for (int i = 0; i < TAR_BLOCK_BYTES; i++)
        if (i < 148 || i >= 156) sum += head.data[i];
    char field[9] = {0};
    memcpy(field, head.data + 148, 8);
    return strtoull(field, NULL, 8) == sum ? BID_MAGIC : BID_NONE;
}

// Begins at the member from which a run continues.
static int seek_member(ArchiveReader *archive) {
    const ReadPlace *start = &archive->outer->start;
    if (!start->byte) return 0;
    archive->begin = archive->bytes = start->byte, archive->files = start->number;
    return stream_seek(archive->outer, start->byte);
}

static int configure(struct archive *handle) {
    int status = archive_read_support_format_tar(handle);
    return status == ARCHIVE_OK ? archive_read_set_options(handle, "tar:read_concatenated_archives") : status;
}

static la_ssize_t read_block(struct archive *handle, void *data, const void **block) {
    (void)handle;
    TarReader *tar = data;
    ssize_t got = stream_read(tar->archive.outer, tar->block, sizeof tar->block);
    *block = tar->block;
    if (got <= 0) return got;
    tar->archive.bytes += (uint64_t)got;
    const size_t last = got < TAR_BLOCK_BYTES ? (size_t)got : TAR_BLOCK_BYTES; // a pipe may return fewer bytes
    tar->ends_in_zeros = are_zeros(tar->block + got - last, last) && (last == TAR_BLOCK_BYTES || tar->ends_in_zeros);
    return got;
}

static int check_end(ArchiveReader *archive) {
    TarReader *tar = (TarReader *)archive;
    const char *name = archive->outer->name;
    uint8_t rest[4096];
    ssize_t got;
    while ((got = stream_read(archive->outer, rest, sizeof rest)) > 0) {
        tar->ends_in_zeros = true;
        if (!are_zeros(rest, (size_t)got)) return fail(EX_DATA, "'%s': data after the end of the archive", name);
    }
    if (got == 0 && !tar->ends_in_zeros)
        log_warn("'%s' lacks the zeros that end a tar: it may be cut after its member %" PRIu64, name, archive->files);
    return got < 0 ? -1 : 0;
}

static const ArchiveKind tar_kind = {
    .prepare = seek_member, .configure = configure, .read = read_block, .check_end = check_end};

FormatReader *tar_open(Stream *stream, SourceOptions *options) {
    TarReader *tar = allocate_zeroed(1, sizeof *tar);
    if (members_open(&tar->archive, &tar_kind, stream, options) == 0) return &tar->archive.reader;
    tar_close(&tar->archive.reader);
    return NULL;
}

int tar_next(FormatReader *reader, Part *part) { return members_next((ArchiveReader *)reader, part); }

void tar_close(FormatReader *reader) {
    members_close((ArchiveReader *)reader);
    free(reader);
}
