/* SPDX-License-Identifier: Apache-2.0 */
#include "connection.h"

#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#include "address.h"
#include "python.h"
#include "status.h"
#include "tls.h"

enum { MAX_HEAD = 1 << 16, MAX_BODY = 1 << 20 };

struct connection {
    struct event_base *base;
    struct evhttp_uri *url;
    char *host;                     /* without the brackets of an IPv6 address */
    bool over_tls;
    const char *bundle;
    struct evhttp_connection *http; /* NULL: closed */
};

/* An exchange that goes on. */
struct progress {
    struct connection *connection;
    struct exchange *exchange;
    bool ended, completed, sent, interrupted;
    bool kept; /* the connection can carry another exchange */
    bufferevent_event_cb connected; /* evhttp's own, and what it is given */
    void *evhttp;
};

static void *checked(void *made)
{
    if (!made)
        errx(STATUS_FAILED, "no memory");
    return made;
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static void ignore(int severity, const char *message)
{
    (void)severity;
    (void)message;
}

struct connection *connection_new(const char *url, const char *bundle)
{
    struct evhttp_uri *parsed = evhttp_uri_parse(url);
    const char *host = parsed ? evhttp_uri_get_host(parsed) : NULL, *scheme = parsed ? evhttp_uri_get_scheme(parsed) : NULL;
    if (!host || !*host || !scheme) {
        if (parsed)
            evhttp_uri_free(parsed);
        return NULL;
    }
    struct connection *connection = checked(calloc(1, sizeof *connection));
    struct event_config *config = checked(event_config_new());
    event_set_log_callback(ignore); /* every failure is reported by whoever asked */
    event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_IGNORE_ENV);
    connection->base = checked(event_base_new_with_config(config));
    event_config_free(config);
    connection->url = parsed;
    connection->host = text_copy(host + (*host == '['));
    connection->host[strcspn(connection->host, "]")] = '\0';
    connection->over_tls = strcmp(scheme, "https") == 0;
    connection->bundle = bundle;
    return connection;
}

bool connection_is_open(const struct connection *connection)
{
    return connection->http != NULL;
}

static void close_connection(struct connection *connection)
{
    if (connection->http)
        evhttp_connection_free(connection->http);
    connection->http = NULL;
    event_base_loop(connection->base, EVLOOP_NONBLOCK); /* libevent frees and closes there */
}

static void explain(struct exchange *exchange, const char *reason)
{
    snprintf(exchange->reason, sizeof exchange->reason, "%s", reason);
}

/* Whether the response says where it ends; otherwise the end of the connection is its end. */
static bool says_its_end(struct evhttp_request *request)
{
    struct evkeyvalq *headers = evhttp_request_get_input_headers(request);
    const char *encoding = evhttp_find_header(headers, "Transfer-Encoding");
    return evhttp_find_header(headers, "Content-Length") || (encoding && strcasecmp(encoding, "chunked") == 0)
           || evhttp_request_get_response_code(request) == HTTP_NOCONTENT;
}

/* evhttp has the response, or gives up. */
static void end(struct evhttp_request *request, void *data)
{
    struct progress *progress = data;
    struct exchange *exchange = progress->exchange;
    progress->ended = true;
    if (request && evhttp_request_get_response_code(request)) {
        struct evbuffer *body = evhttp_request_get_input_buffer(request);
        size_t length = evbuffer_get_length(body);
        progress->completed = true;
        progress->kept = says_its_end(request);
        exchange->status = evhttp_request_get_response_code(request);
        evbuffer_remove(body, text_reserve(&exchange->answer, length), length);
        exchange->answer.length += length;
        exchange->answer.bytes[exchange->answer.length] = '\0';
    }
    event_base_loopbreak(progress->connection->base);
}

/* evhttp says why it is going to give up a connection that was open. */
static void note_error(enum evhttp_request_error error, void *data)
{
    struct progress *progress = data;
    struct exchange *exchange = progress->exchange;
    if (error == EVREQ_HTTP_TIMEOUT) {
        exchange->timed_out = true;
        explain(exchange, strerror(ETIMEDOUT));
    } else if (error == EVREQ_HTTP_INVALID_HEADER) {
        explain(exchange, "its answer is not HTTP");
    } else if (error == EVREQ_HTTP_DATA_TOO_LONG) {
        explain(exchange, "its answer is too long");
    } else {
        explain(exchange, errno == ECONNRESET || errno == EPIPE ? strerror(errno) : "it has closed the connection");
    }
}

/* The connection is open, or cannot be opened. evhttp says of the latter only that it is so: the reason is noted before
 * evhttp learns of it. */
