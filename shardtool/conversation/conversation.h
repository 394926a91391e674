// Conversations (--turns) of a JSON line or a row of Parquet, as an object: lists of messages, each with a role and a
// content, or such a list itself; or a text of a user and one of an assistant; or neither, and the text of a document.
// Any other field that would change the text, or the trained part of it, is refused.
#pragma once

#include "common/bytes.h"
#include "common/turns.h"
#include "shardtool/ingest/source_options.h"
#include <jansson.h>

// Where a conversation lies: `messages`, `prompt` and `completion`, or what --turns-keys names. A key is one of the
// object, or a path of them with dots.
typedef struct ConversationKeys {
    bool lists, pairs;   // which of the two are read
    StringList messages; // their lists, one after another
    StringList
        texts[TURN_END]; // of each role: the keys of its text, joined by line ends; in lists the role's other names
    StringList role, content; // one each
    StringList ignore;
    StringList named; // by the argument, of the lists or else of the texts: keys of the object
} ConversationKeys;
// The argument of --turns-keys. 2 with what was expected. The names live as long as the run.
int conversation_keys_parse(ConversationKeys *keys, const char *argument);
// Whether the value of a key of an object matters: it is read, or refused.
bool conversation_needs(const SourceOptions *options, const char *key);

typedef enum { LINE_BAD = -1, LINE_WITHOUT_TEXT, LINE_OF_TEXT, LINE_OF_TURNS } LineContent;
enum { CONVERSATION_WHY_BYTES = 512 };

// Appends the conversation as turns.h describes it, or `text` if there is none; `text` may be NULL. Replaced bytes are
// counted in `options`, and keys beside a conversation that are not read are listed there. LINE_BAD: `why` is the
// reason, without control characters.
LineContent conversation_read(const json_t *line, const json_t *text, SourceOptions *options, Buffer *out,
                              char why[CONVERSATION_WHY_BYTES]);
// The value at a key, or at a path of keys with dots; NULL without one.
const json_t *conversation_value(const json_t *object, const char *key);
void conversation_note_ignored(SourceOptions *options, const char *key); // a key that is not read
// Why neither a conversation nor a text was found, without the place of a text.
const char *conversation_missing(const SourceOptions *options);
// Prints the option that reads a conversation in these keys; false if they do not look like one.
bool conversation_suggest(const json_t *object, Buffer *out);
// Prints the value of --turns-keys for a list of such messages at the key `list`; false if they have no role or no
// content.
bool conversation_suggest_roles(const json_t *message, const char *list, Buffer *out);
// A key that --turns-keys names and `columns` lack, though they have another one of these; else NULL.
const char *conversation_absent(const SourceOptions *options, const json_t *columns);
// A key that --turns-keys names and no line so far had; else NULL.
const char *conversation_unfound(const SourceOptions *options);
// "; the line has the keys a, b", where `has` is the text in front of the keys, and the option that reads a
// conversation in them, if they look like one. `object` may be NULL.
void conversation_print_keys(const json_t *object, const char *has, const SourceOptions *options, Buffer *out);
