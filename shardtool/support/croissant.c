#include "shardtool/support/croissant.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

// The context of the specification's appendix.
static const char context[] =
    "{\"@language\": \"en\", \"@vocab\": \"https://schema.org/\", \"arrayShape\": \"cr:arrayShape\", \"citeAs\": "
    "\"cr:citeAs\", \"column\": \"cr:column\", \"conformsTo\": \"dct:conformsTo\", \"containedIn\": "
    "\"cr:containedIn\", \"cr\": \"http://mlcommons.org/croissant/\", \"rai\": "
    "\"http://mlcommons.org/croissant/RAI/\", "
    "\"data\": {\"@id\": \"cr:data\", \"@type\": \"@json\"}, \"dataType\": {\"@id\": \"cr:dataType\", \"@type\": "
    "\"@vocab\"}, \"dct\": \"http://purl.org/dc/terms/\", \"description\": {\"@container\": \"@language\"}, "
    "\"equivalentProperty\": \"cr:equivalentProperty\", \"examples\": {\"@id\": \"cr:examples\", \"@type\": "
    "\"@json\"}, "
    "\"extract\": \"cr:extract\", \"field\": \"cr:field\", \"fileProperty\": \"cr:fileProperty\", \"fileObject\": "
    "\"cr:fileObject\", \"fileSet\": \"cr:fileSet\", \"format\": \"cr:format\", \"includes\": \"cr:includes\", "
    "\"isArray\": \"cr:isArray\", \"isLiveDataset\": \"cr:isLiveDataset\", \"jsonPath\": \"cr:jsonPath\", \"key\": "
    "\"cr:key\", \"md5\": \"cr:md5\", \"name\": {\"@container\": \"@language\"}, \"parentField\": \"cr:parentField\", "
    "\"path\": \"cr:path\", \"recordSet\": \"cr:recordSet\", \"references\": \"cr:references\", \"regex\": "
    "\"cr:regex\", "
    "\"repeated\": \"cr:repeated\", \"replace\": \"cr:replace\", \"samplingRate\": \"cr:samplingRate\", \"sc\": "
    "\"https://schema.org/\", \"separator\": \"cr:separator\", \"source\": \"cr:source\", \"subField\": "
    "\"cr:subField\", \"transform\": \"cr:transform\"}";

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }

static json_t *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static json_t *text(const char *format, ...) {
    char line[2 * PATH_MAX_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    json_t *string = json_string(line);
    return string ? string : json_string("(not UTF-8)");
}

static json_t *hex(const uint8_t hash[32]) {
    char digits[65];
    hex_encode(digits, hash, 32);
    return json_string(digits);
}

// ---- files

static int add_manifest(const Dataset *dataset, json_t *files) {
    char path[PATH_MAX_BYTES];
    Buffer bytes = {0};
    uint8_t hash[32];
    if (file_read(&bytes, path_join(path, dataset->path, DATASET_MANIFEST), SIZE_MAX / 2) < 0) return -1;
    sha256(bytes.data, bytes.size, hash);
    json_array_append_new(files, json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:s, s:o}", "@type", "cr:FileObject", "@id",
                                           "manifest", "name", "manifest", "description",
                                           "One line of JSON for the dataset, then one for each shard.", "contentSize",
                                           text("%zu B", bytes.size), "contentUrl", DATASET_MANIFEST, "encodingFormat",
                                           "application/jsonlines", "sha256", hex(hash)));
    buffer_close(&bytes);
    return 0;
}

static void add_split_files(const Dataset *dataset, int split, json_t *files) {
    if (!dataset->shard_count[split]) return;
    json_array_append_new(
        files,
        json_pack("{s:s, s:o, s:o, s:o, s:s, s:o}", "@type", "cr:FileSet", "@id", text("%s-shards", split_names[split]),
                  "name", text("%s-shards", split_names[split]), "description",
                  text("The ids of the %s split: `zstd -dc` gives them as little-endian numbers of %u bytes, one "
                       "file after another.",
                       split_names[split], id_bytes(dataset->vocab_size)),
                  "encodingFormat", "application/zstd", "includes", text("%s/*/*.zst", split_names[split])));
}

// ---- records

static json_t *fields(const char *set, const char *const (*rows)[3], int count) {
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:s, s:s}", "@type", "cr:Field", "@id",
                                              text("%s/%s", set, rows[i][0]), "name", rows[i][0], "description",
                                              rows[i][2], "dataType", rows[i][1]));
    return list;
}

