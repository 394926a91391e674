// The configuration: keys, files and flags (--key=value) as in nanoGPT. Files override defaults, flags override files.
#pragma once

#include "common/arena.h"
#include "common/bytes.h"
#include "common/cli/cli.h"
#include "common/turns.h"
#include "kernels/backend.h"
#include "loader/client/feed.h"
#include "trainer/config/optimizer_name.h"
#include "trainer/config/recompute_level.h"

typedef enum {
    CLASS_MODEL,
    CLASS_OPTION,
    CLASS_STREAM,
    CLASS_STREAM_OPTION,
    CLASS_RUN,
    CLASS_RUN_OPTION,
    CLASS_PLACE
} KeyClass;
typedef enum { ROLE_PLAN = 8, ROLE_FIT = 16, ROLE_SAMPLES = 32, ROLE_EVAL = 64, ROLE_CHOSEN = 128 } KeyRole;

typedef bool Key_FLAG;
typedef int64_t Key_INT;
typedef double Key_FLOAT;
typedef AutoInt Key_AUTO;
typedef uint64_t Key_SIZE;
typedef const char *Key_STRING;

// The enums of the WORD rows.
#define KEY(type, field, initial, class, range, when, meaning)
#define WORD(type, field, initial, class, when, meaning, words) typedef enum { words } type;
#define WORD_OF(type, field, initial, class, when, meaning, words)
#define W(constant, text) constant,
#define ALIAS(constant, text)
#include "trainer/config/keys.def"

typedef struct {
#define KEY(type, field, initial, class, range, when, meaning)  Key_##type field;
#define WORD(type, field, initial, class, when, meaning, words) type field;
#include "trainer/config/keys.def"
    unsigned world;       // processes that train together, 0 = 1: of the launcher, no key
    unsigned local_world; // of them on this machine
    unsigned local_first; // the lowest of them on this machine
    unsigned end_of_text; // the id that ends a document, if vocab_size is set: of the vocabulary, no key
    TurnIds turns;        // the markers of the vocabulary, no key
    unsigned added_ids;   // the last ids, which the model of init_from lacks; no key
} Config;

enum {
#define KEY(type, field, initial, class, range, when, meaning)  KEY_##field,
#define WORD(type, field, initial, class, when, meaning, words) KEY_##field,
#include "trainer/config/keys.def"
    KEY_COUNT
};

static inline unsigned config_world(const Config *config) { return config->world ? config->world : 1; }
// Whether the tensors that `offload` = mode moves are in host memory: a later word also moves the tensors of the
// earlier ones.
static inline bool offload_includes(const Config *config, OffloadMode mode) {
    return config->offload != OFFLOAD_AUTO && config->offload >= mode;
}
// Whether a network joins the processes.
static inline bool config_spans_machines(const Config *config) {
    return config->local_world && config->world > config->local_world;
}
// The parts that master parameters and optimizer state are divided into.
static inline unsigned config_shards(const Config *config) { return config->zero_stage ? config_world(config) : 1; }
// The rounds of a step: in each, every process has one micro-batch; in the last one maybe not every process.
static inline int64_t config_rounds(const Config *config) {
    const int64_t world = config_world(config);
    return (config->gradient_accumulation_steps + world - 1) / world;
}
static inline int64_t config_eval_block(const Config *config) {
    return config->eval_block_size ? config->eval_block_size : config->block_size;
}
static inline int64_t config_eval_tokens(const Config *config) {
    return config->eval_tokens ? config->eval_tokens
                               : config->eval_iters * config->batch_size.value * config_eval_block(config);
}

extern const Option config_keys[KEY_COUNT + 1]; // with their defaults, for help
extern const OptionGroup config_groups[];       // the titles of keys.def

// Reads files and flags into `config`, and collects all mistakes before it fails.
typedef struct {
    Config config;
    Option options[KEY_COUNT + 1];    // the keys, with pointers into `config`
    char origin[KEY_COUNT][128];      // where the value was set: "default", "FILE:LINE" or "--key"
    Buffer mistakes;                  // one line each: "FILE:LINE:COLUMN: ..."
    Buffer ignored;                   // nanoGPT keys without a meaning here, as "compile, wandb_log"
    int mistake_count, unreadable;    // unreadable: of files that could not be read
    bool has_number[KEY_COUNT];       // an AUTO key was set to a number, which a later auto keeps
    int64_t eval_iters;               // nanoGPT's size of an evaluation, 0 = not set
    int files, source[KEY_COUNT];     // files read; what set a key: a file, from 1, or flags, files + 1
    struct ConfigVariable *variables; // names set by files that are no keys, newest first
    Arena strings;                    // strings and variables of the files
} ConfigReader;

// The options of a command that reads a configuration, and the configuration from them: the files, then the collected
// --key=value options. Logs which keys are ignored. -1 after printing every mistake: 66 when files cannot be read, else
// 2.
extern const MoreOptions config_options;
int config_read(ConfigReader *reader, int count, char **files);

void config_open(ConfigReader *reader); // defaults; strings of files live until config_close
void config_file(ConfigReader *reader, const char *path);
void config_flag(ConfigReader *reader, const char *assignment); // "key=value", borrowed
bool config_is_set(const ConfigReader *reader, int key);        // by a file or a flag
// Adds a mistake about a key, with the place where it was set. config_check prints it.
void config_mistake(ConfigReader *reader, int key, const char *format, ...) __attribute__((format(printf, 3, 4)));
int config_check(ConfigReader *reader); // also checks ranges and combinations. Prints all mistakes; -1 (2 or 66) if any
void config_warn(const ConfigReader *reader); // of values that other values make meaningless
void config_close(ConfigReader *reader);

void config_add_text(const ConfigReader *reader, Buffer *out); // a file that gives this configuration, with origins
void config_print(const ConfigReader *reader);                 // the same to stdout
KeyClass config_class(int key);
bool config_has_role(int key, KeyRole role);
bool config_may_change(int key);                    // of a run that continues
bool config_is_used(const Config *config, int key); // false: it has no effect beside the others (config_warn)
bool config_is_default(const Config *config, int key);
bool config_is_part(int key);                        // it is written behind the word of another key (PART in keys.def)
bool config_is_idle(const Config *config, int key);  // a part that no word has: an earlier version could set it
int config_part(int key);                            // the part that words of a key may have, or KEY_COUNT
bool config_omits_default(int key);                  // in checkpoints and metrics.jsonl
double config_number(const Config *config, int key); // of a key of type INT, AUTO or FLOAT
bool config_in_range(const Config *config, int key);

const char *config_key(int key);       // its name
int config_find_key(const char *name); // KEY_COUNT: no such key

// A value as text, for checkpoints and messages, and back from it. config_parse also accepts the aliases of words;
// false when `text` is not a value of the key. Strings are borrowed.
void config_value(const Config *config, int key, char *out, size_t size);
bool config_parse(Config *config, int key, const char *text);
void config_add_value(const Config *config, int key, Buffer *out);       // as in a file, in quotes where it needs them
void config_text(const Config *config, int key, char *out, size_t size); // as in a file or flag: a word with its part
void config_default(int key, char *out, size_t size);

// The WORD keys: whether a key is one, the word of a value, the value of a word (false when it is not a word of the
// key), and all words as "a, b, c".
bool config_is_word(int key);
const char *config_word(int key, int value);
bool config_find_word(int key, const char *text, int *value);
void config_words(int key, Buffer *out);
const char *config_nearest_word(int key, const char *text); // NULL when none is similar
