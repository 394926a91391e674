// Which targets count.
#include "trainer/model/answers.h"
#include "common/id_array.h"

static bool is_role(const TurnIds *turns, uint32_t id) {
    return id == turns->ids[TURN_SYSTEM] || id == turns->ids[TURN_USER] || id == turns->ids[TURN_ASSISTANT];
}

uint64_t answers_count(const TurnIds *turns, uint32_t end_of_text, const void *ids, unsigned id_bytes, size_t B,
                       size_t T, uint8_t *counted) {
    uint64_t count = 0;
    for (size_t b = 0; b < B; b++) {
        bool on = false;
        for (size_t t = 0; t < T; t++) {
            const size_t at = b * (T + 1) + t;
            const uint32_t id = id_at(ids, at, id_bytes), next = id_at(ids, at + 1, id_bytes);
            if (id == end_of_text)
                on = next != end_of_text && !is_role(turns, next);
            else if (id == turns->ids[TURN_END] || is_role(turns, id))
                on = id == turns->ids[TURN_ASSISTANT];
            *counted++ = on;
            count += on;
        }
    }
    return count;
}
