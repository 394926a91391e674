// Signatures of requests to S3.
#include "remote/s3_sign.h"
#include "common/hash.h"
#include <stdio.h>

typedef struct {
    uint8_t bytes[32];
} Mac;

static Mac mac_text(const void *key, size_t size, const char *text) {
    Mac mac;
    hmac_sha256(key, size, text, strlen(text), mac.bytes);
    return mac;
}

// The parts of an URL as spans of it.
static bool split_url(const char *url, Bytes *host, Bytes *path, Bytes *query) {
    const char *begin = strstr(url, "://");
    if (!begin) return false;
    begin += 3;
    const size_t host_size = strcspn(begin, "/?#"), path_size = strcspn(begin + host_size, "?#");
    const char *mark = begin + host_size + path_size;
    *host = (Bytes){(const uint8_t *)begin, host_size};
    *path = (Bytes){(const uint8_t *)begin + host_size, path_size};
    *query = (Bytes){(const uint8_t *)mark + (*mark == '?'), *mark == '?' ? strcspn(mark + 1, "#") : 0};
    return true;
}

// host:port, without the port that belongs to the scheme: so clients send it.
static bool set_host(char out[256], const char *url, Bytes host) {
    const char *usual = !strncmp(url, "https:", 6) ? ":443" : ":80";
    const size_t size = strlen(usual);
    if (host.size > size && !memcmp(host.data + host.size - size, usual, size)) host.size -= size;
    return snprintf(out, 256, "%.*s", (int)host.size, (const char *)host.data) < 256;
}

static void print_request(Buffer *request, const S3Keys *keys, const S3Signature *signature, Bytes path, Bytes query) {
    buffer_print(request, "GET\n%.*s\n%.*s\n", path.size ? (int)path.size : 1,
                 path.size ? (const char *)path.data : "/", (int)query.size, (const char *)query.data);
    buffer_print(request, "host:%s\nx-amz-content-sha256:" S3_EMPTY_SHA256 "\nx-amz-date:%s\n", signature->host,
                 signature->date);
    if (keys->session) buffer_print(request, "x-amz-security-token:%s\n", keys->session);
    buffer_print(request, "\nhost;x-amz-content-sha256;x-amz-date%s\n" S3_EMPTY_SHA256,
                 keys->session ? ";x-amz-security-token" : "");
}

static Mac signing_key(const S3Keys *keys, const char *day) {
    Buffer secret = {0};
    buffer_print(&secret, "AWS4%s", keys->secret);
    Mac mac = mac_text(secret.data, secret.size, day);
    memset(secret.data, 0, secret.size);
    buffer_close(&secret);
    mac = mac_text(mac.bytes, sizeof mac.bytes, keys->region);
    mac = mac_text(mac.bytes, sizeof mac.bytes, "s3");
    return mac_text(mac.bytes, sizeof mac.bytes, "aws4_request");
}

bool s3_sign(S3Signature *signature, const S3Keys *keys, const char *url, time_t now) {
    Bytes host, path, query;
    struct tm utc;
    char day[9], hex[65];
    uint8_t hash[32];
    *signature = (S3Signature){0};
    if (!split_url(url, &host, &path, &query) || !set_host(signature->host, url, host)) return false;
    gmtime_r(&now, &utc);
    strftime(signature->date, sizeof signature->date, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(day, sizeof day, "%.8s", signature->date);

    Buffer request = {0}, text = {0};
    print_request(&request, keys, signature, path, query);
    sha256(request.data, request.size, hash);
    hex_encode(hex, hash, sizeof hash);
    buffer_print(&text, "AWS4-HMAC-SHA256\n%s\n%s/%s/s3/aws4_request\n%s", signature->date, day, keys->region, hex);
    buffer_add(&text, "", 1);
    const Mac key = signing_key(keys, day), mac = mac_text(key.bytes, sizeof key.bytes, (const char *)text.data);
    hex_encode(hex, mac.bytes, sizeof mac.bytes);
    buffer_print(&signature->authorization,
                 "AWS4-HMAC-SHA256 Credential=%s/%s/%s/s3/aws4_request, "
                 "SignedHeaders=host;x-amz-content-sha256;x-amz-date%s, Signature=%s",
                 keys->key, day, keys->region, keys->session ? ";x-amz-security-token" : "", hex);
    buffer_add(&signature->authorization, "", 1);
    buffer_close(&request);
    buffer_close(&text);
    return true;
}

void s3_signature_close(S3Signature *signature) { buffer_close(&signature->authorization); }
