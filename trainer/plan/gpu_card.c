// The table of cards, and the search for the one that a user names.
#include "trainer/plan/gpu_card.h"
#include "common/err.h"
#include "common/log.h"
#include "kernels/gpu_facts.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The share of the peak that steps reach, FLOPs counted as nanoGPT does. On an H200: 124M at B = 4, and 1558M in 8
// micro-batches (docs/gpu-results.md). Elsewhere, an estimate: from what a whole run of 124M had on an H200, with
// attention by the instructions that all cards have, to products that wait less for memory.
#define RAN       0.46, 0.60, true
#define NEVER_RAN 0.47, 0.75, false

#define SHEET     "data sheet"
#define STATED    "stated by a driver"
#define ESTIMATED "estimated"

static const GpuCard cards[] = {
#define GPU_CARD(name, tflops, source, gigabytes, processors, capability, memory, memory_source, state)                \
    {name, (tflops)*1e12, (gigabytes)*1e9, source, memory_source, processors, capability, memory, state},
#include "trainer/plan/gpu_cards.def"
};
enum { CARDS = sizeof cards / sizeof *cards, NAME_BYTES = 64 };

const GpuCard *gpu_card_of(const char *text) {
    for (int i = 0; i < CARDS; i++)
        if (strstr(text, cards[i].name)) return &cards[i];
    return NULL;
}

// The letters and digits of a name, in lower case, without the words that all names may begin with.
static void plain_name(char plain[NAME_BYTES], const char *name) {
    static const char *const makers[] = {"nvidia", "geforce", "tesla"};
    size_t length = 0;
    for (; *name && length < NAME_BYTES - 1; name++)
        if (isalnum((unsigned char)*name)) plain[length++] = (char)tolower((unsigned char)*name);
    plain[length] = 0;
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (!strncmp(plain, makers[i], strlen(makers[i]))) memmove(plain, plain + strlen(makers[i]), strlen(plain) + 1);
}

// Whether a plain name is the card's, or has behind it the size that the card is sold with, as 12gb: of 12 GiB CUDA
// states 11.7.
static bool is_card(const GpuCard *card, const char *plain) {
    char own[NAME_BYTES], *end;
    plain_name(own, card->name);
    if (strncmp(plain, own, strlen(own)) != 0) return false;
    const char *rest = plain + strlen(own);
    const double size = strtod(rest, &end), stated = (double)card->memory_bytes / 0x1p30;
    return !*rest || (!strcmp(end, "gb") && size >= stated && size < 1.12 * stated);
}

// Writes the names that contain a text. Returns how many there are.
static int add_names(Buffer *out, const char *text) {
    int count = 0;
    for (int i = 0; i < CARDS; i++) {
        char own[NAME_BYTES];
        plain_name(own, cards[i].name);
        if (!strstr(own, text)) continue;
        buffer_print(out, "%s%.*s", count++ ? ", " : "", (int)strcspn(cards[i].name, ","), cards[i].name);
    }
    return count;
}

int gpu_card_find(const GpuCard **card, const char *name) {
    char plain[NAME_BYTES], number[NAME_BYTES];
    plain_name(plain, name);
    for (int i = 0; i < CARDS && *plain; i++)
        if (is_card(&cards[i], plain)) return *card = &cards[i], 0;
    // Names that contain this one, else those with its first number, which are all if it has none.
    const char *digits = name + strcspn(name, "0123456789");
    snprintf(number, sizeof number, "%.*s", (int)strspn(digits, "0123456789"), digits);
    Buffer names = {0};
    if (!add_names(&names, plain) && !add_names(&names, number)) add_names(&names, "");
    fail(EX_USAGE, "'%s' names no card that is known; near it: %s", name, (const char *)names.data);
    buffer_close(&names);
    return -1;
}

GpuProperties gpu_card_properties(const GpuCard *card, char text[GPU_CARD_TEXT]) {
    snprintf(text, GPU_CARD_TEXT, "%.*s, compute capability %d.%d, %d multiprocessors", (int)strcspn(card->name, ","),
             card->name, card->capability / 10, card->capability % 10, card->multiprocessors);
    return (GpuProperties){.card = text,
                           .capability = card->capability,
                           .memory_bytes = card->memory_bytes,
                           .free_bytes = card->memory_bytes - GPU_CONTEXT - GPU_RESERVED};
}

void gpu_card_print(const GpuCard *card, Buffer *out) {
    char text[GPU_CARD_TEXT], bytes[16];
    const GpuProperties gpu = gpu_card_properties(card, text);
    buffer_print(out, "card       %s, %.0f GB/s (data sheet)\n", text, card->bytes * 1e-9);
    buffer_print(out, "products   %.0f TFLOP/s, of 16 bits with sums of 32 (%s)\n", card->flops * 1e-12,
                 card->flops_source);
    buffer_print(out, "memory     %zu bytes, %s (%s)\n", gpu.memory_bytes, human_bytes(bytes, (double)gpu.memory_bytes),
                 card->memory_source);
    buffer_print(out,
                 "context    %d bytes, %s, with libraries (measured on an H200, others are expected to take less)\n",
                 GPU_CONTEXT, human_bytes(bytes, GPU_CONTEXT));
    buffer_print(out, "reserve    %d bytes, %s, for code that is loaded later\n", GPU_RESERVED,
                 human_bytes(bytes, GPU_RESERVED));
    buffer_print(out, "arena      at most %zu bytes, %s\n\n", gpu.free_bytes,
                 human_bytes(bytes, (double)gpu.free_bytes));
}
