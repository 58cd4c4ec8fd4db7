#include "lease.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "json.h"
#include "status.h"

/* Seconds: for an answer, of a long poll, for the last answer, and how long the API may be away while we wait, which is
 * less than it takes until it counts us as gone. */
enum { PATIENCE = 60, HELD_BACK = 25, FAREWELL = 10, AWAY = 45 };

static void say(const char *sentence, const char *more)
{
    fprintf(stderr, "gsaas: %s%s\n", sentence, more);
}

static const char *document(const struct answer *answer)
{
    return answer->body.length ? json_document(answer->body.bytes) : NULL;
}

/* Say what an answer that is an error says, and return the exit status for it. */
static int refused(const struct answer *answer)
{
    const char *error = json_first(json_member(document(answer), "errors"));
    const char *code = json_member(error, "code");
    char *detail = json_text(json_member(error, "detail"));
    char *request = json_text(json_member(error, "request_id"));
    if (detail && *detail)
        say(detail, "");
    else
        fprintf(stderr, "gsaas: the API answered with HTTP status %d\n", answer->status);
    if (request)
        fprintf(stderr, "  request %s\n", request);
    free(detail);
    free(request);
    if (json_is(code, "gsaas.capacity.impossible"))
        return STATUS_IMPOSSIBLE;
    return json_is(code, "gsaas.capacity.busy") ? STATUS_BUSY : STATUS_FAILED;
}

static int unreachable(const struct server *server)
{
    fprintf(stderr, "gsaas: the GSaaS API at http://%s:%s%s does not answer: %s\n", server->host, server->port,
            server->path, strerror(errno));
    return STATUS_FAILED;
}

static enum outcome ask(struct lease *lease, const char *method, const char *tail, int seconds, int interrupt,
                        struct answer *answer)
{
    struct text path = {0};
    text_print(&path, "/v1/leases/%s%s", lease->id, tail);
    enum outcome outcome = http_exchange(lease->server, method, path.bytes, NULL, seconds, interrupt, true, answer);
    text_free(&path);
    return outcome;
}

static bool add_variables(struct lease *lease, const char *environment)
{
    const char *cursor = environment, *value;
    char *name;
    if (!environment || *environment != '{')
        return false;
    while ((value = json_each(&cursor, &name))) {
        char *content = json_text(value);
        bool usable = content && *name && !strchr(name, '=');
        if (usable) {
            text_print(&lease->environment, "%s=%s", name, content);
            text_add(&lease->environment, "", 1);
        }
        free(content);
        free(name);
        if (!usable)
            return false;
    }
    return true;
}

static int fetch_environment(struct lease *lease, struct answer *answer)
{
    if (ask(lease, "GET", "/environment", PATIENCE, -1, answer) != ANSWERED)
        return unreachable(lease->server);
    if (answer->status != 200)
        return refused(answer);
    if (!add_variables(lease, json_member(document(answer), "environment"))) {
        say("the API's answer has no environment that could be used", "");
        return STATUS_FAILED;
    }
    return 0;
}

