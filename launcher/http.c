/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_BYTES = 1 << 20, READ_SIZE = 4096 };

void http_close(struct server *server)
{
    if (server->socket >= 0)
        close(server->socket);
    server->socket = -1;
    server->used = false;
}

bool http_connect(struct server *server)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    int enabled = 1, saved_errno = EHOSTUNREACH;
    if (server->socket >= 0)
        return true;
    if (getaddrinfo(server->host, server->port, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return false;
    }
    for (struct addrinfo *at = found; at && server->socket < 0; at = at->ai_next) {
        int descriptor = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (descriptor >= 0 && connect(descriptor, at->ai_addr, at->ai_addrlen) == 0) {
            setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &enabled, sizeof enabled);
            server->socket = descriptor;
        } else {
            saved_errno = errno;
            if (descriptor >= 0)
                close(descriptor);
        }
    }
    freeaddrinfo(found);
    errno = saved_errno;
    return server->socket >= 0;
}

enum outcome http_send(struct server *server, const struct text *request)
{
    for (size_t sent = 0; sent < request->length;) {
        ssize_t count = send(server->socket, request->bytes + sent, request->length - sent, MSG_NOSIGNAL);
        if (count < 0)
            return FAILED;
        sent += (size_t)count;
    }
    return COMPLETED;
}

enum outcome http_receive(struct server *server, struct text *text, int seconds, int interrupt)
{
    struct pollfd polled[] = {{server->socket, POLLIN, 0}, {interrupt, POLLIN, 0}};
    ssize_t count;
    if (text->length > MAX_BYTES) {
        errno = EMSGSIZE;
        return FAILED;
    }
    int ready;
    do
        ready = poll(polled, 2, seconds * 1000);
    while (ready < 0 && errno == EINTR);
    if (ready == 0)
        errno = ETIMEDOUT;
    if (ready <= 0)
        return FAILED;
    if (!polled[0].revents)
        return INTERRUPTED;
    count = recv(server->socket, text_reserve(text, READ_SIZE), READ_SIZE, 0);
    if (count <= 0) {
        if (count == 0)
            errno = ECONNRESET;
        return FAILED;
    }
    text->length += (size_t)count;
    text->bytes[text->length] = '\0';
    return COMPLETED;
}

/* Return the value of a header field in the head of a response, or NULL. It ends with CR. */
static const char *header(const char *head, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, length) == 0 && line[2 + length] == ':')
            return line + 3 + length + strspn(line + 3 + length, " \t");
    return NULL;
}

/* Whether the value of a header field, or NULL, begins with this word. */
static bool has_value(const char *value, const char *word)
{
    return value && strncasecmp(value, word, strlen(word)) == 0;
}

/* Decode the chunks in *raw* from the index *at* on into *body*. Return the index of their end, or 0 if it has not been
 * received yet. */
static size_t decode_chunks(const struct text *raw, size_t at, struct text *body)
{
    body->length = 0;
    for (;;) {
        char *end;
        const char *line = raw->bytes + at;
        const char *next = strstr(line, "\r\n");
        if (!next)
            return 0;
        size_t size = strtoul(line, &end, 16);
        if (end == line || size > MAX_BYTES)
            return 0; /* invalid: no further bytes make it valid, so the exchange fails at the end of the stream */
        at = (size_t)(next - raw->bytes) + 2;
        if (size == 0) { /* the last chunk: trailers follow, then an empty line */
            const char *trailer_end = strncmp(raw->bytes + at, "\r\n", 2) == 0 ? raw->bytes + at
                                                                               : strstr(raw->bytes + at, "\r\n\r\n");
            return trailer_end ? (size_t)(trailer_end - raw->bytes) + 2 : 0;
        }
        if (raw->length < at + size + 2)
            return 0;
        text_add(body, raw->bytes + at, size);
        at += size + 2;
    }
}

static enum outcome read_response(struct server *server, int seconds, int interrupt, struct response *response)
{
    struct text raw = {0};
    char *end = NULL;
    enum outcome outcome = COMPLETED;

    while (outcome == COMPLETED && !(raw.bytes && (end = strstr(raw.bytes, "\r\n\r\n"))))
        outcome = http_receive(server, &raw, seconds, interrupt);
    if (outcome == COMPLETED && (strncmp(raw.bytes, "HTTP/1.", 7) != 0 || raw.length < 12)) {
        errno = EPROTO;
        outcome = FAILED;
    }
    if (outcome != COMPLETED) {
        text_free(&raw);
        return outcome;
    }
    size_t body_start = (size_t)(end - raw.bytes) + 4;
    end[2] = '\0'; /* so that header fields are searched in the head only */
    response->status = atoi(raw.bytes + 9);
    const char *length = header(raw.bytes, "Content-Length");
    size_t body_length = length ? strtoul(length, NULL, 10) : 0;
    bool chunked = has_value(header(raw.bytes, "Transfer-Encoding"), "chunked");
    bool will_close =
        has_value(header(raw.bytes, "Connection"), "close") || strncmp(raw.bytes, "HTTP/1.0", 8) == 0;

    if (chunked) {
        while (outcome == COMPLETED && decode_chunks(&raw, body_start, &response->body) == 0)
            outcome = http_receive(server, &raw, seconds, interrupt);
    } else if (length) {
        while (outcome == COMPLETED && raw.length - body_start < body_length)
            outcome = http_receive(server, &raw, seconds, interrupt);
        if (outcome == COMPLETED)
            text_add(&response->body, raw.bytes + body_start, body_length);
    } else if (response->status != 204) {
        will_close = true;
        while (outcome == COMPLETED)
            outcome = http_receive(server, &raw, seconds, interrupt);
        if (outcome == FAILED && errno == ECONNRESET) {
            outcome = COMPLETED;
            text_add(&response->body, raw.bytes + body_start, raw.length - body_start);
        }
    }
    text_free(&raw);
    if (will_close)
        http_close(server);
    return outcome;
}

enum outcome http_exchange(struct server *server, const char *method, const char *path, const char *body, int seconds,
                           int interrupt, bool idempotent, const char *key, struct response *response)
{
    struct text request = {0};
    bool is_ipv6 = strchr(server->host, ':') != NULL;
    text_print(&request,
               "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nX-Auth-Token: %s\r\nAccept: application/json\r\n"
               "OpenStack-API-Version: gpu-scheduling 1.0\r\n",
               method, server->path, path, is_ipv6 ? "[" : "", server->host, is_ipv6 ? "]" : "", server->port,
               server->token);
    if (key)
        text_print(&request, "Idempotency-Key: %s\r\n", key);
    if (body)
        text_print(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    else
        text_print(&request, "\r\n");

    enum outcome outcome = FAILED;
    bool again = true;
    for (int attempt = 1; again; attempt++) {
        again = key ? attempt == 1 : idempotent && server->socket >= 0 && server->used;
        response->status = 0;
        response->body.length = 0;
        if (!http_connect(server))
            break;
        outcome = http_send(server, &request);
        if (outcome == COMPLETED)
            outcome = read_response(server, seconds, interrupt, response);
        if (outcome == COMPLETED) {
            server->used = server->socket >= 0;
            break;
        }
        int saved_errno = errno;
        http_close(server);
        errno = saved_errno;
        if (outcome == INTERRUPTED || saved_errno == ETIMEDOUT)
            break;
    }
    text_free(&request);
    return outcome;
}
