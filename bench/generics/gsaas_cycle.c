/* SPDX-License-Identifier: Apache-2.0 */
/* gsaas_cycle COUNT: allocate one GPU through the API and give it back, so many times one after the other over one
 * connection, as the launcher speaks. Prints a JSON list of the seconds that each took. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "credentials.h"
#include "http.h"
#include "json.h"

enum { PATIENCE = 60 };

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static struct response ask(struct server *server, const char *method, const char *path, const char *body, int status)
{
    struct response answer = {0};
    if (http_exchange(server, method, path, body, PATIENCE, -1, false, NULL, &answer) != COMPLETED)
        err(1, "%s %s", method, path);
    if (answer.status != status)
        errx(1, "%s %s: %d %s", method, path, answer.status, answer.body.bytes);
    return answer;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 1;
    struct server server = {.socket = -1};
    if (!credentials_read(&server))
        errx(1, "no credentials file that can be used");
    printf("[");
    for (int i = 0; i < count; i++) {
        double begun = now();
        struct response given =
            ask(&server, "POST", "/v1/leases", "{\"lease\": {\"cgpus\": {\"count\": 1}, \"server\": null}}", 201);
        char *id = json_text(json_member(json_member(json_document(given.body.bytes), "lease"), "id"));
        struct text path = {0};
        text_print(&path, "/v1/leases/%s", id ? id : "?");
        struct response ended = ask(&server, "DELETE", path.bytes, NULL, 202);
        printf("%s%.6f", i ? ", " : "", now() - begun);
        text_free(&given.body);
        text_free(&ended.body);
        text_free(&path);
        free(id);
    }
    printf("]\n");
    return 0;
}
