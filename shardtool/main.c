// shardtool: tokenizes documents into shards, and reads, checks and edits shards.
#include "common/cli/cli.h"
#include "common/file/cleanup.h"
#include <signal.h>
#include <stddef.h>

#define COMMANDS(X)                                                                                                    \
    X(tokenize)                                                                                                        \
    X(characters)                                                                                                      \
    X(text)                                                                                                            \
    X(encode)                                                                                                          \
    X(decode)                                                                                                          \
    X(cat)                                                                                                             \
    X(info)                                                                                                            \
    X(verify)                                                                                                          \
    X(get)                                                                                                             \
    X(sample) X(hist) X(diff) X(merge) X(index) X(import) X(export) X(ls) X(stat) X(filter) X(dedup) X(shuffle) X(split)

#define DECLARE(name) extern const Command shardtool_##name;
COMMANDS(DECLARE)

int main(int argc, char **argv) {
#define ROW(name) &shardtool_##name,
    static const Command *const commands[] = {COMMANDS(ROW) NULL};
    static const Program program = {"shardtool", "tokenize documents into shards of token ids, and work with shards",
                                    commands};
    cleanup_on_signals();
    signal(SIGXFSZ, SIG_IGN); // a write beyond `ulimit -f` is an error with a message
    return cli_main(&program, argc, argv);
}
