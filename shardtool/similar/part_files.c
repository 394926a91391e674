// The files of parts: their line, their hash and their entries.
#include "shardtool/similar/part_files.h"
#include "common/err.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include "common/log.h"
#include "shardtool/support/run_part.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

#define FORMAT "SHRDPART1"
#define SEAL   ",\"header_hash\":\""

enum { HASH_BYTES = 16, LINE_BYTES_MAX = 1 << 16, BLOCK_BYTES = 1 << 20 };

static const char *const kind_names[PART_KINDS] = {"bands", "hashes", "hits"};
static const char *const kind_commands[PART_KINDS] = {"dedup --similar", "dedup without --similar", "decontaminate"};

static const char *part_path(char path[PATH_MAX_BYTES], const PartSet *set, unsigned number) {
    return path_join(path, set->directory, "%s-%u-of-%u", kind_names[set->kind], number, set->count);
}

// "bands-3-of-16", or "." before it and ".tmp.PID" after it.
static bool parse_name(const char *name, PartKind *kind, unsigned *number, unsigned *count, bool *is_temporary) {
    *is_temporary = *name == '.';
    name += *is_temporary;
    for (*kind = 0; *kind < PART_KINDS; ++*kind) {
        const size_t length = strlen(kind_names[*kind]);
        int end = 0;
        if (strncmp(name, kind_names[*kind], length)) continue;
        if (sscanf(name + length, "-%7u-of-%7u%n", number, count, &end) != 2) return false;
        name += length + (size_t)end;
        return *number && *number <= *count && *count <= PARTS_MAX &&
               (*is_temporary ? !strncmp(name, ".tmp.", 5) : !*name);
    }
    return false;
}

// The marks of each part, 0 to `count`: PART_DONE, PART_BEGUN.
enum { PART_DONE = 1, PART_BEGUN = 2 };

static int add_name(PartSet *set, Buffer *marks, const char *name) {
    unsigned number = 0, count = 0;
    PartKind kind;
    bool is_temporary;
    if (!parse_name(name, &kind, &number, &count, &is_temporary)) return 0;
    if (set->kind == PART_KINDS) set->kind = kind;
    if (kind != set->kind)
        return fail(EX_USAGE, "'%s' holds parts of %s, as '%s': for %s remove them, or choose another directory",
                    set->directory, kind_commands[kind], name, kind_commands[set->kind]);
    if (set->count && set->count != count)
        return fail(EX_USAGE, "'%s' holds one of %u parts and one of %u: remove the files of one of the two",
                    set->directory, set->count, count);
    set->count = count;
    buffer_reserve(marks, count);
    if (!marks->size) memset(marks->data, 0, count), marks->size = count;
    marks->data[number - 1] |= is_temporary ? PART_BEGUN : PART_DONE;
    return 0;
}

static int read_directory(PartSet *set, Buffer *marks) {
    set->count = 0;
    DIR *directory = opendir(set->directory);
    if (!directory) return errno == ENOENT || errno == ENOTDIR ? 0 : fail_errno("cannot open '%s'", set->directory);
    int status = 0;
    for (struct dirent *entry; status == 0 && (errno = 0, entry = readdir(directory));)
        status = add_name(set, marks, entry->d_name);
    if (status == 0 && errno) status = fail_errno("cannot read directory '%s'", set->directory);
    closedir(directory);
    return status;
}

// Appends the numbers of the parts with these marks: "3 to 5, 9".
static unsigned print_numbers(Buffer *out, const Buffer *marks, uint8_t wanted) {
    unsigned found = 0, numbers = (unsigned)marks->size;
    for (unsigned i = 0; i < numbers; i++) {
        if (marks->data[i] != wanted) continue;
        unsigned last = i;
        while (last + 1 < numbers && marks->data[last + 1] == wanted) last++;
        buffer_print(out, "%s%u", found ? ", " : "", i + 1);
        if (last > i) buffer_print(out, "%s%u", last > i + 1 ? " to " : ", ", last + 1);
        found += last - i + 1, i = last;
    }
    return found;
}

// "of 16 parts 11 are done; not finished, or running: 3, 12; missing: 4, 9". Returns the number that are not done.
static unsigned print_state(Buffer *out, const PartSet *set, const Buffer *marks) {
    Buffer begun = {0}, missing = {0};
    const unsigned rest = print_numbers(&begun, marks, PART_BEGUN) + print_numbers(&missing, marks, 0);
    buffer_print(out, "of %u parts in '%s' %u are done", set->count, set->directory, set->count - rest);
    if (begun.size) buffer_print(out, "; running, or killed: %.*s", (int)begun.size, (const char *)begun.data);
    if (missing.size) buffer_print(out, "; missing: %.*s", (int)missing.size, (const char *)missing.data);
    buffer_close(&begun);
    buffer_close(&missing);
    return rest;
}

