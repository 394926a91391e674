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

// What a name may have beside the words of a row: of the maker, and, as in "NVIDIA H100 80GB HBM3", of the form of the
// board. 480 GB is the memory beside the processor of a GH200.
static const char *const makers[] = {"nvidia", "geforce", "tesla", "rtx", "gtx", NULL};
static const char *const forms[] = {"generation", "gpu",   "pcie", "sxm5",  "sxm4", "sxm3",  "sxm2",
                                    "sxm",        "hbm3e", "hbm3", "hbm2e", "hbm2", "480gb", NULL};

// A name in lower case, with spaces for all but letters and digits.
static void lower_name(char lower[NAME_BYTES], const char *name) {
    snprintf(lower, NAME_BYTES, "%s", name);
    for (char *at = lower; *at; at++) *at = isalnum((unsigned char)*at) ? (char)tolower((unsigned char)*at) : ' ';
}

// Blanks a word where it is first found.
static bool take(char *name, const char *word) {
    char *at = strstr(name, word);
    if (at) memset(at, ' ', strlen(word));
    return at;
}

static bool is_one_of(const char *word, const char *const *words) {
    while (*words && strcmp(*words, word)) words++;
    return *words;
}

// Blanks the size that the card is sold with, as 12gb or 12 gb: of 12 GiB CUDA states 11.7.
static void take_size(char *name, const GpuCard *card) {
    char *digits = name + strcspn(name, "0123456789"), *end;
    const double size = strtod(digits, &end), stated = (double)card->memory_bytes / 0x1p30;
    end += strspn(end, " ");
    if (!strncmp(end, "gb", 2) && size >= stated && size < 1.12 * stated)
        memset(digits, ' ', (size_t)(end + 2 - digits));
}

// Whether a name has all words of the row but the maker's, and nothing else. Spaces between them do not matter.
static bool is_card(const GpuCard *card, const char *name) {
    char own[NAME_BYTES], rest[NAME_BYTES], *words = own, *word;
    lower_name(own, card->name), lower_name(rest, name);
    while ((word = strsep(&words, " ")))
        if (!take(rest, word) && !is_one_of(word, makers)) return false;
    for (const char *const *maker = makers; *maker; maker++) take(rest, *maker);
    for (const char *const *form = forms; *form; form++) take(rest, *form);
    take_size(rest, card);
    return !rest[strspn(rest, " ")];
}

// The letters and digits of a name, in lower case, without the maker's words.
static void plain_name(char plain[NAME_BYTES], const char *name) {
    char lower[NAME_BYTES];
    lower_name(lower, name);
    for (const char *const *maker = makers; *maker; maker++) take(lower, *maker);
    for (const char *at = lower; *at; at++)
        if (*at != ' ') *plain++ = *at;
    *plain = 0;
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

// Writes the cards of this name that have another size of memory.
static void add_sizes(Buffer *out, const GpuCard *card) {
    const size_t length = strcspn(card->name, ",");
    for (int i = 0; i < CARDS; i++) {
        const char *other = cards[i].name;
        if (!strncmp(other, card->name, length) && other[length] == ' ' && isdigit((unsigned char)other[length + 1]))
            buffer_print(out, ", another size: --card \"%.*s\"", (int)strcspn(other, ","), other);
    }
    buffer_print(out, "\n");
}

int gpu_card_find(const GpuCard **card, const char *name) {
    char plain[NAME_BYTES], number[NAME_BYTES];
    plain_name(plain, name);
    for (int i = 0; i < CARDS; i++)
        if (is_card(&cards[i], name)) return *card = &cards[i], 0;
    // Names that contain this one, else those with its first number of two digits, which are all if it has none.
    const char *digits = name, *all = "0123456789";
    while (*(digits += strcspn(digits, all)) && strspn(digits, all) < 2) digits++;
    snprintf(number, sizeof number, "%.*s", (int)strspn(digits, all), digits);
    Buffer names = {0};
    if (!add_names(&names, plain) && !add_names(&names, number)) add_names(&names, "");
    fail(EX_USAGE,
         "'%s' names no card that is known; near it: %s; without --card, --device=cuda --mem_limit=SIZE plans for the "
         "memory of any",
         name, (const char *)names.data);
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
    buffer_print(out, "memory     %zu bytes, %s (%s)", gpu.memory_bytes, human_bytes(bytes, (double)gpu.memory_bytes),
                 card->memory_source);
    add_sizes(out, card);
    buffer_print(out,
                 "context    %d bytes, %s, with libraries (measured on an H200, others are expected to take less)\n",
                 GPU_CONTEXT, human_bytes(bytes, GPU_CONTEXT));
    buffer_print(out, "reserve    %d bytes, %s, for code that is loaded later\n", GPU_RESERVED,
                 human_bytes(bytes, GPU_RESERVED));
    buffer_print(out, "arena      at most %zu bytes, %s\n\n", gpu.free_bytes,
                 human_bytes(bytes, (double)gpu.free_bytes));
}
