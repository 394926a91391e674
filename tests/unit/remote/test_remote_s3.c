// Signatures of the documentation of S3 ("Authenticating Requests: Using the Authorization Header"), listings, files of
// profiles.
#include "common/hash.h"
#include "remote/aws_profile.h"
#include "remote/s3.h"
#include "remote/s3_listing.h"
#include "remote/s3_sign.h"
#include "tests/test.h"

TEST(hmac_is_that_of_rfc_4231) {
    uint8_t mac[32];
    char hex[65];
    hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, mac);
    hex_encode(hex, mac, sizeof mac);
    CHECK(!strcmp(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"));
}

TEST(signatures_are_those_of_the_documentation_of_s3) {
    const S3Keys keys = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", NULL, "us-east-1"};
    static const struct {
        const char *url, *signature;
    } examples[] = {{"https://examplebucket.s3.amazonaws.com/?lifecycle=",
                     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
                    {"https://examplebucket.s3.amazonaws.com:443/?max-keys=2&prefix=J",
                     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"}};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        S3Signature signature;
        CHECK(s3_sign(&signature, &keys, examples[i].url, 1369353600)); // 2013-05-24
        CHECK(!strcmp(signature.date, "20130524T000000Z"));
        CHECK(!strcmp(signature.host, "examplebucket.s3.amazonaws.com"));
        CHECK_TEXT((const char *)signature.authorization.data, examples[i].signature);
        s3_signature_close(&signature);
    }
}

TEST(a_page_of_a_listing_gives_keys_sizes_etags_and_the_token_of_the_next_page) {
    S3Listing listing;
    CHECK_EQUAL(
        s3_listing_parse(&listing, bytes_of_text("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><!-- > -->"
                                                 "<Contents><Key>a+b%2fc&amp;</Key><Size>12</Size>"
                                                 "<ETag>&quot;0f&#34;</ETag></Contents>"
                                                 "<Contents><Size>0</Size><Key>%C3%A9</Key></Contents>"
                                                 "<IsTruncated>true</IsTruncated><Delimiter/>"
                                                 "<NextContinuationToken>t+/=</NextContinuationToken>"
                                                 "<EncodingType>url</EncodingType></ListBucketResult>\n")),
        0);
    CHECK_EQUAL(listing.count, 2);
    CHECK(!strcmp(listing.objects[0].key, "a b/c&") && !strcmp(listing.objects[0].etag, "\"0f\""));
    CHECK_EQUAL(listing.objects[0].size, 12);
    CHECK(!strcmp(listing.objects[1].key, "\xc3\xa9") && !*listing.objects[1].etag);
    CHECK(!strcmp(listing.next, "t+/="));
    s3_listing_close(&listing);
    CHECK_EQUAL(
        s3_listing_parse(&listing, bytes_of_text("<ListBucketResult><Contents><Key>a+%2f</Key><Size>1</Size></Contents>"
                                                 "</ListBucketResult>")),
        0);
    CHECK(!strcmp(listing.objects[0].key, "a+%2f") && !listing.next); // a server that does not escape
    s3_listing_close(&listing);
}

TEST(a_malformed_listing_is_refused) {
    static const char *const texts[] = {
        "",
        "<html></html>",
        "<ListBucketResult>",
        "<ListBucketResult></ListBucketResults>",
        "<ListBucketResult/><ListBucketResult/>",
        "<!DOCTYPE a><ListBucketResult/>",
        "<ListBucketResult><![CDATA[a]]></ListBucketResult>",
        "<ListBucketResult>&b;</ListBucketResult>",
        "<ListBucketResult>&#0;</ListBucketResult>",
        "<ListBucketResult><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key></Key><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>1e3</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>1234567890123456789</Size></Contents></ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%00</Key><Size>1</Size></Contents>"
        "</ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%4</Key><Size>1</Size></Contents>"
        "</ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        S3Listing listing;
        CHECK_EQUAL(s3_listing_parse(&listing, bytes_of_text(texts[i])), -1);
        CHECK_ERROR(EX_DATA, "listing");
        s3_listing_close(&listing);
    }
}

TEST(a_profile_has_the_values_of_its_section_alone) {
    const Bytes text =
        bytes_of_text("region = none\n# [default]\n[default]\r\nRegion = a b \r\n  region = nested\nx=\x01\n"
                      "[profile two] # comment\nregion=b\nregion = c");
    char value[PROFILE_VALUE_BYTES];
    CHECK(profile_find(text, "default", NULL, "region", value) && !strcmp(value, "a b"));
    CHECK(profile_find(text, "profile two", NULL, "region", value) && !strcmp(value, "c"));
    CHECK(!profile_find(text, "default", NULL, "x", value) && !profile_find(text, "two", NULL, "region", value));
    CHECK(profile_has_section(text, "profile two") && !profile_has_section(text, "two"));
}

TEST(the_bucket_is_in_the_host_where_addressing_style_is_virtual) {
    Remote remote = {.s3 = {.known = true, .endpoint = (char[]){"https://store.example:8443"}}};
    const RemoteEntry entry = {.name = "s3://bucket/a b", .query = "", .validator = ""};
    for (int in_host = 0; in_host < 2; in_host++) {
        RemoteObject object = {0};
        remote.s3.in_host = in_host;
        CHECK_EQUAL(s3_make_object(&remote, &entry, &object), 0);
        CHECK(!strcmp(object.url,
                      in_host ? "https://bucket.store.example:8443/a%20b" : "https://store.example:8443/bucket/a%20b"));
        object_close(&object);
    }
}