static json_t *split_records(const Dataset *dataset) {
    static const char *const rows[][3] = {{"name", "sc:Text", "the split"},
                                          {"tokens", "sc:Integer", "ids, end-of-text ids included"},
                                          {"documents", "sc:Integer", "documents"},
                                          {"shards", "sc:Integer", "files"}};
    json_t *data = json_array();
    for (int i = 0; i < SPLIT_COUNT; i++)
        json_array_append_new(data,
                              json_pack("{s:s, s:o, s:o, s:o}", "splits/name", split_names[i], "splits/tokens",
                                        number(dataset->tokens[i]), "splits/documents", number(dataset->documents[i]),
                                        "splits/shards", number(dataset->shard_count[i])));
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:s}, s:o, s:o}", "@type", "cr:RecordSet", "@id", "splits", "name",
                     "splits", "dataType", "cr:Split", "description", "The splits of the dataset.", "key", "@id",
                     "splits/name", "field", fields("splits", rows, sizeof rows / sizeof *rows), "data", data);
}

static json_t *shard_records(const Dataset *dataset) {
    static const char *const rows[][3] = {{"file", "sc:Text", "the path in the dataset"},
                                          {"split", "sc:Text", "the split"},
                                          {"tokens", "sc:Integer", "ids in the file"},
                                          {"documents", "sc:Integer", "documents that begin in the file"},
                                          {"bytes", "sc:Integer", "size of the file"},
                                          {"ids_sha256", "sc:Text", "SHA-256 of the ids that zstd -dc gives"}};
    json_t *data = json_array();
    const size_t skip = strlen(dataset->path) + 1; // of DIR/train/000/000000.zst
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset->shard_count[split]; i++) {
            const DatasetShard *shard = &dataset->shards[split][i];
            json_array_append_new(data, json_pack("{s:o, s:s, s:o, s:o, s:o, s:o}", "shards/file",
                                                  text("%s", shard->path + skip), "shards/split", split_names[split],
                                                  "shards/tokens", number(shard->tokens), "shards/documents",
                                                  number(shard->documents), "shards/bytes", number(shard->bytes),
                                                  "shards/ids_sha256", hex(shard->content_hash)));
        }
    return json_pack("{s:s, s:s, s:s, s:s, s:{s:s}, s:o, s:o}", "@type", "cr:RecordSet", "@id", "shards", "name",
                     "shards", "description", "The files of ids, in order.", "key", "@id", "shards/file", "field",
                     fields("shards", rows, sizeof rows / sizeof *rows), "data", data);
}

static json_t *sources(const Dataset *dataset) {
    json_t *list = json_array();
    char digest[33];
    for (uint64_t i = 0; i < dataset->source_count; i++) {
        const DatasetSource *source = &dataset->sources[i];
        hex_encode(digest, source->digest, sizeof source->digest);
        json_array_append_new(list, json_pack("{s:s, s:o, s:o, s:o}", "@type", "sc:CreativeWork", "name",
                                              text("%s", source->path), "description",
                                              text("files: %llu, bytes: %llu", (unsigned long long)source->files,
                                                   (unsigned long long)source->bytes),
                                              "identifier", text("xxh3:%s", digest)));
    }
    return list;
}

int croissant_print(const Dataset *dataset, Buffer *out) {
    json_t *files = json_array();
    int result = add_manifest(dataset, files);
    for (int split = 0; split < SPLIT_COUNT; split++) add_split_files(dataset, split, files);
    char digits[65];
    hex_encode(digits, dataset->fingerprint, 32);
    json_t *root = json_pack(
        "{s:o, s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:[o, o]}", "@context", json_loads(context, 0, NULL), "@type",
        "sc:Dataset", "name", text("%s", dataset->name), "description",
        text("Token ids of a vocabulary of %u: %llu for training (documents: %llu) and %llu for validation (documents: "
             "%llu).",
             dataset->vocab_size, (unsigned long long)dataset->tokens[SPLIT_TRAIN],
             (unsigned long long)dataset->documents[SPLIT_TRAIN], (unsigned long long)dataset->tokens[SPLIT_VAL],
             (unsigned long long)dataset->documents[SPLIT_VAL]),
        "conformsTo", "http://mlcommons.org/croissant/1.1", "identifier", text("sha256:%s", digits),
        "rai:dataPreprocessingProtocol", text("%s", dataset->params), "isBasedOn", sources(dataset), "distribution",
        files, "recordSet", split_records(dataset), shard_records(dataset));
    char *printed = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!printed) die(EX_MEMORY, "no memory for the description of a dataset");
    buffer_print(out, "%s\n", printed);
    free(printed);
    json_decref(root);
    return result;
}
