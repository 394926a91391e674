// Keeps the file of a vocabulary of characters in its dataset, and compares it with the manifest.
#include "shardtool/support/dataset_characters.h"
#include "common/err.h"
#include "tokenizer/tokenizer.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

bool characters_file(char path[PATH_MAX_BYTES], const char *directory) {
    snprintf(path, PATH_MAX_BYTES, "%.*s/" CHARACTERS_FILE, PATH_MAX_BYTES - 32, directory);
    return access(path, F_OK) == 0;
}

int characters_keep(const char *directory, const char *from) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    characters_file(path, directory);
    if (!from) return unlink(path) < 0 && errno != ENOENT ? fail_errno("cannot remove '%s'", path) : 0;
    int status = file_read(&text, from, 1 << 20);
    if (status == 0) status = file_write(path, (Bytes){text.data, text.size});
    buffer_close(&text);
    return status;
}

int characters_check(const Dataset *dataset) {
    char path[PATH_MAX_BYTES];
    if (dataset->vocab_size == TOKEN_COUNT) return 0;
    if (!characters_file(path, dataset->path))
        return fail(EX_DATA, "'%s' is missing: copy the file of characters with which the dataset was made", path);
    const Vocab *vocab = vocab_open_characters(path);
    if (!vocab) return -1;
    const bool same = vocab_has_fingerprint(vocab, dataset->vocab_fp);
    vocab_close(vocab);
    if (same) return 0;
    return fail(EX_DATA,
                "'%s' is damaged or of another dataset: copy the file of characters with which this one was made",
                path);
}
