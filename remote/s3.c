// s3:// URLs: settings, requests and listings.
#include "remote/s3.h"
#include "common/file/file.h"
#include "remote/aws_profile.h"
#include "remote/s3_listing.h"
#include "remote/transfer_request.h"
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

enum { PROFILE_BYTES_MAX = 1 << 20, PAGES_MAX = 100000, BUCKET_BYTES_MAX = 255 };

static char *copy(const char *text) { return text ? allocate_text(text, strlen(text)) : NULL; }

// The file that a variable names, else the one of the user; an empty text if there is no file.
static int read_profiles(Buffer *text, const char *named_by, const char *usual) {
    char path[PATH_MAX_BYTES];
    const char *named = remote_variable(named_by), *home = remote_variable("HOME");
    if (!named && !home) return 0;
    if (snprintf(path, sizeof path, "%s%s", named ? named : home, named ? "" : usual) >= (int)sizeof path)
        return fail(EX_USAGE, "the path in %s is too long", named_by);
    const int fd = file_open(path);
    if (fd < 0 && !named) return 0;
    if (fd < 0) return fail_errno("cannot open '%s'", path);
    close(fd);
    return file_read_stream(text, path, PROFILE_BYTES_MAX);
}

// Whether no endpoint is taken from the environment or the file, as of a service of AWS itself.
static bool ignores_endpoints(Bytes config, const char *section) {
    char value[PROFILE_VALUE_BYTES];
    const char *variable = remote_variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    if (variable) return !strcasecmp(variable, "true");
    return profile_find(config, section, NULL, "ignore_configured_endpoint_urls", value) && !strcasecmp(value, "true");
}

static int take_profile(Remote *remote, Bytes credentials, Bytes config) {
    char value[PROFILE_VALUE_BYTES], section[300];
    const char *profile = remote_variable("AWS_PROFILE");
    const bool is_default = !profile || !strcmp(profile, "default");
    snprintf(section, sizeof section, "%s%.250s", is_default ? "" : "profile ", profile ? profile : "default");
    if (profile && !remote->s3.key && !profile_has_section(credentials, profile) &&
        !profile_has_section(config, section))
        return fail(EX_USAGE, "no profile '%.60s' of AWS_PROFILE in ~/.aws/credentials", profile);
    const struct {
        const char *key;
        char **to;
    } keys[] = {{"aws_access_key_id", &remote->s3.key},
                {"aws_secret_access_key", &remote->s3.secret},
                {"aws_session_token", &remote->s3.session}};
    const bool has_keys = remote->s3.key;
    for (size_t i = 0; !has_keys && i < sizeof keys / sizeof *keys; i++)
        if (profile_find(credentials, profile ? profile : "default", NULL, keys[i].key, value) ||
            profile_find(config, section, NULL, keys[i].key, value))
            *keys[i].to = copy(value);
    if (profile && !remote->s3.key)
        return fail(EX_USAGE,
                    "the profile '%.60s' has no aws_access_key_id: set the variables that "
                    "`aws configure export-credentials --format env` prints",
                    profile);
    if (!remote->s3.region && profile_find(config, section, NULL, "region", value)) remote->s3.region = copy(value);
    remote->s3.in_host =
        profile_find(config, section, "s3", "addressing_style", value) && !strcasecmp(value, "virtual");
    if (remote->s3.endpoint || ignores_endpoints(config, section)) return 0;
    char services[300] = "";
    if (profile_find(config, section, NULL, "services", value))
        snprintf(services, sizeof services, "services %.250s", value);
    if ((*services && profile_find(config, services, "s3", "endpoint_url", value)) ||
        profile_find(config, section, NULL, "endpoint_url", value))
        remote->s3.endpoint = copy(value);
    return 0;
}