/* The value that the lease's environment has for *name*, or NULL. */
static const char *variable(const struct lease *lease, const char *name)
{
    const char *end = lease->environment.bytes + lease->environment.length;
    size_t length = strlen(name);
    for (const char *at = lease->environment.bytes; at < end; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
    return NULL;
}

/* Where the environment names a gate, show the grant there (gsaas/grants/grant_client.py); return 0, or the exit status after
 * having said why this host is not admitted. The environment is told anew then: a grant is good for one visit. */
static int pass_gate(struct lease *lease, struct answer *answer)
{
    const char *gate = variable(lease, "GSAAS_GATE"), *grant = variable(lease, "GSAAS_GRANT");
    const char *colon = gate ? strrchr(gate, ':') : NULL;
    if (!colon || !grant)
        return 0;
    struct text line = {0}, reply = {0};
    struct server keeper = {.host = strndup(gate, (size_t)(colon - gate)), .port = strdup(colon + 1), .socket = -1};
    text_print(&line, "%s %s\n", lease->id, grant);
    bool heard = keeper.host && keeper.port && http_connect(&keeper) && http_send(&keeper, &line) == ANSWERED;
    while (heard && !(reply.bytes && strchr(reply.bytes, '\n')))
        heard = http_receive(&keeper, &reply, PATIENCE, -1) == ANSWERED;
    if (heard)
        *strchr(reply.bytes, '\n') = '\0';
    int result = heard && strcmp(reply.bytes, "admitted") == 0 ? 0 : STATUS_FAILED;
    if (result)
        fprintf(stderr, "gsaas: lease %s cannot be used from here: the gate at %s says: %s\n", lease->id, gate,
                heard ? reply.bytes : strerror(errno));
    http_close(&keeper);
    free(keeper.host);
    free(keeper.port);
    text_free(&line);
    text_free(&reply);
    if (result == 0) {
        text_free(&lease->environment);
        result = fetch_environment(lease, answer);
    }
    return result;
}

static void show_place(const char *known)
{
    const char *queue = json_member(known, "queue");
    const char *position = json_member(queue, "position"), *length = json_member(queue, "length");
    static int last = -1;
    if (position && length && atoi(position) != last && isatty(STDERR_FILENO)) {
        last = atoi(position);
        fprintf(stderr, "gsaas: waiting for cGPUs: %d of %d in the queue\n", last, atoi(length));
    }
}

/* Say why a lease that ended by itself did. */
static int ended(const char *known, const char *status)
{
    char *why = json_text(json_member(json_member(known, "fault"), "message"));
    bool queue = json_is(json_member(json_member(known, "fault"), "step"), "queue");
    fprintf(stderr, "gsaas: the cGPUs cannot be used, the lease is %s%s%s\n", status, why ? ": " : "", why ? why : "");
    free(why);
    return queue ? STATUS_BUSY : STATUS_FAILED;
}

/* Wait a second; true if a signal came first. */
static bool pause_interrupted(const struct lease *lease)
{
    struct pollfd awaited = {lease->interrupt, POLLIN, 0};
    return poll(&awaited, 1, 1000) > 0;
}

/* Look at the lease again as soon as it has left *status*, and return what became of that; the new status is for the
 * caller to free. */
static enum outcome look(struct lease *lease, const char *status, struct answer *answer, char **becomes)
{
    struct text tail = {0};
    text_print(&tail, "?while_status=%s&timeout=%d", status, HELD_BACK);
    enum outcome outcome = ask(lease, "GET", tail.bytes, PATIENCE, lease->interrupt, answer);
    text_free(&tail);
    *becomes = NULL;
    if (outcome == ANSWERED && answer->status == 200) {
        const char *known = json_member(document(answer), "lease");
        *becomes = json_text(json_member(known, "status"));
        show_place(known);
    }
    return outcome;
}

/* Follow the lease until it is ACTIVE; *status* is where it stands, and freed here. */
static int follow(struct lease *lease, char *status, struct answer *answer)
{
    int silent = 0; /* seconds */
    while (status && (strcmp(status, "QUEUED") == 0 || strcmp(status, "CLAIMED") == 0)) {
        char *becomes;
        time_t begun = time(NULL);
        enum outcome outcome = look(lease, status, answer, &becomes);
        bool away = outcome == NO_ANSWER || (outcome == ANSWERED && answer->status >= 500);
        silent = away ? silent + 1 : 0;
        if (outcome == INTERRUPTED || (away && silent > AWAY) || (!away && !becomes)) {
            free(status);
            return outcome == INTERRUPTED ? -1 : outcome == NO_ANSWER ? unreachable(lease->server) : refused(answer);
        }
        /* It is away, or has too many waiting already to hold our answer back: not again at once. */
        bool same = away || strcmp(becomes, status) == 0;
        if (becomes) {
            free(status);
            status = becomes;
        }
        if (same && time(NULL) - begun < HELD_BACK / 2 && pause_interrupted(lease)) {
            free(status);
            return -1;
        }
    }
    int result = 0;
    if (!status || strcmp(status, "ACTIVE") != 0)
        result = ended(json_member(document(answer), "lease"), status ? status : "unknown");
    free(status);
    return result ? result : fetch_environment(lease, answer);
}

int lease_take(struct lease *lease, const struct request *request)
{
    struct answer answer = {0};
    int result;
    /* Where nobody watches, the answer comes when the wait is over. A signal cuts that short, and the API ends the lease
     * of a client that hangs up; any other answer comes at once, and only that tells what to give back. */
    bool held = request->waits && !isatty(STDERR_FILENO);
    char path[40] = "/v1/leases";
    if (held)
        snprintf(path, sizeof path, "/v1/leases?timeout=%d", HELD_BACK);
    enum outcome outcome = http_exchange(lease->server, "POST", path, request->body.bytes, PATIENCE,
                                         held ? lease->interrupt : -1, false, &answer);
    if (outcome == INTERRUPTED) {
        result = -1;
    } else if (outcome != ANSWERED) {
        result = unreachable(lease->server);
    } else if (answer.status != 201 && answer.status != 202) {
        result = refused(&answer);
    } else {
        const char *known = json_member(document(&answer), "lease");
        const char *environment = json_member(document(&answer), "environment");
        lease->id = json_text(json_member(known, "id"));
        if (!lease->id || strspn(lease->id, "0123456789abcdef-") != strlen(lease->id)) {
            say("the API's answer names no lease", "");
            result = STATUS_FAILED;
            free(lease->id);
            lease->id = NULL;
        } else if (answer.status == 201 && add_variables(lease, environment)) {
            result = 0;
        } else {
            show_place(known);
            result = follow(lease, json_text(json_member(known, "status")), &answer);
        }
    }
    if (result == 0)
        result = pass_gate(lease, &answer);
    text_free(&answer.body);
    if (result != 0 && lease->id)
        lease_give_back(lease);
    return result;
}

bool lease_keep(struct lease *lease)
{
    struct answer answer = {0};
    bool kept = true;
    if (ask(lease, "POST", "/keepalive", FAREWELL, -1, &answer) == ANSWERED) {
        const char *status = json_member(json_member(document(&answer), "lease"), "status");
        kept = answer.status != 404 && !json_is(status, "RELEASING") && !json_is(status, "ERROR");
    }
    text_free(&answer.body);
    return kept;
}

void lease_give_back(struct lease *lease)
{
    struct answer answer = {0};
    bool gone = ask(lease, "DELETE", "", FAREWELL, -1, &answer) == ANSWERED
                && (answer.status < 300 || answer.status == 404);
    if (!gone)
        fprintf(stderr, "gsaas: lease %s could not be given back; it ends by itself within %d s\n", lease->id,
                KEEPALIVE);
    text_free(&answer.body);
}