int part_set_fail_in(const char *directory) {
    PartSet set = {.directory = directory, .kind = PART_KINDS};
    Buffer marks = {0}, state = {0};
    if (read_directory(&set, &marks) == 0 && set.count) {
        print_state(&state, &set, &marks);
        fail_in("%s: %.*s", kind_commands[set.kind], (int)state.size, (const char *)state.data);
    }
    buffer_close(&marks);
    buffer_close(&state);
    return -1;
}

PartSet part_set_of_output(PartKind kind, const char *rules) {
    return (PartSet){.directory = output_options.path, .kind = kind, .rules = rules, .split = output_options.split};
}

int part_set_find(PartSet *set) {
    Buffer marks = {0}, state = {0};
    if (!set->directory || !strcmp(set->directory, "-")) return 0;
    const bool is_finished =
        set->directory == output_options.path && !output_options.force && dataset_is(set->directory);
    int status = is_finished ? 0 : read_directory(set, &marks);
    if (status == 0 && set->count && print_state(&state, set, &marks))
        status = fail(EX_NOINPUT, "%.*s; run these with --part I/%u, then this command again", (int)state.size,
                      (const char *)state.data, set->count);
    buffer_close(&marks);
    buffer_close(&state);
    return status;
}

void part_set_log_rest(const PartSet *set) {
    log_line("'%s/%s-*-of-%u' may be removed%s", set->directory, kind_names[set->kind], set->count,
             set->kind == PART_BANDS ? ", or kept for another --similar" : "");
}

static void add_hash(Buffer *out, const char *key, const void *data, size_t size) {
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(data, size));
    json_add_hex(out, key, hash.digest, sizeof hash.digest);
}

static void add_inputs(Buffer *line, const DocumentInputs *inputs) {
    Sha256 sha;
    uint8_t hash[32];
    sha256_open(&sha);
    for (uint64_t i = 0; i < inputs->inputs.argument_count; i++)
        sha256_add(&sha, inputs->inputs.arguments[i].digest, sizeof inputs->inputs.arguments[i].digest);
    sha256_close(&sha, hash);
    json_add_hex(line, "inputs", hash, sizeof hash);
}

// The members that all parts of a set have.
static void add_set(Buffer *line, const PartSet *set) {
    json_add_field(line, "format", FORMAT);
    json_add_field(line, "kind", kind_names[set->kind]);
    json_add_field(line, "rules", set->rules);
    add_inputs(line, set->inputs);
    json_add_field(line, "split", set->split ? split_names[set->split - 1] : "all");
}

static int fail_damaged(const char *path) {
    return fail(EX_DATA, "'%s' is damaged or was cut short: run its part again", path);
}

int part_file_damaged(const PartFile *file) { return fail_damaged(file->path); }

