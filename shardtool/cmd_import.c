// import: makes a dataset from the token files of other tools (interchange.h). Every header is checked before use.
#include "common/err.h"
#include "common/file/spool.h"
#include "shardtool/interchange.h"
#include "shardtool/support/output.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEP_TOKENS = 1 << 16 };

static Interchange from = INTERCHANGE_NONE;
static EotPlace eot;

static const Option options[] = {
    {OPT_WORD, "from", &from, INTERCHANGE_WORDS, "the other tool"                                                             },
    {OPT_WORD, "eot",  &eot,  EOT_WORDS,         "end-of-text ids after or before each document; auto is before for llmc only"},
    ROWS_OUTPUT,
    ROW_END,
};

typedef struct {
    bool begun, begins_with_end, has_end; // ids were added; the first, the last one is the end-of-text id
    uint64_t files;
} ImportSplit;

typedef struct {
    Output output;
    int split;              // of the current file
    InputPosition position; // of the next id
    const char *path;       // of the current file
    bool eot_before;
    ImportSplit splits[SPLIT_COUNT];
} Import;

static int put_end(Import *import, int split) {
    const uint16_t end = TOKEN_END_OF_TEXT;
    import->splits[split].has_end = true;
    return output_add(&import->output, split, &end, 1, import->position);
}

// Adds ids that are `count` * 2 bytes at `data`. `first` is the index of the first one in the file, for errors.
static int put_ids(Import *import, const uint8_t *data, uint64_t first, uint64_t count) {
    static uint16_t ids[STEP_TOKENS];
    ImportSplit *split = &import->splits[import->split];
    for (uint64_t at = 0; at < count;) {
        size_t take = count - at < STEP_TOKENS ? (size_t)(count - at) : STEP_TOKENS, skip = 0;
        memcpy(ids, data + at * sizeof *ids, take * sizeof *ids);
        for (size_t i = 0; i < take; i++)
            if (ids[i] >= TOKEN_COUNT)
                return fail(EX_DATA, "id %u at index %" PRIu64 " is not in the vocabulary of %d", ids[i],
                            first + at + i, TOKEN_COUNT);
        if (!split->begun && import->eot_before) {
            if (ids[0] != TOKEN_END_OF_TEXT)
                return fail(EX_DATA, "does not begin with the end-of-text id %d: use --eot after", TOKEN_END_OF_TEXT);
            skip = 1; // finish_split adds it after the last document
        }
        if (!split->begun) split->begins_with_end = ids[0] == TOKEN_END_OF_TEXT;
        split->begun = true;
        if (output_add(&import->output, import->split, ids + skip, take - skip, import->position) < 0) return -1;
        split->has_end = ids[take - 1] == TOKEN_END_OF_TEXT;
        for (size_t i = 0; i < take; i++) import->position.document += ids[i] == TOKEN_END_OF_TEXT;
        at += take;
    }
    return 0;
}

// Adds a document whose length an index gives. It may lack the end-of-text id, which then is added.
static int put_document(Import *import, const uint8_t *data, uint64_t first, uint64_t count) {
    if (put_ids(import, data, first, count) < 0) return -1;
    return count && import->splits[import->split].has_end ? 0 : put_end(import, import->split);
}

static int take_plain(Import *import, Bytes file) {
    if (file.size % 2) return fail(EX_DATA, "odd number of bytes: it cannot hold u16 ids only");
    return put_ids(import, file.data, 0, file.size / 2);
}

static int take_llmc(Import *import, Bytes file) {
    const size_t head = LLMC_INTS * sizeof(int32_t);
    if (file.size < head) return fail(EX_DATA, "shorter than a header of %zu bytes", head);
    uint32_t magic = get_u32(file.data), version = get_u32(file.data + 4), count = get_u32(file.data + 8);
    if (magic != LLMC_MAGIC) return fail(EX_DATA, "its magic number is %u, not llm.c's %d", magic, LLMC_MAGIC);
    if (version != 1) return fail(EX_DATA, "version %u, this program reads version 1 (u16)", version);
    if ((file.size - head) % 2 || (file.size - head) / 2 != count)
        return fail(EX_DATA, "the header promises %u ids, %zu bytes follow it: truncated or extended", count,
                    file.size - head);
    return put_ids(import, file.data + head, 0, count);
}

// The text after "'key':" of the header of a .npy file; NULL when there is none.
static const char *npy_value(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ') at++;
    return at;
}

