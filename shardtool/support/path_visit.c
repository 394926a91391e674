// Opens the shards and datasets that a command line names.
#include "shardtool/support/path_visit.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include "remote/url_map.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int visit_split(const char *path, int split, PathVisit *visit, void *context) {
    TokenReader tokens;
    if (token_reader_open(&tokens, path, split) < 0) return -1;
    int status = visit(context, path, &tokens);
    token_reader_close(&tokens);
    return status;
}

// For a dataset its manifest's, with which its shards are compared when they are read.
static int read_vocabulary(const char *path, uint32_t *size, uint8_t fingerprint[32]) {
    const bool is_dataset = dataset_is(path);
    Dataset dataset;
    ShardFile shard;
    if ((is_dataset ? dataset_open(&dataset, path) : shard_file_open(&shard, path)) < 0) return -1;
    *size = is_dataset ? dataset.vocab_size : shard.vocab_size;
    memcpy(fingerprint, is_dataset ? dataset.vocab_fp : shard.vocab_fp, 32);
    if (is_dataset)
        dataset_close(&dataset);
    else
        shard_file_close(&shard);
    return 0;
}

int paths_check_vocabulary(int count, char **paths) {
    uint32_t first = 0, other;
    uint8_t of_first[32], of_other[32];
    for (int i = 0; count > 1 && i < count; i++) {
        if (read_vocabulary(paths[i], i ? &other : &first, i ? of_other : of_first) < 0) return -1;
        if (i && (other != first || memcmp(of_first, of_other, sizeof of_first)))
            return fail(EX_DATA, "'%s' and '%s' have different vocabularies", paths[0], paths[i]);
    }
    return 0;
}

int paths_visit(int count, char **paths, int split, PathVisit *visit, void *context) {
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset");
    int status = 0;
    for (int i = 0; status == 0 && i < count; i++) {
        const bool all = split == SPLIT_ALL && dataset_is(paths[i]);
        status = visit_split(paths[i], split == SPLIT_ALL ? SPLIT_TRAIN : split, visit, context);
        if (status == 0 && all) status = visit_split(paths[i], SPLIT_VAL, visit, context);
    }
    return status;
}

int shards_visit(const char *path, int split, int (*visit)(void *context, const char *shard), void *context) {
    if (!dataset_is(path)) return visit(context, path);
    Dataset dataset;
    if (dataset_open(&dataset, path) < 0) return -1;
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < dataset.shard_count[split]; i++)
        status = visit(context, dataset.shards[split][i].path);
    dataset_close(&dataset);
    return status;
}

enum { BEGIN_BYTES = sizeof SHARD_OPENING - 1 + 4 };

static bool begins_as_shard(const uint8_t *bytes, ssize_t size) {
    return size == BEGIN_BYTES && shard_begins((Bytes){bytes, BEGIN_BYTES}) &&
           get_u32(bytes + sizeof SHARD_OPENING - 1) == SHARD_HEADER_MAGIC;
}

// A URL cannot tell that it is a folder, so its manifest is looked for, unless it names a file.
static bool url_is_tokens(const char *url) {
    char manifest[PATH_MAX_BYTES];
    Bytes map;
    bool is = false;
    if (dataset_is(url)) {
        if (strchr(strrchr(url, '/'), '.')) return false;
        const size_t length = strlen(url);
        snprintf(manifest, sizeof manifest, "%.*s/" DATASET_MANIFEST, (int)(length - (url[length - 1] == '/')), url);
        is = url_map_file_exists(manifest);
    } else {
        UrlFile *file = url_map_open(url, &map);
        if (file && map.size >= BEGIN_BYTES && url_map_hold(file, 0, BEGIN_BYTES) == 0)
            is = begins_as_shard(map.data, BEGIN_BYTES), url_map_release(file, 0, BEGIN_BYTES);
        if (file) url_map_close(file, true);
    }
    err_clear(); // the reader of inputs reports it
    return is;
}

static int stdin_is_shard(Bytes *head) {
    static uint8_t begin[BEGIN_BYTES];
    if (isatty(STDIN_FILENO)) return 0;
    const off_t at = lseek(STDIN_FILENO, 0, SEEK_CUR);
    if (at >= 0) return begins_as_shard(begin, pread(STDIN_FILENO, begin, sizeof begin, at));
    if (!head->size) {
        const ssize_t got = fd_read(STDIN_FILENO, begin, sizeof begin, "standard input");
        if (got < 0) return -1;
        *head = (Bytes){begin, (size_t)got};
    }
    if (!begins_as_shard(head->data, (ssize_t)head->size)) return 0;
    return stdin_spool(*head) < 0 ? -1 : 1;
}

int path_is_tokens(const char *path, Bytes *head) {
    struct stat status;
    if (!strcmp(path, "-")) return stdin_is_shard(head);
    if (url_map_takes(path)) return url_is_tokens(path);
    if (dataset_is(path)) return 1;
    if (stat(path, &status) || !S_ISREG(status.st_mode)) return 0; // a pipe cannot be read twice
    uint8_t begin[BEGIN_BYTES];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is = fd >= 0 && begins_as_shard(begin, read(fd, begin, sizeof begin));
    if (fd >= 0) close(fd);
    return is;
}
