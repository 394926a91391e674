// Looks ahead for members, so that small compressed ones are decoded by workers, and reads one after the other.
#include "shardtool/ingest/archive_members.h"
#include "common/file/table_log.h"
#include "common/log.h"
#include "shardtool/ingest/inputs.h"
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>

// A pending error of ours is the cause. libarchive may have no message of its own.
static int fail_archive(ArchiveReader *archive, const char *name) {
    archive->broken = true;
    if (err_code()) return -1;
    if (archive_errno(archive->handle) == ENOMEM || errno == ENOMEM)
        return fail(EX_MEMORY, "out of memory: archive '%s'", name);
    const char *text = archive_error_string(archive->handle);
    if (!text || strstr(text, "No progress")) text = "it ends too early";
    const bool in_member = archive->kind->has_directory && name != archive->outer->name;
    return fail(EX_DATA, "'%s': truncated or damaged at byte %" PRIu64 " of '%s' (%s)%s", name, archive->bytes,
                archive->outer->name, text, in_member ? "; no checksum has verified its text" : "");
}

static ssize_t member_read(Stream *stream, void *data, size_t size) {
    ArchiveReader *archive = (ArchiveReader *)((char *)stream - offsetof(ArchiveReader, found));
    size_t done = 0;
    while (done < size) {
        la_ssize_t got = archive_read_data(archive->handle, (char *)data + done, size - done);
        if (got < 0) return fail_archive(archive, stream->name); // a warning here is a wrong CRC
        if (got == 0) break;
        done += (size_t)got;
    }
    archive->out_bytes += done;
    uint64_t in_bytes = archive->kind->has_directory ? archive->outer->size : archive->bytes;
    if (ratio_check(stream->name, archive->options, in_bytes, archive->out_bytes) == 0) return (ssize_t)done;
    archive->broken = true;
    return -1;
}

static int open_archive(ArchiveReader *archive) {
    archive->handle = archive_read_new();
    if (!archive->handle) die(EX_MEMORY, "out of memory: archive '%s'", archive->outer->name);
    if (archive->kind->configure(archive->handle) != ARCHIVE_OK) return -1;
    return archive_read_open(archive->handle, archive, NULL, archive->kind->read, NULL) == ARCHIVE_OK ? 0 : -1;
}

int members_open(ArchiveReader *archive, const ArchiveKind *kind, Stream *stream, SourceOptions *options) {
    archive->kind = kind, archive->outer = stream, archive->options = options;
    archive->first = stream->start.number;
    if (kind->has_directory) archive->utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    archive->found.level = stream->level + !stream->decompressed; // a tar.xz is one level
    if (level_check(&archive->found, options) < 0) return fail_in("'%s'", stream->name);
    return kind->prepare(archive) < 0 || open_archive(archive) < 0 ? fail_archive(archive, stream->name) : 0;
}

void members_close(ArchiveReader *archive) {
    reader_close(archive->member.reader);
    member_queue_close(archive->queue);
    archive_read_free(archive->handle);
    if (archive->utf8) freelocale(archive->utf8);
}

static uint64_t header_position(const ArchiveReader *archive) {
    return archive->begin + (uint64_t)archive_read_header_position(archive->handle);
}

static void set_found(ArchiveReader *archive, const char *member, uint64_t number) {
    archive->found = (Stream){.level = archive->found.level, .number = number};
    stream_name(&archive->found, archive->outer->name, member);
}

// Names the member of a header. False when it is not a file to be read, or before the start.
static bool find_member(ArchiveReader *archive, struct archive_entry *entry) {
    const char *name = archive_entry_pathname(entry);
    if (!name) name = "?";
    size_t root;
    const TableFormat *table = table_log_in(name, &root);
    if (table) { // no option passes over it
        table_fail(table, archive->outer->name, "FOLDER");
        archive->options->skips.over = true, archive->broken = true, archive->ahead = LOOK_FAILED;
        return false;
    }
    const char *link = archive_entry_hardlink(entry);
    if (link && !archive->links++)
        log_warn("skipped '%s:%s': the same file as '%s' of the archive", archive->outer->name, name, link);
    if (archive_entry_filetype(entry) != AE_IFREG || link || input_is_left_out(name)) return false;
    if (archive->options->filter && !input_member_is_wanted(archive->options->filter, archive->outer->name, name))
        return false;
    const bool is_about = input_is_about(archive->options->filter, name);
    if (!is_about && archive->files++ < archive->first) return false;
    set_found(archive, name, archive->files - 1);
    if (is_about) return input_warn_about(archive->found.name, ++archive->options->about), false;
    archive->found.read = member_read, archive->found.is_listed = true;
    if (!archive->kind->has_directory) archive->found.offset = header_position(archive);
    return true;
}

