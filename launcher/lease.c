/* SPDX-License-Identifier: Apache-2.0 */
#include "lease.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "gate.h"
#include "python.h"
#include "status.h"
#include "token_cache.h"

/* Durations in seconds. */
enum {
    RESPONSE_TIMEOUT = 60,
    LONG_POLL = 25,       /* for which the API may delay a response */
    PATIENCE = 3,         /* until a wait for a response is said on a terminal, as gsaas-cli says it */
    CLEANUP_TIMEOUT = 10, /* of requests for which the command or its caller must not wait longer */
    AFTER_INTERRUPT = 3,  /* the same after a signal: whoever interrupts does not want to wait */
    OUTAGE_TIMEOUT = 45,  /* for which the API may be away: less than the silence after which it gives up our place */
    SIGN_IN_TIMEOUT = 30, /* for which gsaas-cli may take to get a token from Keystone */
};

enum { KEY_BYTES = 16, ESTIMATE_SIZE = 64, BAD_REQUEST = 400, UNAUTHORIZED = 401 };

static void print_error(const char *sentence)
{
    fprintf(stderr, "gsaas: %s\n", sentence);
}

/* Return the text that a member of a JSON object is; NULL if it is none. */
static const char *text_of(const json_t *object, const char *member)
{
    return json_string_value(json_object_get(object, member));
}

static bool equals(const char *text, const char *expected)
{
    return text && strcmp(text, expected) == 0;
}

/* Write how long a request waits in the queue, if the API's object says it, as gsaasclient.times.describe_estimate does;
 * else "". */
static void describe_estimate(const json_t *object, char text[ESTIMATE_SIZE])
{
    const json_t *estimate = json_object_get(object, "estimate_seconds");
    double seconds = json_number_value(estimate);
    *text = '\0';
    if (!json_is_number(estimate))
        return;
    if (seconds < 90)
        snprintf(text, ESTIMATE_SIZE, "about %.0f s", seconds > 1 ? seconds : 1);
    else if (seconds < 5400)
        snprintf(text, ESTIMATE_SIZE, "about %.0f min", seconds / 60);
    else
        snprintf(text, ESTIMATE_SIZE, "about %.0f h", seconds / 3600);
}

/* Print the message of an error response, and return the exit status for it. */
static int report_refusal(const struct response *response)
{
    const json_t *error = json_array_get(json_object_get(response->document, "errors"), 0);
    const char *code = text_of(error, "code"), *detail = text_of(error, "detail");
    const char *request = text_of(error, "request_id");
    char estimate[ESTIMATE_SIZE];
    describe_estimate(json_object_get(error, "gsaas"), estimate);
    if (detail && *detail)
        print_error(detail);
    else
        fprintf(stderr, "gsaas: the API answered with HTTP status %ld\n", response->status);
    if (*estimate)
        fprintf(stderr, "  or wait with -wait: %s\n", estimate);
    if (request)
        fprintf(stderr, "  request %s\n", request);
    if (equals(code, "gsaas.capacity.impossible"))
        return STATUS_IMPOSSIBLE;
    return equals(code, "gsaas.capacity.busy") ? STATUS_BUSY : STATUS_FAILED;
}

/* Return whether the response is what a proxy or another service answers where the API was; client/gsaasclient/cached.py
 * decides alike. */
static bool is_of_others(const struct response *response)
{
    const char *code = text_of(json_array_get(json_object_get(response->document, "errors"), 0), "code");
    long status = response->status;
    bool elsewhere = status == 404 || status == 502 || status == 503 || status == 504;
    return elsewhere && (!code || strncmp(code, "gsaas.", 6) != 0);
}

static int report_unreachable(const struct api *api)
{
    fprintf(stderr, "gsaas: the GSaaS API at %s does not answer: %s\n", api->url, api->reason);
    return STATUS_FAILED;
}

/* Replace the cached token by a newer one: what another process has cached meanwhile, or what gsaas-cli gets now. */
static bool renew_token(struct api *api)
{
    char *words[] = {"gsaas", PYTHON_SIGN_IN, NULL};
    if (token_cache_renew(api))
        return true;
    token_cache_drop(api);
    return python_run(words, SIGN_IN_TIMEOUT) && token_cache_renew(api);
}

/* Send a request to the path of the lease, followed by *tail*. A command may run for longer than its token is valid. */
static enum outcome request_lease(struct lease *lease, const char *method, const char *tail, int seconds, int interrupt,
                                  struct response *response)
{
    struct text path = {0};
    enum outcome outcome = FAILED;
    bool again = true;
    text_print(&path, "/v1/leases/%s%s", lease->id, tail);
    for (int attempt = 1; again; attempt++) {
        outcome = api_exchange(lease->api, method, path.bytes, API_VERSION, NULL, seconds, interrupt, true, NULL,
                               response);
        again = attempt == 1 && outcome == COMPLETED && response->status == UNAUTHORIZED && lease->api->cached
                && renew_token(lease->api);
    }
    text_free(&path);
    return outcome;
}

