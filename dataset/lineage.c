// Histories as text: a new one takes those of its inputs as they are.
#include "dataset/lineage.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include "common/log.h"
#include <stdio.h>

enum {
    HISTORY_BYTES_MAX = 1 << 20, // of inputs; one that makes them longer is named without its own history
    DEPTH_MAX = 200              // of the lines
};

static void add_command(Buffer *out, const char *command, const char *settings) {
    static const char *const storage[] = {"frame_tokens=", "codec=", "eot=", "shard_tokens="};
    json_add_field(out, "command", command);
    json_add_key(out, "settings");
    buffer_print(out, "\"");
    for (const char *before = ""; *settings;) {
        const size_t size = strcspn(settings, ";\n");
        bool is_storage = !size;
        for (size_t i = 0; i < sizeof storage / sizeof *storage; i++)
            is_storage |= !strncmp(settings, storage[i], strlen(storage[i]));
        if (!is_storage) {
            buffer_print(out, "%s", before);
            json_add_text(out, (Bytes){(const uint8_t *)settings, size}, true, &(JsonCarry){.size = 0});
            before = ";";
        }
        settings += size + (settings[size] != '\0');
    }
    buffer_print(out, "\"");
}

static void begin_input(Buffer *inputs, const char *name, uint64_t tokens, uint64_t documents) {
    if (inputs->size) buffer_print(inputs, ",");
    json_add_field(inputs, "name", name);
    json_add_number(inputs, "tokens", tokens);
    json_add_number(inputs, "documents", documents);
}

void lineage_add(Buffer *inputs, const Dataset *from) {
    char command[32];
    const char *params = from->params;
    begin_input(inputs, from->name, from->tokens[SPLIT_TRAIN] + from->tokens[SPLIT_VAL],
                from->documents[SPLIT_TRAIN] + from->documents[SPLIT_VAL]);
    if (from->history) {
        const size_t size = strlen(from->history);
        buffer_print(inputs, ",");
        buffer_add(inputs, from->history + 1, size - 1);
        if (inputs->size <= HISTORY_BYTES_MAX) return;
        log_warn("the history of '%s' is left out, as those of the inputs are longer than 1 MiB together", from->path);
        inputs->size -= size;
    } else if (!strncmp(params, "frame_tokens=", strlen("frame_tokens="))) {
        add_command(inputs, "tokenize", params);
    } else { // without a history only the last command is known
        const size_t size = strcspn(params, ";");
        snprintf(command, sizeof command, "%.*s", (int)size, params);
        add_command(inputs, command, params + size);
    }
    buffer_print(inputs, "}");
}

void lineage_add_shard(Buffer *inputs, const char *path, const ShardFile *from) {
    const char *slash = strrchr(path, '/');
    begin_input(inputs, slash ? slash + 1 : path, from->tokens, from->documents);
    buffer_print(inputs, "}");
}

void lineage_add_run(Buffer *inputs, const char *command, const char *settings, uint64_t tokens, uint64_t documents) {
    begin_input(inputs, "", tokens, documents);
    add_command(inputs, command, settings);
    buffer_print(inputs, "}");
}

void lineage_make(Buffer *history, const char *command, const char *settings, const Buffer *inputs) {
    add_command(history, command, settings);
    if (inputs && inputs->size) {
        json_add_key(history, "from");
        buffer_print(history, "[%.*s]", (int)inputs->size, (const char *)inputs->data);
    }
    buffer_print(history, "}");
    buffer_add(history, "", 1);
}

static json_t *read_history(const char *history) {
    json_error_t error;
    json_t *read = history ? json_parse(bytes_of_text(history), 0, &error) : NULL;
    return json_is_object(read) ? read : (json_decref(read), NULL);
}

bool lineage_is_plain(const Dataset *dataset) {
    json_t *history = read_history(dataset->history);
    const bool has_inputs = json_object_get(history, "from");
    json_decref(history);
    return !has_inputs;
}

static const char *text_of(const json_t *node, const char *key) {
    const char *text = json_string_value(json_object_get(node, key));
    return text ? text : "";
}

static void print_node(const json_t *node, double share, unsigned depth, const char *indent, Buffer *out) {
    const size_t before = out->size;
    const char *name = text_of(node, "name"), *command = text_of(node, "command"),
               *settings = text_of(node, "settings");
    double all = 0;
    size_t i;
    const json_t *input;
    if (depth) buffer_print(out, "%.1f %% ", share);
    if (*name) buffer_print(out, "%s: ", name);
    buffer_print(out, "%s%s%s", *command ? command : "not known", *settings ? " " : "", settings);
    text_printable((char *)out->data + before);
    buffer_print(out, "\n");
    const json_t *from = json_object_get(node, "from");
    json_array_foreach(from, i, input) all += json_number_value(json_object_get(input, "tokens"));
    json_array_foreach(from, i, input) {
        if (depth == DEPTH_MAX) return;
        buffer_print(out, "%s%*s", indent, 2 * (int)depth + 2, "");
        print_node(input, all > 0 ? 100 * json_number_value(json_object_get(input, "tokens")) / all : 0, depth + 1,
                   indent, out);
    }
}

void lineage_print(const Dataset *dataset, const char *indent, Buffer *out) {
    json_t *history = read_history(dataset->history);
    if (history) print_node(history, 100, 0, indent, out);
    json_decref(history);
}
