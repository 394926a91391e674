// The configuration from the command line: files, then --key=value.
#include "trainer/trainer_commands.h"
#include "common/err.h"
#include "common/log.h"

enum { FLAGS_MAX = 256 };
static const char *flags[FLAGS_MAX];
static int flag_count;

static bool take(const char *option, int *status) {
    if (flag_count == FLAGS_MAX)
        *status = fail(EX_USAGE, "more than %d flags", FLAGS_MAX);
    else
        flags[flag_count++] = option;
    return true;
}

const MoreOptions config_options = {config_keys, take};

int config_read(ConfigReader *reader, int count, char **files) {
    config_open(reader);
    for (int i = 0; i < count; i++) config_file(reader, files[i]);
    for (int i = 0; i < flag_count; i++) config_flag(reader, flags[i]);
    if (reader->ignored.size) log_line("ignored: %s", (const char *)reader->ignored.data);
    return config_check(reader);
}