static bool is_plain(const char *text, const char *also) {
    for (; *text; text++)
        if (!((*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || (*text >= '0' && *text <= '9') ||
              strchr(also, *text)))
            return false;
    return true;
}

// Checks the settings that become part of a header field or a host.
static int check_settings(const Remote *remote) {
    const char *const texts[] = {remote->s3.key, remote->s3.session};
    if (remote->s3.key && !remote->s3.secret) return fail(EX_USAGE, "a key of AWS without its secret key");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (const char *at = texts[i]; at && *at; at++)
            if (*at <= ' ' || *at > '~')
                return fail(EX_USAGE, "a key or token of AWS with a space or control character");
    if (!is_plain(remote->s3.region, "-") || strlen(remote->s3.region) > 60)
        return fail(EX_USAGE, "'%.60s' is not a region of AWS", remote->s3.region);
    return 0;
}

static int load_settings(Remote *remote) {
    if (remote->s3.known) return 0;
    const char *endpoint = remote->options.s3_endpoint;
    Buffer credentials = {0}, config = {0};
    remote->s3.key = copy(remote_variable("AWS_ACCESS_KEY_ID"));
    if (remote->s3.key) {
        remote->s3.secret = copy(remote_variable("AWS_SECRET_ACCESS_KEY"));
        remote->s3.session = copy(remote_variable("AWS_SESSION_TOKEN"));
    }
    remote->s3.region =
        copy(remote_variable("AWS_REGION") ? remote_variable("AWS_REGION") : remote_variable("AWS_DEFAULT_REGION"));
    const bool ignores = ignores_endpoints((Bytes){0}, "");
    if (!endpoint && !ignores) endpoint = remote_variable("AWS_ENDPOINT_URL_S3");
    if (!endpoint && !ignores) endpoint = remote_variable("AWS_ENDPOINT_URL");
    remote->s3.endpoint = copy(endpoint);
    int status = read_profiles(&credentials, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
    if (status == 0) status = read_profiles(&config, "AWS_CONFIG_FILE", "/.aws/config");
    if (status == 0)
        status = take_profile(remote, (Bytes){credentials.data, credentials.size}, (Bytes){config.data, config.size});
    if (credentials.size) memset(credentials.data, 0, credentials.size);
    buffer_close(&credentials), buffer_close(&config);
    if (status < 0) return -1;
    if (!remote->s3.region) remote->s3.region = copy("us-east-1");
    if (check_settings(remote) < 0) return -1;
    if (!remote->s3.endpoint) {
        Buffer url = {0};
        buffer_print(&url, "https://s3.%s.amazonaws.com", remote->s3.region);
        buffer_add(&url, "", 1);
        remote->s3.endpoint = (char *)url.data;
    }
    for (size_t size = strlen(remote->s3.endpoint); size && remote->s3.endpoint[size - 1] == '/'; size--)
        remote->s3.endpoint[size - 1] = '\0';
    remote->s3.known = true;
    return remote_check_url(remote, remote->s3.endpoint, remote->s3.endpoint);
}

// Splits s3://BUCKET/KEY; the key may be empty.
static int split_name(const char *name, char bucket[BUCKET_BYTES_MAX + 1], const char **key) {
    const char *begin = name + strlen(S3_PREFIX);
    const size_t size = strcspn(begin, "/");
    if (size < 1 || size > BUCKET_BYTES_MAX) return fail(EX_USAGE, "'%s' has no name of a bucket", name);
    memcpy(bucket, begin, size);
    bucket[size] = '\0';
    *key = begin + size + (begin[size] == '/');
    if (!is_plain(bucket, "-._") || *bucket == '.')
        return fail(EX_USAGE, "'%s': '%s' is not a name of a bucket", name, bucket);
    return 0;
}

bool s3_is_folder(const char *wanted) {
    const char *slash = strchr(wanted + strlen(S3_PREFIX), '/');
    return !slash || wanted[strlen(wanted) - 1] == '/';
}

// In the path, unless addressing_style is virtual.
static void add_bucket(Buffer *url, const Remote *remote, const char *bucket) {
    const char *endpoint = remote->s3.endpoint, *host = strstr(endpoint, "://");
    if (remote->s3.in_host && host)
        buffer_print(url, "%.*s%s.%s", (int)(host + 3 - endpoint), endpoint, bucket, host + 3);
    else
        buffer_print(url, "%s/%s", endpoint, bucket);
}

int s3_make_object(Remote *remote, const RemoteEntry *entry, RemoteObject *object) {
    char bucket[BUCKET_BYTES_MAX + 1];
    const char *key;
    if (split_name(entry->name, bucket, &key) < 0 || load_settings(remote) < 0) return -1;
    Buffer url = {0};
    add_bucket(&url, remote, bucket);
    buffer_print(&url, "/");
    url_add_escaped(&url, key, false);
    buffer_add(&url, "", 1);
    object->url = (char *)url.data, object->auth = AUTH_S3;
    return 0;
}

// Adds the objects of a page. Objects whose names end in '/' represent folders that consoles made.
static int add_objects(RemoteArgument *argument, const S3Listing *listing, const char *bucket, const char *prefix) {
    Buffer name = {0};
    int status = 0;
    for (size_t i = 0; status == 0 && i < listing->count; i++) {
        const S3Object *object = &listing->objects[i];
        if (strncmp(object->key, prefix, strlen(prefix)) != 0)
            status = fail(EX_DATA, "'%s': the listing has an object outside of it", argument->name);
        if (strlen(object->etag) >= FIELD_BYTES)
            status = fail(EX_DATA, "'%s': an ETag of the listing is too long", argument->name);
        if (status < 0 || object->key[strlen(object->key) - 1] == '/') continue;
        name.size = 0;
        buffer_print(&name, S3_PREFIX "%s/%s", bucket, object->key);
        buffer_add(&name, "", 1);
        status = argument_add(argument, (const char *)name.data, "", object->etag, object->size);
    }
    buffer_close(&name);
    return status;
}

// Requests one page, and replaces the token by the token of the next page; empty after the last page.
static int list_page(Remote *remote, RemoteArgument *argument, const char *bucket, const char *prefix, Buffer *token) {
    Buffer url = {0}, document = {0};
    Response response;
    S3Listing listing = {0};
    add_bucket(&url, remote, bucket);
    buffer_print(&url, remote->s3.in_host ? "/?" : "?");
    if (token->size) {
        buffer_print(&url, "continuation-token=");
        url_add_escaped(&url, (const char *)token->data, true);
        buffer_print(&url, "&");
    }
    buffer_print(&url, "encoding-type=url&list-type=2&prefix=");
    url_add_escaped(&url, prefix, true);
    buffer_add(&url, "", 1);
    RemoteObject object = {.url = (char *)url.data, .name = argument->name, .auth = AUTH_S3};
    int status = remote_request(remote, &object, &document, &response);
    if (status == 0 && s3_listing_parse(&listing, (Bytes){document.data, document.size}) < 0)
        status = fail_in("'%s'", argument->name);
    if (status == 0) status = add_objects(argument, &listing, bucket, prefix);
    const bool stays = status == 0 && listing.next && token->size && !strcmp(listing.next, (const char *)token->data);
    if (stays) status = fail(EX_DATA, "'%s': the listing continues with the same page", argument->name);
    token->size = 0;
    if (status == 0 && listing.next) buffer_add(token, listing.next, strlen(listing.next) + 1);
    s3_listing_close(&listing);
    buffer_close(&document);
    return status;
}

int s3_list(Remote *remote, const char *wanted, RemoteArgument *argument) {
    char bucket[BUCKET_BYTES_MAX + 1];
    const char *key;
    if (split_name(wanted, bucket, &key) < 0 || load_settings(remote) < 0) return -1;
    Buffer prefix = {0}, token = {0};
    buffer_print(&prefix, "%s%s", key, s3_is_folder(wanted) ? "" : "/");
    buffer_add(&prefix, "", 1);
    argument->folder_length = strlen(S3_PREFIX) + strlen(bucket) + 1 + prefix.size - 1;
    int status = 0, pages = 0;
    do {
        status = list_page(remote, argument, bucket, (const char *)prefix.data, &token);
        if (status == 0 && ++pages > PAGES_MAX) status = fail(EX_DATA, "'%s': its listing does not end", wanted);
    } while (status == 0 && token.size);
    buffer_close(&prefix);
    buffer_close(&token);
    return status;
}
