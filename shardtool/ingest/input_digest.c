// The digests of arguments: of a file its size, first and last bytes, of a remote one its size and validator.
#include "common/err.h"
#include "shardtool/ingest/inputs.h"
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { DIGEST_BYTES = 65536 };

static int digest_file(XXH3_state_t *state, const Inputs *inputs, const InputFile *file, uint8_t *block,
                       InputArgument *argument) {
    struct stat st;
    char path[PATH_MAX_BYTES];
    RemoteEntry entry;
    if (input_entry(inputs, file, path, &entry)) {
        XXH3_128bits_update(state, path, strlen(path) + 1);
        XXH3_128bits_update(state, &file->bytes, sizeof file->bytes);
        XXH3_128bits_update(state, entry.validator, strlen(entry.validator) + 1);
        return 0;
    }
    int fd = file_open(path);
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0) close(fd);
        return fail_errno("cannot open '%s'", path);
    }
    argument->times = XXH3_64bits_withSeed(&st.st_mtim, sizeof st.st_mtim, argument->times);
    uint64_t modified_ns = file_modified_ns(&st);
    if (modified_ns > argument->newest_ns) argument->newest_ns = modified_ns;
    XXH3_128bits_update(state, path, strlen(path) + 1);
    XXH3_128bits_update(state, &file->bytes, sizeof file->bytes);
    ssize_t got = fd_read(fd, block, DIGEST_BYTES, path);
    if (got > 0) XXH3_128bits_update(state, block, (size_t)got);
    if (got == DIGEST_BYTES && file->bytes > DIGEST_BYTES) {
        uint64_t tail = file->bytes - DIGEST_BYTES < DIGEST_BYTES ? DIGEST_BYTES : file->bytes - DIGEST_BYTES;
        if (lseek(fd, (off_t)tail, SEEK_SET) < 0)
            got = fail_errno("cannot seek in '%s'", path);
        else
            got = fd_read(fd, block, DIGEST_BYTES, path);
        if (got > 0) XXH3_128bits_update(state, block, (size_t)got);
    }
    close(fd);
    return got < 0 ? -1 : 0;
}

int inputs_digest(Inputs *inputs) {
    XXH3_state_t *state = XXH3_createState();
    Buffer block = {0};
    buffer_reserve(&block, DIGEST_BYTES);
    if (!state) die(EX_MEMORY, "no memory for a hash");
    int status = 0;
    for (uint64_t i = 0, at = 0; status == 0 && i < inputs->argument_count; i++) {
        InputArgument *argument = &inputs->arguments[i];
        XXH3_128bits_reset(state);
        for (; status == 0 && at < inputs->file_count && input_folder(inputs, &inputs->files[at])->argument == i; at++)
            if (!argument->stream) status = digest_file(state, inputs, &inputs->files[at], block.data, argument);
        XXH128_canonical_t digest;
        XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
        if (!argument->stream) memcpy(argument->digest, &digest, sizeof argument->digest);
    }
    buffer_close(&block);
    XXH3_freeState(state);
    return status;
}
