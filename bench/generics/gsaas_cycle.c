/* SPDX-License-Identifier: Apache-2.0 */
/* gsaas_cycle COUNT: allocate one GPU through the API and give it back, so many times one after the other over one
 * connection, as the launcher speaks. Prints a JSON list of the seconds that each took. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "api.h"
#include "credentials.h"
#include "text.h"

enum { PATIENCE = 60 };

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static struct response ask(struct api *api, const char *method, const char *path, const char *body, int status)
{
    struct response answer = {0};
    if (api_exchange(api, method, path, API_VERSION, body, PATIENCE, -1, false, NULL, &answer) != COMPLETED)
        errx(1, "%s %s: %s", method, path, api->reason);
    if (answer.status != status)
        errx(1, "%s %s: %ld %s", method, path, answer.status, json_dumps(answer.document, JSON_COMPACT));
    return answer;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1;
    struct api api = {0};
    if (!credentials_read(&api))
        errx(1, "no credentials file and no cached token that can be used");
    printf("[");
    for (int i = 0; i < count; i++) {
        double begun = now();
        struct response given =
            ask(&api, "POST", "/v1/leases", "{\"lease\": {\"cgpus\": {\"count\": 1}, \"server\": null}}", 201);
        const char *id = json_string_value(json_object_get(json_object_get(given.document, "lease"), "id"));
        struct text path = {0};
        text_print(&path, "/v1/leases/%s", id ? id : "?");
        struct response ended = ask(&api, "DELETE", path.bytes, NULL, 202);
        printf("%s%.6f", i ? ", " : "", now() - begun);
        response_free(&given);
        response_free(&ended);
        text_free(&path);
    }
    printf("]\n");
    api_free(&api);
    return 0;
}
