// The targets that count with loss_tokens = answers: a pure function of the ids of a row.
//
// A row x[0..T] is read from its beginning, where no target counts. After <|assistant|> targets count, after
// <|system|>, <|user|> and <|end|> they do not. After the end of a text they do, unless a role's marker or another end
// of a text follows: a plain document counts whole, with its end. So the texts of the assistant count, with their
// <|end|>. If a conversation began before the row, nothing counts until its next marker in the row.
#pragma once

#include "common/turns.h"
#include <stddef.h>

// Sets counted (B,T): 1 if the target x[t+1] of a row counts, else 0; `ids` (B,T+1) of id_bytes each. Returns their
// number.
uint64_t answers_count(const TurnIds *turns, uint32_t end_of_text, const void *ids, unsigned id_bytes, size_t B,
                       size_t T, uint8_t *counted);
