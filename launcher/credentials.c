/* SPDX-License-Identifier: Apache-2.0 */
#include "credentials.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "private_file.h"
#include "text.h"
#include "token_cache.h"

#define DEFAULT_FILE "/run/gsaas/credentials.json"

static bool is_set(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

bool credentials_read(struct api *api)
{
    struct text file = {0};
    const char *path = getenv("GSAAS_CREDENTIALS");
    if (!is_set("GSAAS_CREDENTIALS")) {
        if (is_set("OS_CLOUD") || is_set("OS_AUTH_URL"))
            return token_cache_read(api);
        path = DEFAULT_FILE;
    }
    bool readable = private_file_read(AT_FDCWD, path, false, &file);
    json_t *document = readable ? json_loadb(file.bytes, file.length, 0, NULL) : NULL;
    const char *url = json_string_value(json_object_get(document, "url"));
    const char *token = json_string_value(json_object_get(document, "token"));
    bool usable = url && token && api_accepts(url, token);
    if (usable && is_set("GSAAS_CREDENTIALS") && (is_set("OS_CLOUD") || is_set("OS_AUTH_URL")))
        fputs("note: GSAAS_CREDENTIALS is used, and not the OS_ variables\n", stderr);
    if (usable)
        api_use(api, url, token, NULL, false);
    text_free(&file);
    json_decref(document);
    return usable;
}
