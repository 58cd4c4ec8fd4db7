/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "json.h"
#include "status.h"

/* Durations in seconds. */
enum {
    RESPONSE_TIMEOUT = 60,
    LONG_POLL = 25,       /* for which the API may delay a response */
    CLEANUP_TIMEOUT = 10, /* of requests for which the command or its caller must not wait longer */
    OUTAGE_TIMEOUT = 45,  /* for which the API may be away: less than the silence after which it gives up our place */
};

enum { KEY_BYTES = 16 };

static void print_error(const char *sentence, const char *more)
{
    fprintf(stderr, "gsaas: %s%s\n", sentence, more);
}

static const char *response_document(const struct response *response)
{
    return response->body.length ? json_document(response->body.bytes) : NULL;
}

/* Print the message of an error response, and return the exit status for it. */
static int report_refusal(const struct response *response)
{
    const char *error = json_first(json_member(response_document(response), "errors"));
    const char *code = json_member(error, "code");
    char *detail = json_text(json_member(error, "detail"));
    char *request = json_text(json_member(error, "request_id"));
    if (detail && *detail)
        print_error(detail, "");
    else
        fprintf(stderr, "gsaas: the API answered with HTTP status %d\n", response->status);
    if (request)
        fprintf(stderr, "  request %s\n", request);
    free(detail);
    free(request);
    if (json_equals(code, "gsaas.capacity.impossible"))
        return STATUS_IMPOSSIBLE;
    return json_equals(code, "gsaas.capacity.busy") ? STATUS_BUSY : STATUS_FAILED;
}

static int report_unreachable(const struct server *server)
{
    fprintf(stderr, "gsaas: the GSaaS API at http://%s:%s%s does not answer: %s\n", server->host, server->port,
            server->path, strerror(errno));
    return STATUS_FAILED;
}

/* Send a request to the path of the lease, followed by *tail*. */
static enum outcome request_lease(struct lease *lease, const char *method, const char *tail, int seconds, int interrupt,
                                  struct response *response)
{
    struct text path = {0};
    text_print(&path, "/v1/leases/%s%s", lease->id, tail);
    enum outcome outcome = http_exchange(lease->server, method, path.bytes, NULL, seconds, interrupt, true, NULL, response);
    text_free(&path);
    return outcome;
}

/* Add the variables of the JSON object *environment*; return false if one of them is not valid. */
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

/* Fetch the lease's environment. Return 0, or the exit status after printing an error message. */
static int fetch_environment(struct lease *lease, struct response *response)
{
    if (request_lease(lease, "GET", "/environment", RESPONSE_TIMEOUT, -1, response) != COMPLETED)
        return report_unreachable(lease->server);
    if (response->status != 200)
        return report_refusal(response);
    if (!add_variables(lease, json_member(response_document(response), "environment"))) {
        print_error("the API's answer has no environment that could be used", "");
        return STATUS_FAILED;
    }
    return 0;
}

