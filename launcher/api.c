/* SPDX-License-Identifier: Apache-2.0 */
#include "api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

bool api_accepts(const char *url, const char *token)
{
    const char *host = strstr(url, "://");
    if (!host || !host[3] || strpbrk(url, "@?# \\") || (strncmp(url, "http:", 5) != 0 && strncmp(url, "https:", 6) != 0))
        return false;
    for (const char *at = token; *at; at++)
        if (*at <= 0x20 || *at > 0x7e) /* it would end the header, or be no ASCII */
            return false;
    return *token != '\0';
}

void api_use(struct api *api, const char *url, const char *token, const char *bundle, bool cached)
{
    size_t length = strlen(url);
    api->url = text_copy(url);
    while (length && api->url[length - 1] == '/')
        api->url[--length] = '\0';
    api->token = text_copy(token);
    api->bundle = bundle ? text_copy(bundle) : NULL;
    api->cached = cached;
}

/* client/gsaasclient/cli/patience.py says the same. */
static void say_slow(const struct exchange *exchange)
{
    fprintf(stderr, "waiting for the GSaaS API to answer %s %.*s (Ctrl-C ends the wait)\n", exchange->method,
            (int)strcspn(exchange->path, "?"), exchange->path);
}

enum outcome api_exchange(struct api *api, const char *method, const char *path, const char *version,
                          const char *body, int seconds, int interrupt, bool idempotent, const char *key,
                          struct response *response)
{
    char microversion[32];
    snprintf(microversion, sizeof microversion, "gpu-scheduling %s", version);
    struct header headers[6] = {
        {"X-Auth-Token", api->token},
        {"Accept", "application/json"},
        {"OpenStack-API-Version", microversion},
    };
    int count = 3;
    if (body)
        headers[count++] = (struct header){"Content-Type", "application/json"};
    if (key)
        headers[count++] = (struct header){"Idempotency-Key", key};
    struct exchange exchange = {
        .method = method,
        .path = path,
        .body = body,
        .headers = headers,
        .seconds = seconds,
        .interrupt = interrupt,
        .patience = api->patience,
        .slow = say_slow,
    };
    response_free(response);
    if (!api->connection && !(api->connection = connection_new(api->url, api->bundle))) {
        snprintf(api->reason, sizeof api->reason, "this is not a URL");
        return UNSENT;
    }
    enum outcome outcome = FAILED;
    bool again = true;
    for (int attempt = 1; again; attempt++) {
        bool reused = connection_is_open(api->connection);
        outcome = connection_exchange(api->connection, &exchange);
        bool lost = (outcome == FAILED || outcome == UNSENT) && !exchange.timed_out;
        again = lost && ((key && outcome == FAILED && attempt == 1) || (idempotent && reused));
    }
    if (outcome == COMPLETED) {
        response->status = exchange.status;
        if (exchange.answer.length)
            response->document = json_loadb(exchange.answer.bytes, exchange.answer.length, 0, NULL);
    }
    snprintf(api->reason, sizeof api->reason, "%s", exchange.reason);
    text_free(&exchange.answer);
    return outcome;
}

void response_free(struct response *response)
{
    json_decref(response->document);
    *response = (struct response){0};
}

void api_free(struct api *api)
{
    connection_free(api->connection);
    free(api->url);
    free(api->token);
    free(api->bundle);
    *api = (struct api){0};
}
