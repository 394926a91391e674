// Commands, options, keys and words of keys that went (successors.def), for a message that names their successor.
#pragma once

typedef enum { SUCCESSOR_COMMAND, SUCCESSOR_OPTION, SUCCESSOR_KEY, SUCCESSOR_WORD } SuccessorKind;

// -1 after fail() (2), which names the successor, if `old` is a word that went from `program`; else 0. `scope` is the
// command of an option, the key of a word, and "" for others. '-' and '_' are equal in names of options.
int successor_check(SuccessorKind kind, const char *program, const char *scope, const char *old);