// Puts a small compressed member into the queue, so that it is decoded ahead; any other one waits to be read in place.
static LookAhead place_member(ArchiveReader *archive, struct archive_entry *entry) {
    Bytes head;
    if (archive_entry_is_encrypted(entry)) fail(EX_DATA, "'%s' is encrypted", archive->found.name);
    if (err_code() || stream_peek(&archive->found, &head) < 0) return LOOK_FAILED;
    if (!archive_entry_size_is_set(entry) || archive_entry_size(entry) > MEMBER_BYTES_MAX ||
        !stream_is_compressed(&archive->found, head))
        return LOOK_WAITS;
    if (!archive->queue && !(archive->queue = member_queue_open(archive->options))) {
        archive->broken = true;
        return LOOK_FAILED;
    }
    return member_queue_add(archive->queue, &archive->found) < 0 ? LOOK_ENDED : LOOK_ON; // the error is in the queue
}

// The member after a damaged header is lost. It is one bad input, whatever its size.
static void fail_header(ArchiveReader *archive) {
    fail(EX_DATA, "'%s': a damaged header at byte %" PRIu64 ", its member is lost", archive->outer->name,
         header_position(archive));
    archive->ahead = LOOK_FAILED, archive->resyncs = true;
    set_found(archive, NULL, archive->files);
}

// In the locale "C" libarchive has no name for a member of a zip whose name is marked as UTF-8 and is not ASCII. Names
// that are not marked, and those of a tar, are bytes.
static int next_header(ArchiveReader *archive, struct archive_entry **entry) {
    const locale_t before = uselocale(archive->utf8);
    errno = 0; // libarchive does not report every allocation that fails
    const int status = archive_read_next_header(archive->handle, entry);
    uselocale(before);
    return status;
}

// Reads headers until the queue is full, or until a member that is not for the queue, an error or the end.
static void look_ahead(ArchiveReader *archive) {
    while (archive->ahead == LOOK_ON && (!archive->queue || member_queue_has_space(archive->queue))) {
        struct archive_entry *entry;
        int status = next_header(archive, &entry);
        if (status == ARCHIVE_RETRY) { // a header with a wrong checksum, then the data that belong to it
            if (!archive->resyncs) fail_header(archive);
            continue;
        }
        archive->resyncs = false;
        if (status == ARCHIVE_EOF)
            archive->ahead = LOOK_ENDED;
        else if (status < ARCHIVE_WARN)
            archive->ahead = LOOK_FAILED, fail_archive(archive, archive->outer->name);
        else if (archive->headers++, find_member(archive, entry))
            archive->ahead = place_member(archive, entry);
    }
    if (err_code()) err_take(&archive->error); // LOOK_FAILED since just now
}

// Opens the next member. 0 at the end of the archive.
static int open_member(ArchiveReader *archive) {
    OpenMember *member = &archive->member;
    look_ahead(archive);
    member->stream = member_queue_next(archive->queue);
    if (!member->stream) {
        LookAhead ahead = archive->ahead;
        if (ahead == LOOK_ENDED) return 0;
        archive->ahead = LOOK_ON, member->stream = &archive->found;
        if (ahead == LOOK_FAILED) {
            err_give(&archive->error);
            return -1;
        }
    }
    member->place = (ReadPlace){member->stream->offset, member->stream->number}, member->documents = 0;
    return reader_open(&member->reader, member->stream, archive->options) < 0 ? -1 : 1;
}

static void close_member(OpenMember *member) {
    reader_close(member->reader);
    member->reader = NULL;
}

// After an error in the data of a member, the directory leads to the next one.
static bool reopen(ArchiveReader *archive) {
    const Stream *stream = archive->member.stream;
    if (!archive->kind->has_directory || archive->ahead == LOOK_FAILED || !stream || stream->number < archive->first)
        return false;
    archive_read_free(archive->handle);
    archive->first = stream->number + 1;
    archive->bytes = archive->files = archive->headers = 0;
    archive->ahead = LOOK_ON, archive->broken = false;
    return open_archive(archive) == 0;
}

// Skips the rest of a member after fail(). An error of the archive itself counts as its last member's.
static int skip_member(ArchiveReader *archive, Part *part) {
    OpenMember *member = &archive->member;
    bool skips_some = skips_any_allowed(&archive->options->skips);
    bool broken = archive->broken && member_queue_is_empty(archive->queue);
    if (broken && (!skips_some || !reopen(archive)))
        return skips_some ? fail_in("the rest of '%s' is not read", archive->outer->name) : -1;
    int status = reader_skip(member->reader, member->stream, archive->options, part);
    if (status > 0) close_member(member);
    return status;
}

// The place of a document is its member. Of nested archives the innermost one names it.
static void set_place(OpenMember *member, Part *part) {
    if (!part->member) {
        part->member = member->stream->name;
        part->member_record = part->line ? part->line - 1 : member->documents + part->skipped;
    }
    part->has_place = true, part->line = 0;
    part->place = member->place;
    part->preceding = member->documents += part->skipped;
    member->documents += part->last;
}

int members_next(ArchiveReader *archive, Part *part) {
    OpenMember *member = &archive->member;
    for (;;) {
        if (member->reader) {
            int status = reader_next(member->reader, part);
            if (status < 0) status = skip_member(archive, part);
            if (status > 0) set_place(member, part);
            if (status != 0) return status;
            close_member(member);
        }
        int status = open_member(archive);
        if (status == 0) return archive->kind->check_end(archive);
        if (status < 0 && skip_member(archive, part) < 0) return -1;
    }
}