static int npy_header(const char *header, uint64_t *count) {
    const char *type = npy_value(header, "'descr':"), *order = npy_value(header, "'fortran_order':"),
               *shape = npy_value(header, "'shape':");
    if (!type || !order || !shape) return fail(EX_DATA, "its NumPy header lacks descr, fortran_order or shape");
    if (strncmp(type, "'<u2'", 5))
        return fail(EX_DATA, "its values are of type %.*s, only '<u2' is read", (int)strcspn(type, ",}"), type);
    char *end = NULL;
    if (*shape == '(' && isdigit((unsigned char)shape[1])) *count = strtoull(shape + 1, &end, 10);
    if (!end || strncmp(end, ",)", 2))
        return fail(EX_DATA, "its shape is %.*s), only one dimension is read", (int)strcspn(shape, ")"), shape);
    return 0;
}

static int take_npy(Import *import, Bytes file) {
    enum { HEADER_MAX = 65535 };
    if (file.size < 12 || memcmp(file.data, NPY_MAGIC, 6)) return fail(EX_DATA, "not a NumPy file");
    unsigned version = file.data[6];
    if (version < 1 || version > 3) return fail(EX_DATA, "NumPy format %u, this program reads 1 to 3", version);
    size_t start = version == 1 ? 10 : 12, length = version == 1 ? get_u16(file.data + 8) : get_u32(file.data + 8);
    if (length > HEADER_MAX || length > file.size - start)
        return fail(EX_DATA, "a NumPy header of %zu bytes does not fit", length);
    char *header = strndup((const char *)file.data + start, length);
    if (!header) die(EX_MEMORY, "no memory for a header");
    for (char *c = header; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?'; // parts of it are printed
    uint64_t count = 0;
    int status = npy_header(header, &count);
    free(header);
    if (status < 0) return -1;
    size_t left = file.size - start - length;
    if (left % 2 || left / 2 != count)
        return fail(EX_DATA, "the header promises %" PRIu64 " ids, %zu bytes follow it: truncated or extended", count,
                    left);
    return put_ids(import, file.data + start + length, 0, count);
}

// Maps the index beside a file: its name with `end` in place of the last `cut` bytes.
static int map_index(Bytes *index, const char *path, size_t cut, const char *end) {
    char name[PATH_MAX_BYTES];
    if (snprintf(name, sizeof name, "%.*s%s", (int)(strlen(path) - cut), path, end) >= (int)sizeof name)
        return fail(EX_NOINPUT, "path too long: '%.60s...'", path);
    return file_map(index, name);
}

// The sequences of a Megatron index and the documents they belong to.
typedef struct {
    uint64_t sequences, boundaries;
    const uint8_t *length, *offset, *boundary;
} MegatronIndex;

static int megatron_header(MegatronIndex *index, Bytes file) {
    if (file.size < 34 || memcmp(file.data, MEGATRON_MAGIC, 9)) return fail(EX_DATA, "index: not Megatron's MMIDIDX");
    if (get_u64(file.data + 9) != 1)
        return fail(EX_DATA, "index: version %" PRIu64 ", this program reads version 1", get_u64(file.data + 9));
    if (file.data[17] != MEGATRON_U16)
        return fail(EX_DATA, "index: ids of type %u, this program reads type %d (u16)", file.data[17], MEGATRON_U16);
    index->sequences = get_u64(file.data + 18), index->boundaries = get_u64(file.data + 26);
    uint64_t left = file.size - 34;
    if (index->sequences > left / 12 || index->boundaries != (left - index->sequences * 12) / 8 ||
        (left - index->sequences * 12) % 8)
        return fail(EX_DATA, "index: %" PRIu64 " sequences and %" PRIu64 " boundaries do not fit its %zu bytes",
                    index->sequences, index->boundaries, file.size);
    index->length = file.data + 34;
    index->offset = index->length + index->sequences * 4;
    index->boundary = index->offset + index->sequences * 8;
    return 0;
}

static int megatron_sequences(Import *import, const MegatronIndex *index, uint64_t first, uint64_t end, Bytes file) {
    uint64_t total = 0;
    bool has_end = false;
    for (uint64_t i = first; i < end; i++) {
        uint64_t length = get_u32(index->length + i * 4), offset = get_u64(index->offset + i * 8);
        if (length > INT32_MAX || offset > file.size || length > (file.size - offset) / 2)
            return fail(EX_DATA, "index: sequence %" PRIu64 " lies outside the %zu bytes of ids", i, file.size);
        if (put_ids(import, file.data + offset, offset / 2, length) < 0) return -1;
        total += length;
        has_end = length ? import->splits[import->split].has_end : has_end;
    }
    return total && has_end ? 0 : put_end(import, import->split);
}

static int megatron_documents(Import *import, const MegatronIndex *index, Bytes file) {
    uint64_t bytes = 0, end = 0;
    for (uint64_t i = 0; i < index->sequences; i++) bytes += (uint64_t)get_u32(index->length + i * 4) * 2;
    if (bytes != file.size)
        return fail(EX_DATA, "the index describes %" PRIu64 " bytes of ids, the file has %zu: truncated or extended",
                    bytes, file.size);
    for (uint64_t i = 0; i < index->boundaries; i++) {
        uint64_t first = end;
        end = get_u64(index->boundary + i * 8);
        if (end < first || end > index->sequences || (i == 0 && end))
            return fail(EX_DATA, "index: boundary %" PRIu64 " is sequence %" PRIu64 ", out of order", i, end);
        if (i && megatron_sequences(import, index, first, end, file) < 0) return -1;
    }
    return end == index->sequences
               ? 0
               : fail(EX_DATA, "index: the documents end before sequence %" PRIu64, index->sequences);
}

static int take_megatron(Import *import, Bytes file) {
    Bytes bytes;
    MegatronIndex index = {0};
    if (map_index(&bytes, import->path, strlen(".bin"), ".idx") < 0) return -1;
    int status = megatron_header(&index, bytes);
    if (status == 0) status = megatron_documents(import, &index, file);
    file_unmap(&bytes);
    return status;
}

static int datatrove_documents(Import *import, Bytes index, Bytes file) {
    uint64_t count = file.size / 2, end = 0;
    if (file.size % 2) return fail(EX_DATA, "odd number of bytes: it cannot hold u16 ids only");
    if (index.size % 8) return fail(EX_DATA, "index: %zu bytes are no sequence of u64", index.size);
    for (size_t i = 0; i < index.size; i += 8) {
        uint64_t first = end;
        end = get_u64(index.data + i);
        if (end < first || end > count)
            return fail(EX_DATA, "index: document %zu ends at %" PRIu64 ", out of order or past the %" PRIu64 " ids",
                        i / 8, end, count);
        if (put_document(import, file.data + first * 2, first, end - first) < 0) return -1;
    }
    return end == count ? 0 : fail(EX_DATA, "index: its documents end at %" PRIu64 " of %" PRIu64 " ids", end, count);
}

static int take_datatrove(Import *import, Bytes file) {
    Bytes index, metadata;
    if (map_index(&metadata, import->path, 0, ".metadata") == 0) { // the only place that tells u16 from u32
        const uint8_t *bar = metadata.size ? memchr(metadata.data, '|', metadata.size) : NULL;
        bool wide = bar && bar + 1 < metadata.data + metadata.size && bar[1] != '2';
        file_unmap(&metadata);
        if (wide) return fail(EX_DATA, "its metadata says that ids are not of 2 bytes");
    } else
        err_clear();
    if (map_index(&index, import->path, 0, ".index") < 0) return -1;
    int status = datatrove_documents(import, index, file);
    file_unmap(&index);
    return status;
}

typedef struct {
    const char *extension;
    bool has_index;
    int (*take)(Import *import, Bytes file);
} Format;
static const Format formats[] = {
    [INTERCHANGE_NANOGPT] = {".bin", false, take_plain    },
      [INTERCHANGE_LLMC] = {".bin", false, take_llmc     },
    [INTERCHANGE_MEGATRON] = {".bin", true,  take_megatron },
      [INTERCHANGE_NPY] = {".npy", false, take_npy      },
    [INTERCHANGE_DATATROVE] = {".ds",  true,  take_datatrove},
};

static bool has_extension(const char *path, const char *extension) {
    size_t length = strlen(path), end = strlen(extension);
    return length > end && !strcmp(path + length - end, extension);
}

// val.bin, fineweb_val_000000.bin and text_validation_document.bin are of the validation split, medieval.bin is not.
static int split_of(const char *path) {
    static const char *const words[] = {"val", "valid", "validation"};
    const char *name = strrchr(path, '/');
    for (name = name ? name + 1 : path; *name;) {
        size_t length = 0;
        while (isalpha((unsigned char)name[length])) length++;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (length == strlen(words[i]) && !memcmp(name, words[i], length)) return SPLIT_VAL;
        name += length ? length : 1;
    }
    return SPLIT_TRAIN;
}

// Whether a file is to be read: the index beside a file, or a README found in a folder, is not.
static int choose_file(Import *import, const Inputs *inputs, uint64_t number, bool *chosen) {
    const Format *format = &formats[from];
    char path[PATH_MAX_BYTES];
    input_path(inputs, &inputs->files[number], path);
    const bool fits = has_extension(path, format->extension);
    *chosen = fits || !*input_folder(inputs, &inputs->files[number])->path;
    if (*chosen && format->has_index && !fits)
        return fail(EX_USAGE, "'%s' does not end in %s, which the name of its index is made from", path,
                    format->extension);
    if (*chosen) import->splits[split_of(path)].files++;
    return 0;
}

static int import_file(Import *import, const Inputs *inputs, uint64_t number) {
    char path[PATH_MAX_BYTES];
    input_path(inputs, &inputs->files[number], path);
    Bytes file;
    if (input_map(&file, path) < 0) return -1;
    import->path = path, import->split = split_of(path);
    import->position = (InputPosition){.file = number};
    int status = formats[from].take(import, file);
    file_unmap(&file);
    return status < 0 ? fail_in("'%s'", path) : 0;
}

static int finish_split(Import *import, int number) {
    const ImportSplit *split = &import->splits[number];
    if (!split->begun) return 0;
    if (import->eot_before) return put_end(import, number);
    if (split->begins_with_end && !split->has_end)
        log_warn("%s begins with the end-of-text id %d and does not end with it: if the id stands before each "
                 "document, use --eot before",
                 split_names[number], TOKEN_END_OF_TEXT);
    return 0;
}

static int import_all(Import *import, const Inputs *inputs) {
    const ImportSplit *train = &import->splits[SPLIT_TRAIN], *val = &import->splits[SPLIT_VAL];
    bool *chosen = allocate_zeroed(inputs->file_count + 1, sizeof *chosen);
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < inputs->file_count; i++)
        status = choose_file(import, inputs, i, &chosen[i]);
    if (status == 0 && train->files + val->files == 0)
        status = fail(EX_NOINPUT, "no input file ends in %s", formats[from].extension);
    if (status == 0 && import->output.to_stdout && train->files && val->files)
        status = fail(EX_USAGE, "-o - takes one split: the inputs hold train and val files");
    for (uint64_t i = 0; status == 0 && i < inputs->file_count; i++)
        if (chosen[i]) status = import_file(import, inputs, i);
    free(chosen);
    for (int split = 0; status == 0 && split < SPLIT_COUNT; split++) status = finish_split(import, split);
    if (status < 0) return -1;
    log_line("read %" PRIu64 " train and %" PRIu64 " val files", train->files, val->files);
    return output_finish(&import->output);
}