/* Return the value of a variable of the lease's environment, or NULL. */
static const char *variable(const struct lease *lease, const char *name)
{
    const char *end = lease->environment.bytes + lease->environment.length;
    size_t length = strlen(name);
    for (const char *at = lease->environment.bytes; at < end; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
    return NULL;
}

/* If the environment names a gate, show the grant there, as gsaas/grants/grant_client.py does. Return 0, or the exit
 * status after printing why this host is not admitted. The environment is fetched again afterwards, because a grant is
 * good once. */
static int redeem_grant(struct lease *lease, struct response *response)
{
    const char *gate = variable(lease, "GSAAS_GATE"), *grant = variable(lease, "GSAAS_GRANT");
    const char *colon = gate ? strrchr(gate, ':') : NULL;
    if (!colon || !grant)
        return 0;
    struct text line = {0}, reply = {0};
    struct server connection = {.host = strndup(gate, (size_t)(colon - gate)), .port = strdup(colon + 1), .socket = -1};
    text_print(&line, "%s %s\n", lease->id, grant);
    bool received = connection.host && connection.port && http_connect(&connection)
                    && http_send(&connection, &line) == COMPLETED;
    while (received && !(reply.bytes && strchr(reply.bytes, '\n')))
        received = http_receive(&connection, &reply, RESPONSE_TIMEOUT, -1) == COMPLETED;
    if (received)
        *strchr(reply.bytes, '\n') = '\0';
    int result = received && strcmp(reply.bytes, "admitted") == 0 ? 0 : STATUS_FAILED;
    if (result)
        fprintf(stderr, "gsaas: lease %s cannot be used from here: the gate at %s says: %s\n", lease->id, gate,
                received ? reply.bytes : strerror(errno));
    http_close(&connection);
    free(connection.host);
    free(connection.port);
    text_free(&line);
    text_free(&reply);
    if (result == 0) {
        text_free(&lease->environment);
        result = fetch_environment(lease, response);
    }
    return result;
}

/* Print the position of a lease in the queue to a terminal, if it has changed. */
static void print_queue_position(const char *lease)
{
    const char *queue = json_member(lease, "queue");
    const char *position = json_member(queue, "position"), *length = json_member(queue, "length");
    static int last = -1;
    if (position && length && atoi(position) != last && isatty(STDERR_FILENO)) {
        last = atoi(position);
        fprintf(stderr, "gsaas: waiting for cGPUs: %d of %d in the queue\n", last, atoi(length));
    }
}

/* Print why a lease has ended, and return the exit status for it. */
static int report_end(const char *lease, const char *status)
{
    char *reason = json_text(json_member(json_member(lease, "fault"), "message"));
    bool in_queue = json_equals(json_member(json_member(lease, "fault"), "step"), "queue");
    fprintf(stderr, "gsaas: the cGPUs cannot be used, the lease is %s%s%s\n", status, reason ? ": " : "",
            reason ? reason : "");
    free(reason);
    return in_queue ? STATUS_BUSY : STATUS_FAILED;
}

/* Sleep for a second; return true if a signal arrives first. */
static bool sleep_interrupted(const struct lease *lease)
{
    struct pollfd polled = {lease->interrupt, POLLIN, 0};
    return poll(&polled, 1, 1000) > 0;
}

/* Fetch the lease as soon as it has left *status*, or after LONG_POLL. *new_status*, which the caller frees, is NULL if
 * the response has none. */
static enum outcome await_change(struct lease *lease, const char *status, struct response *response, char **new_status)
{
    struct text tail = {0};
    text_print(&tail, "?while_status=%s&timeout=%d", status, LONG_POLL);
    enum outcome outcome = request_lease(lease, "GET", tail.bytes, RESPONSE_TIMEOUT, lease->interrupt, response);
    text_free(&tail);
    *new_status = NULL;
    if (outcome == COMPLETED && response->status == 200) {
        const char *found = json_member(response_document(response), "lease");
        *new_status = json_text(json_member(found, "status"));
        print_queue_position(found);
    }
    return outcome;
}

/* Wait until the lease is ACTIVE, and fetch its environment; return as lease_allocate does. *status* is the current
 * status and is freed here. */
static int await_active(struct lease *lease, char *status, struct response *response)
{
    int silent = 0; /* seconds since the API last answered */
    while (status && (strcmp(status, "QUEUED") == 0 || strcmp(status, "CLAIMED") == 0)) {
        char *new_status;
        time_t started_at = time(NULL);
        enum outcome outcome = await_change(lease, status, response, &new_status);
        bool away = outcome == FAILED || (outcome == COMPLETED && response->status >= 500);
        silent = away ? silent + 1 : 0;
        if (outcome == INTERRUPTED || (away && silent > OUTAGE_TIMEOUT) || (!away && !new_status)) {
            free(status);
            if (outcome == INTERRUPTED)
                return -1;
            return outcome == FAILED ? report_unreachable(lease->server) : report_refusal(response);
        }
        /* The API is away, or has too many waiting clients to delay this response: do not ask again at once. */
        bool unchanged = away || strcmp(new_status, status) == 0;
        if (new_status) {
            free(status);
            status = new_status;
        }
        if (unchanged && time(NULL) - started_at < LONG_POLL / 2 && sleep_interrupted(lease)) {
            free(status);
            return -1;
        }
    }
    int result = 0;
    if (!status || strcmp(status, "ACTIVE") != 0)
        result = report_end(json_member(response_document(response), "lease"), status ? status : "unknown");
    free(status);
    return result ? result : fetch_environment(lease, response);
}

/* Write an Idempotency-Key that no other request has; "" if the kernel has no random bytes, and a request without a key
 * is not sent again. */
static void make_key(char key[KEY_BYTES * 2 + 1])
{
    unsigned char bytes[KEY_BYTES];
    *key = '\0';
    if (getrandom(bytes, sizeof bytes, 0) == sizeof bytes)
        for (int i = 0; i < KEY_BYTES; i++)
            snprintf(key + 2 * i, 3, "%02x", bytes[i]);
}

int lease_allocate(struct lease *lease, const struct request *request)
{
    struct response response = {0};
    int result;
    /* Without a terminal, where progress would be shown, the API delays its response until the wait is over. A signal
     * may end that wait: the API ends the lease of a client that closes the connection. A response that is not delayed
     * is awaited in any case, because it has the id of the lease to release. With a key, the API would keep the lease of a
     * client whose connection broke, so that it can be sent again: then no signal could end the wait. */
    bool long_poll = request->waits && !isatty(STDERR_FILENO);
    char path[40] = "/v1/leases", key[KEY_BYTES * 2 + 1] = "";
    if (long_poll)
        snprintf(path, sizeof path, "/v1/leases?timeout=%d", LONG_POLL);
    else
        make_key(key);
    enum outcome outcome = http_exchange(lease->server, "POST", path, request->body.bytes, RESPONSE_TIMEOUT,
                                         long_poll ? lease->interrupt : -1, false, *key ? key : NULL, &response);
    if (outcome == INTERRUPTED) {
        result = -1;
    } else if (outcome != COMPLETED) {
        result = report_unreachable(lease->server);
    } else if (response.status != 201 && response.status != 202) {
        result = report_refusal(&response);
    } else {
        const char *found = json_member(response_document(&response), "lease");
        const char *environment = json_member(response_document(&response), "environment");
        lease->id = json_text(json_member(found, "id"));
        if (!lease->id || strspn(lease->id, "0123456789abcdef-") != strlen(lease->id)) {
            print_error("the API's answer has no lease", "");
            result = STATUS_FAILED;
            free(lease->id);
            lease->id = NULL;
        } else if (response.status == 201 && add_variables(lease, environment)) {
            result = 0;
        } else {
            print_queue_position(found);
            result = await_active(lease, json_text(json_member(found, "status")), &response);
        }
    }
    if (result == 0)
        result = redeem_grant(lease, &response);
    text_free(&response.body);
    if (result != 0 && lease->id)
        lease_release(lease);
    return result;
}

bool lease_keep_alive(struct lease *lease)
{
    struct response response = {0};
    bool alive = true;
    if (request_lease(lease, "POST", "/keepalive", CLEANUP_TIMEOUT, -1, &response) == COMPLETED) {
        const char *status = json_member(json_member(response_document(&response), "lease"), "status");
        alive = response.status != 404 && !json_equals(status, "RELEASING") && !json_equals(status, "ERROR");
    }
    text_free(&response.body);
    return alive;
}

void lease_release(struct lease *lease)
{
    struct response response = {0};
    bool released = request_lease(lease, "DELETE", "", CLEANUP_TIMEOUT, -1, &response) == COMPLETED
                    && (response.status < 300 || response.status == 404);
    if (!released)
        fprintf(stderr, "gsaas: lease %s could not be given back; it ends by itself within %d s\n", lease->id,
                KEEPALIVE);
    text_free(&response.body);
}
