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

enum { MOST_BYTES = 1 << 20, PIECE = 4096 };

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
    int one = 1, kept = EHOSTUNREACH;
    if (server->socket >= 0)
        return true;
    if (getaddrinfo(server->host, server->port, &hints, &found) != 0) {
        errno = EHOSTUNREACH;
        return false;
    }
    for (struct addrinfo *at = found; at && server->socket < 0; at = at->ai_next) {
        int made = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (made >= 0 && connect(made, at->ai_addr, at->ai_addrlen) == 0) {
            setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            server->socket = made;
        } else {
            kept = errno;
            if (made >= 0)
                close(made);
        }
    }
    freeaddrinfo(found);
    errno = kept;
    return server->socket >= 0;
}

enum outcome http_send(struct server *server, const struct text *request)
{
    for (size_t sent = 0; sent < request->length;) {
        ssize_t now = send(server->socket, request->bytes + sent, request->length - sent, MSG_NOSIGNAL);
        if (now < 0)
            return NO_ANSWER;
        sent += (size_t)now;
    }
    return ANSWERED;
}

enum outcome http_receive(struct server *server, struct text *text, int seconds, int interrupt)
{
    struct pollfd awaited[] = {{server->socket, POLLIN, 0}, {interrupt, POLLIN, 0}};
    ssize_t now;
    if (text->length > MOST_BYTES) {
        errno = EMSGSIZE;
        return NO_ANSWER;
    }
    int ready;
    do
        ready = poll(awaited, 2, seconds * 1000);
    while (ready < 0 && errno == EINTR);
    if (ready == 0)
        errno = ETIMEDOUT;
    if (ready <= 0)
        return NO_ANSWER;
    if (!awaited[0].revents)
        return INTERRUPTED;
    now = recv(server->socket, text_room(text, PIECE), PIECE, 0);
    if (now <= 0) {
        if (now == 0)
            errno = ECONNRESET;
        return NO_ANSWER;
    }
    text->length += (size_t)now;
    text->bytes[text->length] = '\0';
    return ANSWERED;
}

/* The value of a header of an answer's head, or NULL. */
static const char *header(const char *head, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, length) == 0 && line[2 + length] == ':')
            return line + 3 + length + strspn(line + 3 + length, " \t");
    return NULL;
}

static bool says(const char *value, const char *word)
{
    return value && strncasecmp(value, word, strlen(word)) == 0;
}

/* Where the body of a chunked message ends in *raw*, or 0 if it has not come yet; its content goes to *body*. */
static size_t unchunk(const struct text *raw, size_t at, struct text *body)
{
    body->length = 0;
    for (;;) {
        char *end;
        const char *line = raw->bytes + at;
        const char *next = strstr(line, "\r\n");
        if (!next)
            return 0;
        size_t size = strtoul(line, &end, 16);
        if (end == line || size > MOST_BYTES)
            return 0; /* what comes is not chunks: more of it changes nothing, and its end fails the exchange */
        at = (size_t)(next - raw->bytes) + 2;
        if (size == 0) { /* trailers, then an empty line */
            const char *over = strncmp(raw->bytes + at, "\r\n", 2) == 0 ? raw->bytes + at
                                                                        : strstr(raw->bytes + at, "\r\n\r\n");
            return over ? (size_t)(over - raw->bytes) + 2 : 0;
        }
        if (raw->length < at + size + 2)
            return 0;
        text_add(body, raw->bytes + at, size);
        at += size + 2;
    }
}

static enum outcome read_answer(struct server *server, int seconds, int interrupt, struct answer *answer)
{
    struct text raw = {0};
    char *end = NULL;
    enum outcome outcome = ANSWERED;

    while (outcome == ANSWERED && !(raw.bytes && (end = strstr(raw.bytes, "\r\n\r\n"))))
        outcome = http_receive(server, &raw, seconds, interrupt);
    if (outcome == ANSWERED && (strncmp(raw.bytes, "HTTP/1.", 7) != 0 || raw.length < 12)) {
        errno = EPROTO;
        outcome = NO_ANSWER;
    }
    if (outcome != ANSWERED) {
        text_free(&raw);
        return outcome;
    }
    size_t begin = (size_t)(end - raw.bytes) + 4;
    end[2] = '\0'; /* headers are looked for in the head only */
    answer->status = atoi(raw.bytes + 9);
    const char *length = header(raw.bytes, "Content-Length");
    size_t wanted = length ? strtoul(length, NULL, 10) : 0;
    bool chunked = says(header(raw.bytes, "Transfer-Encoding"), "chunked");
    bool closes = says(header(raw.bytes, "Connection"), "close") || strncmp(raw.bytes, "HTTP/1.0", 8) == 0;

    if (chunked) {
        while (outcome == ANSWERED && unchunk(&raw, begin, &answer->body) == 0)
            outcome = http_receive(server, &raw, seconds, interrupt);
    } else if (length) {
        while (outcome == ANSWERED && raw.length - begin < wanted)
            outcome = http_receive(server, &raw, seconds, interrupt);
        if (outcome == ANSWERED)
            text_add(&answer->body, raw.bytes + begin, wanted);
    } else if (answer->status != 204) {
        closes = true;
        while (outcome == ANSWERED)
            outcome = http_receive(server, &raw, seconds, interrupt);
        if (outcome == NO_ANSWER && errno == ECONNRESET) {
            outcome = ANSWERED;
            text_add(&answer->body, raw.bytes + begin, raw.length - begin);
        }
    }
    text_free(&raw);
    if (closes)
        http_close(server);
    return outcome;
}

enum outcome http_exchange(struct server *server, const char *method, const char *path, const char *body, int seconds,
                           int interrupt, bool again, struct answer *answer)
{
    struct text request = {0};
    bool six = strchr(server->host, ':') != NULL;
    text_print(&request,
               "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nX-Auth-Token: %s\r\nAccept: application/json\r\n"
               "OpenStack-API-Version: gpu-scheduling 1.0\r\n",
               method, server->path, path, six ? "[" : "", server->host, six ? "]" : "", server->port, server->token);
    if (body)
        text_print(&request, "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    else
        text_print(&request, "\r\n");

    enum outcome outcome = NO_ANSWER;
    for (bool stale = true; stale;) {
        stale = again && server->socket >= 0 && server->used;
        answer->status = 0;
        answer->body.length = 0;
        if (!http_connect(server))
            break;
        outcome = http_send(server, &request);
        if (outcome == ANSWERED)
            outcome = read_answer(server, seconds, interrupt, answer);
        if (outcome == ANSWERED) {
            server->used = server->socket >= 0;
            break;
        }
        int why = errno;
        http_close(server);
        errno = why;
        if (outcome == INTERRUPTED || why == ETIMEDOUT)
            break;
    }
    text_free(&request);
    return outcome;
}
