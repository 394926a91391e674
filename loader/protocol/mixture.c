// The rule of mixture.h.
#include "loader/protocol/mixture.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/search.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// floor(p * w / v)
static uint64_t share(uint64_t p, uint32_t w, uint32_t v) { return (uint64_t)((unsigned __int128)p * w / v); }

static int scale(unsigned count, const uint32_t *weights, uint32_t *scaled) {
    uint64_t total = 0, sum = 0, remainder[MIXTURE_SOURCES_MAX];
    for (unsigned i = 0; i < count; i++) total += weights[i];
    if (!total) return fail(EX_USAGE, "the weights of a mixture are all 0");
    for (unsigned i = 0; i < count; i++) {
        uint64_t product = (uint64_t)MIXTURE_SUM * weights[i];
        scaled[i] = (uint32_t)(product / total), remainder[i] = product % total;
        sum += scaled[i];
    }
    for (; sum < MIXTURE_SUM; sum++) {
        unsigned largest = 0;
        for (unsigned i = 1; i < count; i++)
            if (remainder[i] > remainder[largest]) largest = i;
        scaled[largest]++, remainder[largest] = 0;
    }
    for (unsigned i = 0; i < count; i++)
        if (weights[i] && !scaled[i])
            return fail(EX_USAGE, "weight %u of source %u is below 1 in %d of all weights", weights[i], i + 1,
                        MIXTURE_SUM);
    return 0;
}

// The number of samples of each source among the first `samples` of an entry, added to `base`.
static void add_counts(const MixtureEntry *entry, unsigned count, uint64_t samples, uint64_t *base) {
    uint32_t left = MIXTURE_SUM;
    for (unsigned i = 0; i < count && left; i++) {
        uint64_t own = share(samples, entry->weights[i], left);
        base[i] = entry->base[i] + own;
        samples -= own, left -= entry->weights[i];
    }
}

// F[0], and F[k] of F[k-1].
static void hash_sources(const MixtureEntry *entry, unsigned count, const uint8_t (*fingerprints)[32],
                         const char *first_line, uint8_t fingerprint[32]) {
    Sha256 hash;
    sha256_open(&hash);
    sha256_add(&hash, first_line, strlen(first_line));
    for (unsigned i = 0; i < count; i++) {
        char hex[65], line[96];
        hex_encode(hex, fingerprints[i], 32);
        sha256_add(&hash, line, (size_t)snprintf(line, sizeof line, "%s %u\n", hex, entry->weights[i]));
    }
    sha256_close(&hash, fingerprint);
}
static void hash_entry(const MixtureEntry *entry, unsigned count, const uint8_t last[32], uint8_t fingerprint[32]) {
    char hex[65], text[96];
    hex_encode(hex, last, 32);
    Sha256 hash;
    sha256_open(&hash);
    sha256_add(&hash, text, (size_t)snprintf(text, sizeof text, "%s %" PRIu64, hex, entry->from));
    for (unsigned i = 0; i < count; i++)
        sha256_add(&hash, text, (size_t)snprintf(text, sizeof text, " %u", entry->weights[i]));
    sha256_add(&hash, "\n", 1);
    sha256_close(&hash, fingerprint);
}

// The entry after the last one, with weights; it does not count yet. NULL after fail().
static MixtureEntry *next_entry(Mixture *mixture, const uint32_t *weights) {
    mixture->entries = array_grow(mixture->entries, mixture->entry_count, sizeof *mixture->entries);
    MixtureEntry *entry = &mixture->entries[mixture->entry_count];
    memset(entry, 0, sizeof *entry);
    memcpy(entry->given, weights, mixture->source_count * sizeof *weights);
    return scale(mixture->source_count, weights, entry->weights) < 0 ? NULL : entry;
}

int mixture_init(Mixture *mixture, unsigned count, const uint8_t (*fingerprints)[32], const uint32_t *weights) {
    *mixture = (Mixture){.source_count = count};
    MixtureEntry *entry = next_entry(mixture, weights);
    if (!entry) return -1;
    mixture->entry_count = 1;
    hash_sources(entry, count, fingerprints, "mixture of streams\n", entry->fingerprint);
    hash_sources(entry, count, fingerprints, "mixture\n", entry->shared);
    return 0;
}

int mixture_add(Mixture *mixture, uint64_t from, const uint32_t *weights) {
    unsigned count = mixture->source_count, number = mixture->entry_count;
    if (number == MIXTURE_ENTRIES_MAX)
        return fail(EX_USAGE, "more than %d changes of weights", MIXTURE_ENTRIES_MAX - 1);
    const uint64_t last_from = mixture->entries[number - 1].from;
    if (from <= last_from)
        return fail(EX_USAGE, "the weights from sample %" PRIu64 " do not come after those from sample %" PRIu64, from,
                    last_from);
    MixtureEntry *entry = next_entry(mixture, weights);
    if (!entry) return -1;
    const MixtureEntry *last = entry - 1;
    entry->from = from;
    memcpy(entry->base, last->base, sizeof entry->base);
    add_counts(last, count, from - last->from, entry->base);
    hash_entry(entry, count, last->fingerprint, entry->fingerprint);
    hash_entry(entry, count, last->shared, entry->shared);
    mixture->entry_count++;
    return 0;
}

