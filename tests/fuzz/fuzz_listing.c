// Any bytes as what names files or keys: the first byte chooses a page of a listing of S3 or of a
// hub, a file of profiles of AWS, or the commit of a hub.
#include "remote/aws_profile.h"
#include "remote/hub_listing.h"
#include "remote/s3_listing.h"
#include "tests/fuzz/fuzz.h"

static void parse_s3(Bytes text) {
    S3Listing listing;
    if (s3_listing_parse(&listing, text) == 0) {
        if (listing.next && !*listing.next) abort();
        for (size_t i = 0; i < listing.count; i++)
            if (!*listing.objects[i].key || strlen(listing.objects[i].etag) > text.size) abort();
    } else if (err_code() != EX_DATA)
        abort();
    err_clear();
    s3_listing_close(&listing);
}

static void parse_profile(Bytes text) {
    char value[PROFILE_VALUE_BYTES];
    profile_has_section(text, "default");
    if (!profile_find(text, "default", "s3", "region", value) && !profile_find(text, "default", NULL, "region", value))
        return;
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F) abort();
}

static void parse_hub(Bytes text) {
    HubTree tree;
    if (hub_tree_parse(&tree, text) == 0)
        for (size_t i = 0; i < tree.count; i++)
            if (!*tree.files[i].path || (tree.files[i].sha256 && strlen(tree.files[i].sha256) != 64)) abort();
    err_clear();
    hub_tree_close(&tree);
}

static void parse_commit(Bytes text) {
    char commit[HUB_COMMIT_DIGITS + 1];
    if (hub_commit_parse(commit, text) == 0 && !hub_is_commit(commit)) abort();
    err_clear();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const parse[])(Bytes text) = {parse_s3, parse_profile, parse_hub, parse_commit};
    if (!size) return 0;
    uint8_t *copy = malloc(size); // so that a read beyond the text is found
    if (!copy) abort();
    memcpy(copy, data + 1, size - 1);
    parse[*data % (sizeof parse / sizeof *parse)]((Bytes){copy, size - 1});
    free(copy);
    return 0;
}
