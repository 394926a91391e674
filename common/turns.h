// The markers of conversations: special tokens of which three begin a message by its role and one ends it. No text has
// their ids, so that a text in which a marker is spelled stays text.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define TURN_MARKERS(M)       M(SYSTEM, "system") M(USER, "user") M(ASSISTANT, "assistant") M(END, "end") // spelled <|NAME|>
#define TURN_ENUM(NAME, name) TURN_##NAME,
typedef enum { TURN_MARKERS(TURN_ENUM) TURN_COUNT } Turn;

// Their ids in a vocabulary (vocab_turns in vocab.h).
typedef struct {
    bool known; // it has all of them
    uint32_t ids[TURN_COUNT];
} TurnIds;

// A conversation as bytes, on its way from a reader to the encoder: its texts are UTF-8, in which no byte is above
// 0xF4, and each marker is one of these bytes.
enum { TURN_BYTE = 0xF8 }; // + Turn
static inline bool is_turn_byte(uint8_t byte) { return byte >= TURN_BYTE; }