static bool number_is(const json_t *line, const char *key, uint64_t *number) {
    const json_t *value = json_object_get(line, key);
    *number = json_is_integer(value) ? (uint64_t)json_integer_value(value) : 0;
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

// Compares the members that all parts of a set have with those of `set`.
static int check_set(const char *path, const json_t *line, const PartSet *set) {
    static const char *const whats[][2] = {
        {"format", "in another format"},
        {"rules", "by other rules"},
        {"inputs", "of other datasets than the PATHs are now, or of these in another order"},
        {"split", "with another --split"}};
    Buffer text = {0};
    int status = 0;
    add_set(&text, set);
    buffer_print(&text, "}");
    json_error_t error;
    json_t *want = json_parse((Bytes){text.data, text.size}, 0, &error);
    for (size_t i = 0; want && status == 0 && i < sizeof whats / sizeof *whats; i++) {
        const char *key = whats[i][0], *is = json_string_value(json_object_get(line, key)),
                   *wanted = json_string_value(json_object_get(want, key));
        if (is && wanted && strcmp(is, wanted))
            status = fail(EX_USAGE, "'%s' was made %s (%s %.80s, not %.80s): run its part again with --force", path,
                          whats[i][1], key, is, wanted);
        else if (!is)
            status = fail_damaged(path);
    }
    json_decref(want);
    buffer_close(&text);
    return status;
}

// Sets `file` to what the line says. The file of part 3 of 16 has that number, and is of the kind, of its name.
static int read_line(PartFile *file, const json_t *line, const PartSet *set, unsigned number) {
    uint64_t part, parts;
    const char *kind = json_string_value(json_object_get(line, "kind"));
    if (!kind || !number_is(line, "part", &part) || !number_is(line, "parts", &parts) ||
        !number_is(line, "first", &file->first) || !number_is(line, "documents", &file->documents))
        return part_file_damaged(file);
    if (strcmp(kind, kind_names[set->kind]) || part != number || parts != set->count)
        return fail(EX_DATA, "'%s' holds %.20s of part %" PRIu64 " of %" PRIu64 ": it was renamed", file->path, kind,
                    part, parts);
    return check_set(file->path, line, set);
}

// The line with its end, checked by its hash; {NULL, 0} if it is damaged.
static Bytes checked_line(Bytes bytes) {
    const size_t seal_bytes = strlen(SEAL) + 2 * HASH_BYTES + strlen("\"}");
    Bytes rest = {bytes.data, bytes.size < LINE_BYTES_MAX ? bytes.size : LINE_BYTES_MAX}, line;
    Buffer seal = {0};
    if (!bytes_next_line(&rest, &line) || line.size < seal_bytes) return (Bytes){0};
    buffer_add(&seal, line.data, line.size - seal_bytes);
    add_hash(&seal, "header_hash", line.data, line.size - seal_bytes);
    buffer_print(&seal, "}");
    const bool is_same = seal.size == line.size && !memcmp(seal.data, line.data, line.size);
    buffer_close(&seal);
    return is_same ? line : (Bytes){0};
}

int part_file_check(PartFile *file, const PartSet *set, unsigned number) {
    const Bytes line = checked_line(file->map);
    if (!line.data || file->map.size < line.size + 1 + HASH_BYTES) return part_file_damaged(file);
    json_error_t error;
    json_t *members = json_parse(line, 0, &error);
    int status = members ? read_line(file, members, set, number) : part_file_damaged(file);
    json_decref(members);
    if (status < 0) return -1;
    const size_t hashed = file->map.size - HASH_BYTES;
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(file->map.data, hashed));
    if (memcmp(hash.digest, file->map.data + hashed, HASH_BYTES)) return part_file_damaged(file);
    file->entries = cursor_init((Bytes){file->map.data + line.size + 1, hashed - line.size - 1});
    return 0;
}

int part_file_open(PartFile *file, const PartSet *set, unsigned number) {
    *file = (PartFile){0};
    part_path(file->path, set, number);
    return file_map(&file->map, file->path) < 0 ? -1 : part_file_check(file, set, number);
}

void part_file_close(PartFile *file) {
    file_unmap(&file->map);
    *file = (PartFile){0};
}

int part_file_end(const PartFile *file) {
    return file->entries.failed || file->entries.at != file->entries.end ? part_file_damaged(file) : 0;
}

static uint64_t take_u64(Cursor *cursor) {
    const uint8_t *bytes = cursor_take(cursor, sizeof(uint64_t));
    return bytes ? get_u64(bytes) : 0;
}

int part_file_bands(PartFile *file, PartBands *bands) {
    Cursor *cursor = &file->entries;
    *bands = (PartBands){.count = take_u64(cursor)};
    if (bands->count) {
        bands->text = take_u64(cursor), bands->digits = take_u64(cursor);
        bands->keys = cursor_take(cursor, (size_t)MINHASH_BANDS * PART_KEY_BYTES);
        const size_t left = (size_t)(cursor->end - cursor->at); // a bitmap has at least 2 bits for each
        bands->bitmap = cursor_take(cursor, bands->count / 4 > left ? left + 1 : bitmap_filter_bytes(bands->count));
    }
    return cursor->failed ? part_file_damaged(file) : 0;
}

int part_file_hash(PartFile *file, DocumentHash *hash) {
    hash->low = take_u64(&file->entries), hash->high = take_u64(&file->entries);
    return file->entries.failed ? part_file_damaged(file) : 0;
}

int part_file_hit(PartFile *file, PartHit *hit) {
    Cursor *cursor = &file->entries;
    *hit = (PartHit){.number = take_u64(cursor)};
    if (hit->number == UINT64_MAX) {
        hit->words.size = (size_t)(cursor->end - cursor->at);
    } else {
        hit->words.size = take_u64(cursor);
        const uint8_t *share = cursor_take(cursor, sizeof hit->share), *item = cursor_take(cursor, sizeof hit->item);
        if (share) memcpy(&hit->share, share, sizeof hit->share);
        if (item) hit->item = get_u32(item);
    }
    hit->words.data = cursor_take(cursor, hit->words.size);
    return cursor->failed ? part_file_damaged(file) : 0;
}