static void note_connected(struct bufferevent *stream, short what, void *data)
{
    struct progress *progress = data;
    struct exchange *exchange = progress->exchange;
    if (what & BEV_EVENT_CONNECTED) {
        evhttp_connection_set_timeout(progress->connection->http, exchange->seconds);
    } else if (what & BEV_EVENT_TIMEOUT) {
        exchange->timed_out = true;
        explain(exchange, strerror(ETIMEDOUT));
    } else {
        bool closed = what & BEV_EVENT_EOF || errno == 0 || errno == EAGAIN || errno == EINPROGRESS;
        explain(exchange, closed ? "it does not open the connection" : strerror(errno));
    }
    progress->connected(stream, what, progress->evhttp);
}

static void note_sent(struct evbuffer *output, const struct evbuffer_cb_info *change, void *data)
{
    struct progress *progress = data;
    (void)output;
    progress->sent = progress->sent || change->n_added > 0;
}

static void note_timeout(int descriptor, short what, void *data)
{
    struct progress *progress = data;
    (void)descriptor;
    (void)what;
    progress->exchange->timed_out = true;
    explain(progress->exchange, strerror(ETIMEDOUT));
    event_base_loopbreak(progress->connection->base);
}

static void note_slowness(int descriptor, short what, void *data)
{
    struct exchange *exchange = ((struct progress *)data)->exchange;
    (void)descriptor;
    (void)what;
    exchange->patience = 0;
    exchange->slow(exchange);
}

static void note_interrupt(int descriptor, short what, void *data)
{
    struct progress *progress = data;
    (void)descriptor;
    (void)what;
    progress->interrupted = true;
    event_base_loopbreak(progress->connection->base);
}

/* Run events until the exchange has ended, its seconds are over, or it is interrupted. */
static void await_end(struct progress *progress, int seconds)
{
    struct event_base *base = progress->connection->base;
    struct timeval limit = {seconds, 0}, patience = {progress->exchange->patience, 0};
    struct event *timer = checked(evtimer_new(base, note_timeout, progress)), *interrupt = NULL;
    struct event *slow = checked(evtimer_new(base, note_slowness, progress));
    evtimer_add(timer, &limit);
    if (progress->exchange->patience)
        evtimer_add(slow, &patience);
    if (progress->exchange->interrupt >= 0) {
        interrupt = checked(event_new(base, progress->exchange->interrupt, EV_READ, note_interrupt, progress));
        event_add(interrupt, NULL);
    }
    event_base_dispatch(base);
    event_free(timer);
    event_free(slow);
    if (interrupt)
        event_free(interrupt);
}

static enum evhttp_cmd_type command_of(const char *method)
{
    if (strcmp(method, "POST") == 0)
        return EVHTTP_REQ_POST;
    return strcmp(method, "DELETE") == 0 ? EVHTTP_REQ_DELETE : EVHTTP_REQ_GET;
}

/* Return the request, which belongs to evhttp as soon as it is made. */
static struct evhttp_request *make_request(struct progress *progress)
{
    const struct connection *connection = progress->connection;
    const struct exchange *exchange = progress->exchange;
    struct evhttp_request *request = checked(evhttp_request_new(end, progress));
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    struct text host = {0};
    int port = evhttp_uri_get_port(connection->url);
    text_print(&host, "%s", evhttp_uri_get_host(connection->url));
    if (port > 0)
        text_print(&host, ":%d", port);
    evhttp_add_header(headers, "Host", host.bytes);
    text_free(&host);
    for (const struct header *header = exchange->headers; header->name; header++)
        evhttp_add_header(headers, header->name, header->value);
    if (exchange->body)
        evbuffer_add(evhttp_request_get_output_buffer(request), exchange->body, strlen(exchange->body));
    evhttp_request_set_error_cb(request, note_error);
    return request;
}

/* Send the request over the connection, which is opened if it is not open, and read the response within so many
 * seconds. */
