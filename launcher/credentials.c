/* SPDX-License-Identifier: Apache-2.0 */
#include "credentials.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "text.h"

#define DEFAULT_FILE "/run/gsaas/credentials.json"
enum { MAX_BYTES = 64 * 1024 };

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

/* Read a file that no other user can read; return false if it is not such a file. */
static bool read_private(const char *path, struct text *content)
{
    struct stat metadata;
    ssize_t count = -1;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    if (fstat(file, &metadata) == 0 && S_ISREG(metadata.st_mode) && (metadata.st_mode & 077) == 0
        && metadata.st_size < MAX_BYTES)
        while ((count = read(file, text_reserve(content, MAX_BYTES), MAX_BYTES)) > 0 && content->length < MAX_BYTES) {
            content->length += (size_t)count;
            content->bytes[content->length] = '\0';
        }
    close(file);
    return count == 0 && content->length > 0 && strlen(content->bytes) == content->length;
}

static char *copy(const char *begin, size_t length)
{
    char *copied = strndup(begin, length);
    return copied ? copied : "";
}

/* Split http://HOST[:PORT][/PATH]; return false for any other URL, such as one with https, a user or a query. */
static bool split_url(const char *url, struct server *server)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0 || strpbrk(url, "@?# \\"))
        return false;
    const char *host = url + sizeof scheme - 1;
    const char *end = host + strcspn(host, *host == '[' ? "]" : ":/");
    const char *rest = end;
    if (*host == '[') {
        if (*end != ']')
            return false;
        host++;
        rest = end + 1;
    }
    size_t digits = *rest == ':' ? strspn(rest + 1, "0123456789") : 0;
    if (end == host || (*rest == ':' && (digits == 0 || digits > 5)))
        return false;
    server->port = digits ? copy(rest + 1, digits) : "80";
    if (*rest == ':')
        rest += 1 + digits;
    if (*rest && *rest != '/')
        return false;
    size_t length = strlen(rest);
    while (length && rest[length - 1] == '/')
        length--;
    server->host = copy(host, (size_t)(end - host));
    server->path = copy(rest, length);
    return true;
}

/* Whether *token* can be sent in a header: no byte may end the header. */
static bool is_plain(const char *token)
{
    for (; *token; token++)
        if (*token <= 0x20 || *token > 0x7e)
            return false;
    return true;
}

bool credentials_read(struct server *server)
{
    struct text file = {0};
    const char *path = getenv("GSAAS_CREDENTIALS");
    if (!is_set("GSAAS_CREDENTIALS")) {
        if (is_set("OS_CLOUD") || is_set("OS_AUTH_URL"))
            return false;
        path = DEFAULT_FILE;
    }
    const char *document = read_private(path, &file) ? json_document(file.bytes) : NULL;
    char *url = json_text(json_member(document, "url"));
    char *token = json_text(json_member(document, "token"));
    bool usable = url && token && *token && is_plain(token) && split_url(url, server);
    text_free(&file);
    free(url);
    server->token = usable ? token : NULL;
    server->socket = -1;
    if (!usable)
        free(token);
    return usable;
}