static bool has_split(const PartSet *set, int split) { return !set->split || split == set->split - 1; }

int part_set_visit(const PartSet *set, int (*visit)(void *context, PartFile *file, uint64_t number), void *context) {
    uint64_t number = 0, all = 0;
    int status = 0;
    PartFile file = {0};
    for (int split = 0; split < SPLIT_COUNT; split++) all += has_split(set, split) ? set->inputs->documents[split] : 0;
    for (unsigned part = 1; status == 0 && part <= set->count; part++) {
        status = part_file_open(&file, set, part);
        const uint64_t end = number + file.documents;
        if (status == 0 && (file.first != number || end < number || end > all || (part == set->count && end != all)))
            status = part_file_damaged(&file);
        for (; status == 0 && number < end; number++) status = visit(context, &file, number);
        if (status == 0) status = part_file_end(&file);
        part_file_close(&file);
    }
    return status;
}

// Finds the documents of a part: those whose first token is in its share of all tokens.
static int find_documents(PartWriter *writer) {
    const DocumentInputs *inputs = writer->set.inputs;
    uint64_t before = 0, number = 0;
    int status = 0;
    for (int split = 0; split < SPLIT_COUNT; split++)
        if (has_split(&writer->set, split)) writer->all_tokens += inputs->tokens[split];
    for (int split = 0; status == 0 && split < SPLIT_COUNT; split++) {
        DocumentCursor cursor = {.inputs = inputs, .split = split};
        if (!has_split(&writer->set, split)) continue;
        for (; (status = documents_next(&cursor)) > 0; number++) {
            const unsigned part = (unsigned)(before * (unsigned __int128)writer->set.count / writer->all_tokens) + 1;
            writer->first += part < writer->number;
            writer->documents += part == writer->number;
            writer->tokens += part == writer->number ? cursor.document.tokens : 0;
            before += cursor.document.tokens;
        }
        documents_end(&cursor);
    }
    writer->all_documents = number;
    return status;
}

// Whether the file is there, is whole, and is of the same inputs and rules: 1; 0 when there is none to keep.
static int find_old(const PartWriter *writer) {
    char path[PATH_MAX_BYTES];
    const int found = file_find(part_path(path, &writer->set, writer->number));
    if (found <= 0 || output_options.force) return found < 0 ? -1 : 0;
    PartFile old;
    int status = part_file_open(&old, &writer->set, writer->number);
    part_file_close(&old);
    if (status == 0) return log_line("'%s' is already complete", path), 1;
    if (err_code() != EX_DATA) return -1;
    log_warn("%s: doing this now", err_text());
    err_clear();
    return 0;
}

// Without a temporary file: the same part on another machine, which does not know this process, has removed it, and may
// have finished.
static int find_other(const PartWriter *writer) {
    err_clear();
    const int found = find_old(writer);
    if (found) return found < 0 ? -1 : 0;
    return fail(
        EX_NOINPUT,
        "the temporary file of part %u in '%s' was removed, as by the same part on another machine: run it again",
        writer->number, writer->set.directory);
}

static int flush(PartWriter *writer) {
    XXH3_128bits_update(writer->hash, writer->block.data, writer->block.size);
    const int status = newfile_write(&writer->file, writer->block.data, writer->block.size);
    writer->block.size = 0;
    return status;
}

int part_writer_add(PartWriter *writer, const void *data, size_t size) {
    buffer_add(&writer->block, data, size);
    return writer->block.size < BLOCK_BYTES ? 0 : flush(writer);
}

// What all parts need, by what this one did.
static void log_needs(const PartWriter *writer) {
    Buffer marks = {0}, state = {0};
    PartSet set = writer->set;
    char bytes[16], all[16], times[2][16];
    const double share = (double)writer->tokens / (double)writer->all_tokens;
    const double seconds = (double)(clock_ns() - writer->started_ns) / 1e9;
    if (writer->documents)
        log_line("%s in %s; all %u parts: about %s and %s of this machine, and as long again without --part",
                 human_bytes(bytes, (double)writer->file.written), human_time(times[0], seconds), set.count,
                 human_bytes(all, (double)writer->file.written / share), human_time(times[1], seconds / share));
    if (read_directory(&set, &marks) == 0) {
        print_state(&state, &set, &marks);
        log_line("%.*s", (int)state.size, (const char *)state.data);
    }
    err_clear();
    buffer_close(&marks);
    buffer_close(&state);
}