static enum outcome perform(struct connection *connection, struct exchange *exchange, int seconds)
{
    struct progress progress = {.connection = connection, .exchange = exchange};
    struct bufferevent *stream = evhttp_connection_get_bufferevent(connection->http);
    struct evbuffer *output = bufferevent_get_output(stream);
    struct evbuffer_cb_entry *watch = checked(evbuffer_add_cb(output, note_sent, &progress));
    bool opened = bufferevent_getfd(stream) < 0;
    struct text path = {0};
    text_print(&path, "%s%s", evhttp_uri_get_path(connection->url), exchange->path);
    explain(exchange, "it cannot be reached");
    exchange->timed_out = false;
    exchange->answer.length = 0;
    int failed = evhttp_make_request(connection->http, make_request(&progress), command_of(exchange->method), path.bytes);
    text_free(&path);
    int descriptor = bufferevent_getfd(stream);
    if (opened && descriptor >= 0) {
        int on = 1;
        fcntl(descriptor, F_SETFD, FD_CLOEXEC); /* the command gets none of our connections */
        setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    if (opened && !failed && !progress.ended) {
        bufferevent_getcb(stream, NULL, NULL, &progress.connected, &progress.evhttp);
        bufferevent_setcb(stream, NULL, NULL, note_connected, &progress);
    }
    if (!failed && !progress.ended)
        await_end(&progress, seconds);
    evbuffer_remove_cb_entry(output, watch);
    if (!progress.kept || bufferevent_getfd(stream) < 0)
        close_connection(connection);
    else
        bufferevent_set_timeouts(stream, NULL, NULL); /* minutes may pass until the next exchange, which has a timer */
    if (progress.completed)
        return COMPLETED;
    if (progress.interrupted)
        return INTERRUPTED;
    return progress.sent ? FAILED : UNSENT;
}

/* Return a stream to be connected to the server; NULL if gsaas-tls.so is needed and cannot be used. */
static struct bufferevent *make_stream(const struct connection *connection)
{
    char path[PATH_MAX + sizeof TLS_OBJECT];
    if (!connection->over_tls)
        return checked(bufferevent_socket_new(connection->base, -1, 0)); /* evhttp closes it */
    void *object = beside_program(path, sizeof path, TLS_OBJECT) ? dlopen(path, RTLD_LAZY) : NULL;
    tls_function *function = NULL;
    if (object)
        *(void **)&function = dlsym(object, TLS_FUNCTION);
    return function ? function(connection->base, connection->host, connection->bundle) : NULL;
}

/* Prepare a connection to one of the server's addresses, which has to be open after so many seconds. */
static bool prepare(struct connection *connection, const struct addrinfo *address, int seconds)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    int numeric = NI_NUMERICHOST | NI_NUMERICSERV;
    if (getnameinfo(address->ai_addr, address->ai_addrlen, host, sizeof host, port, sizeof port, numeric) != 0)
        return false;
    struct bufferevent *stream = make_stream(connection);
    if (!stream)
        return false;
    connection->http =
        checked(evhttp_connection_base_bufferevent_new(connection->base, NULL, stream, host, (unsigned short)atoi(port)));
    evhttp_connection_set_max_headers_size(connection->http, MAX_HEAD);
    evhttp_connection_set_max_body_size(connection->http, MAX_BODY);
    evhttp_connection_set_timeout(connection->http, seconds);
    return true;
}

/* Try one address of the server after the other until a connection is open. To look them up cannot be interrupted. */
static enum outcome open_and_perform(struct connection *connection, struct exchange *exchange)
{
    enum outcome outcome = UNSENT;
    char port[sizeof "65535"];
    int number = evhttp_uri_get_port(connection->url), left = 0;
    double deadline = now() + exchange->seconds;
    snprintf(port, sizeof port, "%hu", (unsigned short)(number > 0 ? number : connection->over_tls ? 443 : 80));
    struct addrinfo *found = address_find(connection->host, port, exchange->reason, sizeof exchange->reason);
    for (const struct addrinfo *at = found; at; at = at->ai_next)
        left++;
    for (const struct addrinfo *at = found; at && outcome == UNSENT; at = at->ai_next, left--) {
        int seconds = (int)(deadline - now());
        if (prepare(connection, at, seconds / left > 0 ? seconds / left : 1))
            outcome = perform(connection, exchange, seconds > 0 ? seconds : 1);
        else
            explain(exchange, "TLS cannot be used");
    }
    if (found)
        freeaddrinfo(found);
    return outcome;
}

enum outcome connection_exchange(struct connection *connection, struct exchange *exchange)
{
    if (connection->http) {
        event_base_loop(connection->base, EVLOOP_NONBLOCK); /* evhttp learns whether the server has closed it */
        if (bufferevent_getfd(evhttp_connection_get_bufferevent(connection->http)) < 0)
            close_connection(connection);
    }
    if (!connection->http)
        return open_and_perform(connection, exchange);
    return perform(connection, exchange, exchange->seconds);
}

void connection_free(struct connection *connection)
{
    if (!connection)
        return;
    close_connection(connection);
    event_base_free(connection->base);
    evhttp_uri_free(connection->url);
    free(connection->host);
    free(connection);
}
