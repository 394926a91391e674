// The commands of each program, in the order of its help. X(name) stands for `const Command PROGRAM_name`, in
// cmd_NAME.c; on a command line a "_" of the name is a "-". `millrace NAME` finds the program by these lists, so a name
// stands in one of them, once: millrace/main.c does not compile otherwise.
#pragma once

// clang-format off
#define SHARDTOOL_COMMANDS(X) \
    X(tokenize) X(train_vocabulary) X(decode) X(cat) X(info) X(verify) X(diff) X(merge) X(import_tokens) X(export_tokens) \
    X(filter) X(dedup) X(decontaminate) X(shuffle) X(split)
// clang-format on

#define LOADER_COMMANDS(X) X(serve) X(swap) X(serve_status) X(keygen)

#define TRAINER_COMMANDS(X)                                                                                            \
    X(train) X(plan) X(eval) X(sample) X(export) X(import) X(status) X(report) X(replay) X(which) X(doctor)
