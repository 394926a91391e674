// Documents of the API of a hub.
#include "remote/hub_listing.h"
#include "tests/test.h"

#define HASH "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"

TEST(a_page_of_a_hub_gives_paths_sizes_and_the_hashes_of_files_in_lfs) {
    HubTree tree;
    CHECK_EQUAL(
        hub_tree_parse(
            &tree, bytes_of_text("[{\"type\":\"directory\",\"path\":\"a\"},"
                                 "{\"type\":\"file\",\"path\":\"a/\\u00e9\",\"size\":7,\"lfs\":{\"oid\":\"" HASH "\"}},"
                                 "{\"type\":\"file\",\"path\":\"b\",\"size\":0,\"lfs\":null}]")),
        0);
    CHECK_EQUAL(tree.count, 2);
    CHECK(!strcmp(tree.files[0].path, "a/\xc3\xa9") && !strcmp(tree.files[0].sha256, HASH));
    CHECK_EQUAL(tree.files[0].size, 7);
    CHECK(!strcmp(tree.files[1].path, "b") && !tree.files[1].sha256);
    hub_tree_close(&tree);
}

TEST(a_malformed_page_of_a_hub_is_refused) {
    static const char *const texts[] = {"",
                                        "{}",
                                        "[1]",
                                        "[{\"type\":\"link\",\"path\":\"a\",\"size\":1}]",
                                        "[{\"type\":\"file\",\"size\":1}]",
                                        "[{\"type\":\"file\",\"path\":\"\",\"size\":1}]",
                                        "[{\"type\":\"file\",\"path\":\"a\\u0000b\",\"size\":1}]",
                                        "[{\"type\":\"file\",\"path\":\"a\",\"size\":-1}]",
                                        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1.5}]",
                                        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"lfs\":{}}]",
                                        "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"lfs\":{\"oid\":\"0f\"}}]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        HubTree tree;
        CHECK_EQUAL(hub_tree_parse(&tree, bytes_of_text(texts[i])), -1);
        CHECK_ERROR(EX_DATA, "hub");
        hub_tree_close(&tree);
    }
}

TEST(the_commit_of_a_revision_has_forty_digits) {
    char commit[HUB_COMMIT_DIGITS + 1];
    CHECK_EQUAL(hub_commit_parse(commit, bytes_of_text("{\"sha\":\"0123456789abcdef0123456789abcdef01234567\"}")), 0);
    CHECK(!strcmp(commit, "0123456789abcdef0123456789abcdef01234567"));
    CHECK_EQUAL(hub_commit_parse(commit, bytes_of_text("{\"sha\":\"main\"}")), -1);
    CHECK_ERROR(EX_DATA, "commit");
}
