/* SPDX-License-Identifier: Apache-2.0 */
#include "token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <nettle/pbkdf2.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "private_file.h"
#include "text.h"

/* These, and what is hashed in which order, are as in client/gsaasclient/token_cache.py. */
enum { VERSION = 2, MARGIN = 30, ITERATIONS = 1000, SALT_BYTES = 16, MAX_CONFIGURATION = 1 << 20, NAME_DIGITS = 32 };

static const char *const PROXIES[] = {"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"};
static const char *const AUTHORITIES[] = {"CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"};
static const char *const NAMING[] = {"OS_CLOUD", "OS_AUTH_URL", "OS_USERNAME", "OS_USER_ID", "OS_PROJECT_NAME",
                                     "OS_PROJECT_ID", "OS_APPLICATION_CREDENTIAL_ID", "OS_REGION_NAME", "OS_INTERFACE"};
static const char *const FILES[] = {"clouds", "secure", "clouds-public"};
static const char *const SUFFIXES[] = {".yaml", ".yml", ".json"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

extern char **environ;

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Append a piece of what is hashed, so that no two sequences of pieces look the same. */
static void add_piece(struct text *pieces, const char *bytes, size_t length)
{
    text_print(pieces, "%zu:", length);
    text_add(pieces, bytes, length);
}

static int compare(const void *one, const void *other)
{
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

static bool is_relevant(const char *pair)
{
    for (size_t i = 0; i < COUNT(AUTHORITIES); i++)
        if (strncmp(pair, AUTHORITIES[i], strlen(AUTHORITIES[i])) == 0 && pair[strlen(AUTHORITIES[i])] == '=')
            return true;
    return strncmp(pair, "OS_", 3) == 0;
}

/* Append the variables that describe the credentials, sorted. */
static void add_variables(struct text *pieces)
{
    size_t count = 0;
    while (environ[count])
        count++;
    const char **pairs = calloc(count + 1, sizeof *pairs);
    if (!pairs)
        return;
    count = 0;
    for (char **at = environ; *at; at++)
        if (is_relevant(*at))
            pairs[count++] = *at;
    qsort(pairs, count, sizeof *pairs, compare);
    for (size_t i = 0; i < count; i++)
        add_piece(pieces, pairs[i], strlen(pairs[i]));
    free(pairs);
}

/* Append a file of the configuration, if it can be read. Return false if it is there and cannot be hashed. */
static bool add_file(struct text *pieces, const char *path)
{
    struct text content = {0};
    errno = 0;
    bool complete = plain_file_read(path, MAX_CONFIGURATION, &content);
    if (complete) {
        add_piece(pieces, path, strlen(path));
        add_piece(pieces, content.bytes, content.length);
    }
    text_free(&content);
    return complete || errno != 0;
}

static bool add_folder(struct text *pieces, const char *folder)
{
    bool usable = true;
    for (size_t i = 0; i < COUNT(FILES); i++)
        for (size_t j = 0; j < COUNT(SUFFIXES) && usable; j++) {
            struct text path = {0};
            text_print(&path, "%s/%s%s", folder, FILES[i], SUFFIXES[j]);
            usable = add_file(pieces, path.bytes);
            text_free(&path);
        }
    return usable;
}

/* Append the files in which the SDK looks for clouds; return false if one of them cannot be hashed. */
static bool add_files(struct text *pieces)
{
    static const char *const named[] = {"OS_CLIENT_CONFIG_FILE", "OS_CLIENT_SECURE_FILE"};
    static const struct {
        const char *variable, *tail;
    } folders[] = {{"XDG_CONFIG_HOME", "/openstack"}, {"SNAP_REAL_HOME", "/.config/openstack"}, {"HOME", "/.config/openstack"}};
    bool usable = true;
    for (size_t i = 0; i < COUNT(named) && usable; i++)
        usable = !variable(named[i]) || add_file(pieces, variable(named[i]));
    usable = usable && add_folder(pieces, ".");
    for (size_t i = 0; i < COUNT(folders) && usable; i++) {
        struct text folder = {0};
        text_print(&folder, "%s%s", variable(folders[i].variable) ? variable(folders[i].variable) : "", folders[i].tail);
        usable = !variable(folders[i].variable) || add_folder(pieces, folder.bytes);
        text_free(&folder);
    }
    const char *system = variable("XDG_CONFIG_DIRS") ? variable("XDG_CONFIG_DIRS") : "/etc/xdg";
    while (*system && usable) {
        struct text folder = {0};
        size_t length = strcspn(system, ":");
        text_print(&folder, "%.*s/openstack", (int)length, system);
        usable = add_folder(pieces, folder.bytes);
        text_free(&folder);
        system += length + (system[length] == ':');
    }
    return usable && add_folder(pieces, "/etc/openstack");
}

/* Append what the credentials are; return false if they are of a kind whose tokens are not cached. */
static bool add_credentials(struct text *pieces)
{
    for (size_t i = 0; i < COUNT(PROXIES); i++)
        if (variable(PROXIES[i]))
            return false;
    if (!variable("HOME"))
        return false;
    add_variables(pieces);
    return add_files(pieces);
}

/* Write the name of the cache's file: the same for the same user, project and cloud. */
static void write_name(char name[NAME_DIGITS + sizeof ".json"])
{
    unsigned char digest[SHA256_DIGEST_SIZE];
    struct sha256_ctx hash;
    struct text pieces = {0};
    for (size_t i = 0; i < COUNT(NAMING); i++) {
        const char *value = variable(NAMING[i]);
        add_piece(&pieces, value ? value : "", value ? strlen(value) : 0);
    }
    sha256_init(&hash);
    sha256_update(&hash, pieces.length, (const unsigned char *)pieces.bytes);
    sha256_digest(&hash, sizeof digest, digest);
    for (int i = 0; i < NAME_DIGITS / 2; i++)
        snprintf(name + 2 * i, 3, "%02x", digest[i]);
    strcpy(name + NAME_DIGITS, ".json");
    text_free(&pieces);
}

/* Open the folder of the cache; return -1 unless it is this user's own and closed to others. */
static int open_folder(void)
{
    struct text path = {0};
    struct stat metadata;
    const char *home = variable("XDG_CACHE_HOME");
    if (home && *home == '/')
        text_print(&path, "%s/gsaas", home);
    else
        text_print(&path, "%s/.cache/gsaas", variable("HOME"));
    int folder = open(path.bytes, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    text_free(&path);
    if (folder >= 0
        && (fstat(folder, &metadata) != 0 || metadata.st_uid != geteuid() || (metadata.st_mode & 077) != 0)) {
        close(folder);
        folder = -1;
    }
    return folder;
}

/* Return the document in the cache's file, or NULL. */
static json_t *read_document(void)
{
    char name[NAME_DIGITS + sizeof ".json"];
    struct text content = {0};
    json_t *document = NULL;
    int folder = open_folder();
    if (folder < 0)
        return NULL;
    write_name(name);
    if (private_file_read(folder, name, true, &content))
        document = json_loadb(content.bytes, content.length, 0, NULL);
    close(folder);
    text_free(&content);
    return document;
}

static bool from_hex(const char *digits, unsigned char *bytes, size_t count)
{
    if (!digits || strlen(digits) != 2 * count || strspn(digits, "0123456789abcdef") != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++)
        sscanf(digits + 2 * i, "%2hhx", &bytes[i]);
    return true;
}

/* Whether the token was issued for exactly these credentials. */
static bool is_proven(const struct text *credentials, const char *salt_digits, const char *proof_digits)
{
    unsigned char salt[SALT_BYTES], proof[SHA256_DIGEST_SIZE], own[SHA256_DIGEST_SIZE];
    if (!from_hex(salt_digits, salt, sizeof salt) || !from_hex(proof_digits, proof, sizeof proof))
        return false;
    pbkdf2_hmac_sha256(credentials->length, (const unsigned char *)credentials->bytes, ITERATIONS, sizeof salt, salt,
                       sizeof own, own);
    return memcmp(own, proof, sizeof own) == 0;
}

bool token_cache_read(struct api *api)
{
    struct text credentials = {0};
    json_t *document = NULL;
    bool usable = add_credentials(&credentials) && credentials.length && (document = read_document());
    const char *url = json_string_value(json_object_get(document, "url"));
    const char *token = json_string_value(json_object_get(document, "token"));
    const char *bundle = json_string_value(json_object_get(document, "bundle"));
    usable = usable && json_integer_value(json_object_get(document, "version")) == VERSION && url && token
             && api_accepts(url, token)
             && (strncmp(url, "https:", 6) != 0 || bundle)
             && json_integer_value(json_object_get(document, "expires_at")) > (json_int_t)time(NULL) + MARGIN
             && is_proven(&credentials, json_string_value(json_object_get(document, "salt")),
                          json_string_value(json_object_get(document, "proof")));
    if (usable)
        api_use(api, url, token, bundle, true);
    json_decref(document);
    text_free(&credentials);
    return usable;
}

void token_cache_drop(const struct api *api)
{
    char name[NAME_DIGITS + sizeof ".json"];
    struct api found = {0};
    bool same = token_cache_read(&found) && strcmp(found.token, api->token) == 0;
    int folder = same ? open_folder() : -1;
    write_name(name);
    if (folder >= 0) {
        unlinkat(folder, name, 0);
        close(folder);
    }
    api_free(&found);
}

bool token_cache_renew(struct api *api)
{
    struct api found = {0};
    bool newer = token_cache_read(&found) && strcmp(found.token, api->token) != 0;
    if (newer) {
        free(api->token);
        api->token = text_copy(found.token);
    }
    api_free(&found);
    return newer;
}