int mixture_read_schedule(Mixture *mixture, const char *path) {
    enum { SCHEDULE_MAX = 16 << 20 };
    Buffer text = {0};
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return fail(EX_NOINPUT, "'%s' does not exist: create it empty first: touch %s", path, path);
    int status = file_read(&text, path, SCHEDULE_MAX), number = 1;
    buffer_add(&text, "", 1);
    for (char *line = (char *)text.data, *end; status == 0 && *line; line = end, number++) {
        uint32_t weights[MIXTURE_SOURCES_MAX];
        unsigned count = 0;
        char *at;
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        line[strcspn(line, "#")] = 0;
        errno = 0;
        uint64_t from = strtoull(line, &at, 10);
        if (at == line && !line[strspn(line, " \t\r")]) continue;
        bool valid = at != line && !strchr(line, '-') && !errno;
        while (valid && at[strspn(at, " \t\r")]) {
            char *next;
            unsigned long weight = strtoul(at, &next, 10);
            valid = next != at && weight <= WEIGHT_MAX && count < MIXTURE_SOURCES_MAX;
            if (valid) weights[count++] = (uint32_t)weight;
            at = next;
        }
        if (!valid || count != mixture->source_count)
            status = fail(EX_USAGE, "'%s' line %d is not a sample number and %u weights", path, number,
                          mixture->source_count);
        else if (mixture_add(mixture, from, weights) < 0)
            status = fail_in("'%s' line %d", path, number);
    }
    buffer_close(&text);
    return status;
}

const uint8_t *mixture_fingerprint(const Mixture *mixture) {
    return mixture->entries[mixture->entry_count - 1].fingerprint;
}

const MixtureEntry *mixture_entry(const Mixture *mixture, uint64_t sample) {
    return &mixture
                ->entries[floor_index(&mixture->entries->from, sizeof *mixture->entries, mixture->entry_count, sample)];
}

MixtureSample mixture_at(const Mixture *mixture, uint64_t sample) {
    const MixtureEntry *entry = mixture_entry(mixture, sample);
    uint64_t p = sample - entry->from;
    uint32_t left = MIXTURE_SUM;
    for (unsigned i = 0;; i++) {
        uint32_t weight = entry->weights[i];
        uint64_t own = share(p, weight, left);
        if (share(p + 1, weight, left) > own) return (MixtureSample){i, entry->base[i] + own};
        p -= own, left -= weight;
    }
}

uint64_t mixture_same_samples(const Mixture *mixture, const uint8_t fp8[8]) {
    for (unsigned i = 0; i < mixture->entry_count; i++)
        if (!memcmp(mixture->entries[i].fingerprint, fp8, 8))
            return i + 1 == mixture->entry_count ? UINT64_MAX : mixture->entries[i + 1].from;
    return 0;
}

bool mixture_shared_streams(const Mixture *mixture, const uint8_t *fingerprint, size_t size) {
    for (unsigned i = 0; i < mixture->entry_count; i++)
        if (!memcmp(mixture->entries[i].shared, fingerprint, size)) return true;
    return false;
}

void mixture_close(Mixture *mixture) {
    free(mixture->entries);
    *mixture = (Mixture){0};
}

int weight_parse(const char *text, uint32_t *weight) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value > WEIGHT_MAX)
        return fail(EX_USAGE, "'%s': a weight is a whole number up to %d: 3 and 7 for 0.3 and 0.7", text, WEIGHT_MAX);
    *weight = (uint32_t)value;
    return 0;
}

// Whether what follows a colon is a number of any form, of which a weight has one: 3, -3, 0.3, 1e-9, 1/3.
static bool is_number(const char *text) {
    char *end;
    strtod(text, &end);
    if (end > text && *end == '/') text = end + 1, strtod(text, &end);
    return end > text && !*end && text[strspn(text, "-+.eE0123456789")] == 0;
}

int weight_cut(char *word, uint32_t *weight) {
    char *colon = strrchr(word, ':');
    *weight = 1;
    if (!colon || !is_number(colon + 1) || access(word, F_OK) == 0) return 0;
    if (strchr(colon, '/') && strstr(word, "://")) return 0; // http://HOST:PORT/1
    *colon = 0;
    return weight_parse(colon + 1, weight) < 0 ? fail_in("'%s'", word) : 0;
}