// What all parts, and the temporary files of the command without --part, take at most. Most texts have no more
// sequences than ids; a bitmap has up to 4 bits for each.
static void log_disk(const PartWriter *writer) {
    static const struct {
        double document, token, temporary; // bytes
    } bytes[PART_KINDS] = {
        [PART_BANDS] = {24 + MINHASH_BANDS * PART_KEY_BYTES, 0.5, MINHASH_BANDS * 10}, [PART_HASHES] = {16, 0, 32}};
    const double documents = (double)writer->all_documents;
    const PartKind kind = writer->set.kind;
    char parts[16], temporary[16];
    if (bytes[kind].document > 0)
        log_line(
            "all %u parts take up to %s in '%s'; then without --part up to %s for temporary files, and the dataset",
            writer->set.count,
            human_bytes(parts, documents * bytes[kind].document + (double)writer->all_tokens * bytes[kind].token),
            writer->set.directory, human_bytes(temporary, documents * bytes[kind].temporary));
}

// 2 when the directory holds parts of another kind or number, which the command without --part would refuse at the end.
static int check_others(const PartSet *set) {
    Buffer marks = {0};
    PartSet there = *set;
    int status = read_directory(&there, &marks);
    if (status == 0 && there.count && there.count != set->count)
        status = fail(EX_USAGE, "'%s' holds parts of %u, not of %u: remove '%s-*-of-%u' and '.%s-*-of-%u.tmp.*' there",
                      set->directory, there.count, set->count, kind_names[set->kind], there.count,
                      kind_names[set->kind], there.count);
    buffer_close(&marks);
    return status;
}

// 1 when the part is complete already.
static int open_writer(PartWriter *writer) {
    char path[PATH_MAX_BYTES], folder[PATH_MAX_BYTES];
    Buffer line = {0};
    const PartSet *set = &writer->set;
    const unsigned number = writer->number;
    if (dir_make(set->directory) < 0 || check_others(set) < 0) return -1;
    const int found = find_old(writer);
    if (found || find_documents(writer) < 0) return found ? found : -1;
    const char *const name = path_split(part_path(path, set, number), folder);
    dir_sweep(folder, name);
    if (newfile_open(&writer->file, path) < 0) return -1;
    if (!(writer->hash = XXH3_createState())) die(EX_MEMORY, "no memory for a hash");
    XXH3_128bits_reset(writer->hash);
    add_set(&line, set);
    json_add_number(&line, "part", number);
    json_add_number(&line, "parts", set->count);
    json_add_number(&line, "first", writer->first);
    json_add_number(&line, "documents", writer->documents);
    add_hash(&line, "header_hash", line.data, line.size);
    buffer_print(&line, "}\n");
    const int status = part_writer_add(writer, line.data, line.size);
    buffer_close(&line);
    log_disk(writer);
    log_line("part %u of %u: %" PRIu64 " document%s from number %" PRIu64 " on, to '%s'", number, set->count,
             writer->documents, PLURAL(writer->documents), writer->first, path);
    return status;
}

static int close_writer(PartWriter *writer) {
    XXH128_canonical_t hash;
    if (flush(writer) < 0) return -1;
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(writer->hash));
    if (newfile_write(&writer->file, hash.digest, sizeof hash.digest) < 0) return -1;
    if (newfile_commit(&writer->file) == 0) return log_needs(writer), 0;
    return err_code() == EX_NOINPUT ? find_other(writer) : -1;
}

int part_set_write(PartSet *set, const char *option, int count, char **paths,
                   int (*work)(void *context, PartWriter *writer), void *context) {
    DocumentInputs inputs;
    unsigned number;
    if (part_parse(option, &number, &set->count) < 0 || jobs_check(output_options.threads) < 0) return -1;
    if (!set->directory || !strcmp(set->directory, "-"))
        return fail(EX_USAGE, "--part writes a file to the directory of the output: give it by -o DIR");
    if (documents_open(&inputs, count, paths) < 0) return -1;
    set->inputs = &inputs;
    PartWriter writer = {.set = *set, .number = number, .started_ns = clock_ns()};
    int status = open_writer(&writer);
    if (status == 0) status = work(context, &writer);
    if (status == 0) status = close_writer(&writer);
    newfile_abandon(&writer.file);
    buffer_close(&writer.block);
    XXH3_freeState(writer.hash);
    documents_close(&inputs);
    return status < 0 ? -1 : 0;
}
