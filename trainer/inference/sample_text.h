// Text from a network.
#pragma once

#include "common/bytes.h"
#include "tokenizer/tokenizer.h"
#include "trainer/model/sample.h"

// Passes `start` and its continuation by up to `tokens` tokens to `emit`. The name of the token that ends a document,
// as <|endoftext|>, is that token in `start`, and an empty `start` begins with it. Each piece is emitted as soon as no later token can change it: it ends with a whole
// UTF-8 character. Bytes of the model that are not UTF-8 become U+FFFD, as with nanoGPT and transformers; those of `start`
// are passed as they are. The text ends before `stop` ("": it does not end there),
// which is not emitted. The vocabulary is that of the model (vocabulary.h). -1 after fail().
int sample_text(Network *network, const Vocab *vocab, const Sampler *sampler, Bytes start, uint64_t tokens,
                const char *stop, void (*emit)(void *context, Bytes text), void *context);