/* Add the variables of the JSON object *environment*; return false if one of them is not valid. */
static bool add_variables(struct lease *lease, json_t *environment)
{
    const char *name;
    json_t *value;
    if (!json_is_object(environment))
        return false;
    json_object_foreach(environment, name, value)
    {
        const char *content = json_string_value(value);
        if (!content || !*name || strchr(name, '='))
            return false;
        text_print(&lease->environment, "%s=%s", name, content);
        text_add(&lease->environment, "", 1);
    }
    return true;
}

/* Say on a terminal that the next responses take long, if they take longer than the API may delay them. */
static void be_patient(struct api *api, int delay)
{
    api->patience = isatty(STDERR_FILENO) ? PATIENCE + delay : 0;
}

/* Fetch the lease's environment. Return 0, LEASE_INTERRUPTED, or the exit status after printing an error message. */
static int fetch_environment(struct lease *lease, struct response *response)
{
    be_patient(lease->api, 0);
    enum outcome outcome =
        request_lease(lease, "GET", "/environment", RESPONSE_TIMEOUT, lease->interrupt, response);
    if (outcome == INTERRUPTED)
        return LEASE_INTERRUPTED;
    if (outcome != COMPLETED)
        return report_unreachable(lease->api);
    if (response->status != 200)
        return report_refusal(response);
    if (!add_variables(lease, json_object_get(response->document, "environment"))) {
        print_error("the API's answer has no environment that could be used");
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

/* If the environment names a gate, show the grant there. Return as fetch_environment does, also if this host is not
 * admitted. The environment is fetched again afterwards, because a grant is good once. */
static int redeem_grant(struct lease *lease, struct response *response)
{
    const char *gate = variable(lease, "GSAAS_GATE"), *grant = variable(lease, "GSAAS_GRANT");
    if (!gate || !strchr(gate, ':') || !grant)
        return 0;
    struct text reply = {0};
    bool admitted = gate_show_grant(gate, lease->id, grant, RESPONSE_TIMEOUT, &reply);
    if (!admitted)
        fprintf(stderr, "gsaas: lease %s cannot be used from here: the gate at %s says: %s\n", lease->id, gate,
                reply.bytes);
    text_free(&reply);
    if (!admitted)
        return STATUS_FAILED;
    text_free(&lease->environment);
    return fetch_environment(lease, response);
}

/* Print the position of a lease in the queue to a terminal, if it has changed. */
static void print_queue_position(const json_t *lease)
{
    const json_t *queue = json_object_get(lease, "queue");
    const json_t *position = json_object_get(queue, "position"), *length = json_object_get(queue, "length");
    static json_int_t last = -1;
    if (position && length && json_integer_value(position) != last && isatty(STDERR_FILENO)) {
        char estimate[ESTIMATE_SIZE];
        describe_estimate(queue, estimate);
        last = json_integer_value(position);
        fprintf(stderr, "gsaas: waiting for cGPUs: %lld of %lld in the queue%s%s\n", (long long)last,
                (long long)json_integer_value(length), *estimate ? ", " : "", estimate);
    }
}

/* Print why a lease has ended, and return the exit status for it. */
static int report_end(const json_t *lease, const char *status)
{
    const json_t *fault = json_object_get(lease, "fault");
    const char *reason = text_of(fault, "message");
    fprintf(stderr, "gsaas: the cGPUs cannot be used, the lease is %s%s%s\n", status, reason ? ": " : "",
            reason ? reason : "");
    return equals(text_of(fault, "step"), "queue") ? STATUS_BUSY : STATUS_FAILED;
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
    be_patient(lease->api, LONG_POLL);
    enum outcome outcome = request_lease(lease, "GET", tail.bytes, RESPONSE_TIMEOUT, lease->interrupt, response);
    text_free(&tail);
    *new_status = NULL;
    if (outcome == COMPLETED && response->status == 200) {
        const json_t *found = json_object_get(response->document, "lease");
        const char *known = text_of(found, "status");
        *new_status = known ? text_copy(known) : NULL;
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
        bool failed = outcome == FAILED || outcome == UNSENT;
        bool away = failed || (outcome == COMPLETED && response->status >= 500);
        silent = away ? silent + 1 : 0;
        if (outcome == INTERRUPTED || (away && silent > OUTAGE_TIMEOUT) || (!away && !new_status)) {
            free(status);
            if (outcome == INTERRUPTED)
                return LEASE_INTERRUPTED;
            return failed ? report_unreachable(lease->api) : report_refusal(response);
        }
        /* The API is away, or has too many waiting clients to delay this response: do not ask again at once. */
        bool unchanged = away || strcmp(new_status, status) == 0;
        if (new_status) {
            free(status);
            status = new_status;
        }
        if (unchanged && time(NULL) - started_at < LONG_POLL / 2 && sleep_interrupted(lease)) {
            free(status);
            return LEASE_INTERRUPTED;
        }
    }
    int result = 0;
    if (!status || strcmp(status, "ACTIVE") != 0)
        result = report_end(json_object_get(response->document, "lease"), status ? status : "unknown");
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

/* Read the lease in the response to its request, and wait until it is ACTIVE; return as lease_allocate does. */
static int take_lease(struct lease *lease, struct response *response)
{
    const json_t *found = json_object_get(response->document, "lease");
    const char *id = text_of(found, "id"), *status = text_of(found, "status");
    if (!id || strspn(id, "0123456789abcdef-") != strlen(id)) {
        print_error("the API's answer has no lease");
        return STATUS_FAILED;
    }
    lease->id = text_copy(id);
    if (response->status == 201 && add_variables(lease, json_object_get(response->document, "environment")))
        return 0;
    text_free(&lease->environment);
    print_queue_position(found);
    return await_active(lease, status ? text_copy(status) : NULL, response);
}

/* After an interrupt, find the lease that the request has made or makes, whose response is lost: the same request, sent
 * again with its key, returns it, and the caller releases it. Return as lease_allocate does. */
static int find_interrupted(struct lease *lease, const struct request *request, const char *key,
                            struct response *response)
{
    if (!*key || api_exchange(lease->api, "POST", "/v1/leases", request->version, request->body, AFTER_INTERRUPT, -1,
                              false, key, response) != COMPLETED || response->status >= 500)
        return LEASE_MAY_STAY;
    const char *id = text_of(json_object_get(response->document, "lease"), "id");
    if (id)
        lease->id = text_copy(id);
    return LEASE_INTERRUPTED;
}

int lease_allocate(struct lease *lease, const struct request *request)
{
    struct response response = {0};
    int result;
    /* Without a terminal, where progress would be shown, the API delays its response until the wait is over, and ends the
     * lease of a client that closes the connection. With a key, it keeps the lease of a client whose connection broke, so
     * that the request can be sent again. */
    bool long_poll = request->waits && !isatty(STDERR_FILENO);
    char path[40] = "/v1/leases", key[KEY_BYTES * 2 + 1] = "";
    if (long_poll)
        snprintf(path, sizeof path, "/v1/leases?timeout=%d", LONG_POLL);
    else
        make_key(key);
    be_patient(lease->api, 0);
    enum outcome outcome = api_exchange(lease->api, "POST", path, request->version, request->body, RESPONSE_TIMEOUT,
                                        lease->interrupt, false, *key ? key : NULL, &response);
    bool over_tls = strncmp(lease->api->url, "https:", 6) == 0;
    lease->api->patience = 0;
    if (outcome == INTERRUPTED)
        result = long_poll ? LEASE_INTERRUPTED : find_interrupted(lease, request, key, &response);
    else if (outcome == UNSENT && (over_tls || lease->api->cached))
        result = LEASE_LEFT; /* gsaas-cli knows more about certificates, and asks Keystone where the API is now */
    else if (outcome != COMPLETED)
        result = report_unreachable(lease->api);
    else if (response.status == UNAUTHORIZED && lease->api->cached) {
        token_cache_drop(lease->api);
        result = LEASE_LEFT;
    } else if (lease->api->cached && is_of_others(&response)) {
        token_cache_drop(lease->api);
        /* What answers 404 knows no leases. Any other may have passed the request on, and gsaas-cli has another key. */
        result = response.status == 404 ? LEASE_LEFT : report_refusal(&response);
    } else if (response.status == BAD_REQUEST)
        result = LEASE_LEFT; /* nothing was made, and gsaas-cli says it in the words of the options */
    else if (response.status != 201 && response.status != 202)
        result = report_refusal(&response);
    else
        result = take_lease(lease, &response);
    if (result == 0)
        result = redeem_grant(lease, &response);
    response_free(&response);
    lease->api->patience = 0;
    lease->hurried = result == LEASE_INTERRUPTED;
    if (result != 0 && lease->id && !lease_release(lease) && result == LEASE_INTERRUPTED)
        return LEASE_MAY_STAY;
    return result;
}

bool lease_keep_alive(struct lease *lease)
{
    struct response response = {0};
    bool alive = true;
    if (request_lease(lease, "POST", "/keepalive", CLEANUP_TIMEOUT, -1, &response) == COMPLETED) {
        const char *status = text_of(json_object_get(response.document, "lease"), "status");
        alive = response.status != 404 && !equals(status, "RELEASING") && !equals(status, "ERROR");
    }
    response_free(&response);
    return alive;
}

bool lease_release(struct lease *lease)
{
    struct response response = {0};
    int seconds = lease->hurried ? AFTER_INTERRUPT : CLEANUP_TIMEOUT;
    bool released = request_lease(lease, "DELETE", "", seconds, -1, &response) == COMPLETED
                    && (response.status < 300 || response.status == 404);
    if (!released)
        fprintf(stderr, "gsaas: lease %s could not be released; it ends by itself within %d s\n", lease->id,
                KEEPALIVE);
    response_free(&response);
    return released;
}
