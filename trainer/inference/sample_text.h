// Text from a network, and conversations with it.
#pragma once

#include "common/bytes.h"
#include "tokenizer/tokenizer.h"
#include "trainer/model/sample.h"
#include <stdio.h>

// Passes `start` and its continuation by up to `tokens` tokens to `emit`. The name of the token that ends a document,
// as <|endoftext|>, is that token in `start`, and an empty `start` begins with it. Each piece is emitted as soon as no
// later token can change it: it ends with a whole UTF-8 character. Bytes of the model that are not UTF-8 become U+FFFD,
// as with nanoGPT and transformers; bytes of `start` are passed as they are. The text ends before `stop` ("": it does
// not end there), which is not emitted, where `emit` is false, and at a request to stop (common/machine/stop.h). The
// vocabulary is the model's (vocabulary.h). -1 after fail().
int sample_text(Network *network, const Vocab *vocab, const Sampler *sampler, Bytes start, uint64_t tokens,
                const char *stop, bool (*emit)(void *context, Bytes text), void *context);

// Reads lines of `in`, each a message of a user, and passes the answer of the model to `emit`, with a line end after
// it. An answer ends at <|end|>, at the marker of a role, which is not emitted, or after `tokens` tokens. A line
// "/clear" forgets all messages. If they leave less of a block than `tokens` and than 1 / SAMPLE_ANSWER_SHARE of it,
// the oldest pairs of messages are forgotten, with one warning; the answer may use all that is left. A message that
// does not fit alone is refused with a warning. Ends with the input. `before` (may be NULL) is called before each line.
// -1 after fail().
enum { SAMPLE_ANSWER_SHARE = 4 };
int sample_turns(Network *network, const Vocab *vocab, const Sampler *sampler, uint64_t tokens, FILE *in,
                 void (*before)(void), bool (*emit)(void *context, Bytes text), void *context);