static int import_inputs(const Inputs *inputs) {
    char words[32], settings[64];
    word_print(INTERCHANGE_WORDS, from, words, sizeof words);
    int length = snprintf(settings, sizeof settings, "from=%s;eot=", words);
    word_print(EOT_WORDS, eot, settings + length, sizeof settings - (size_t)length);
    OutputPlan plan = {.command = "import", .settings = settings, .inputs = inputs, .val = "0"};
    plan.params = (ShardParams){SHARD_FRAME_TOKENS, TOKEN_COUNT, TOKEN_END_OF_TEXT, {0}, {0}};
    const Vocab *vocab = vocab_open();
    if (!vocab) return -1;
    vocab_fingerprint(vocab, plan.params.vocab_fp);
    vocab_close(vocab);

    static Import import;
    import.eot_before = eot == EOT_BEFORE || (eot == EOT_AUTO && from == INTERCHANGE_LLMC);
    int status = output_open(&import.output, output_options.path, &plan);
    if (status == 0) status = import_all(&import, inputs);
    output_close(&import.output);
    return status < 0 ? -1 : 0;
}

static int run(int count, char **arguments) {
    if (from == INTERCHANGE_NONE) return fail(EX_USAGE, "missing --from %s", INTERCHANGE_WORDS);
    if (eot == EOT_BEFORE && formats[from].has_index)
        return fail(EX_USAGE, "--eot before is only for nanogpt, llmc and npy");
    Inputs inputs;
    if (inputs_open(&inputs, count, arguments, NULL) < 0) return -1;
    int status = inputs_digest(&inputs);
    if (status == 0) status = import_inputs(&inputs);
    inputs_close(&inputs);
    return status;
}

const Command shardtool_import = {
    "import",
    "[PATH...]",
    "make a dataset from the token files of other tools; files named val* are the validation split",
    options,
    run,
    NULL};
