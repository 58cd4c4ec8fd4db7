/* SPDX-License-Identifier: Apache-2.0 */
#include "gate.h"

#include <err.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "status.h"

enum { MAX_REPLY = 64 * 1024 };

/* A line that is sent, and the line that comes back. */
struct dialogue {
    struct text *reply;
    bool connected, completed;
    char reason[256]; /* why it failed */
};

static void explain(struct dialogue *dialogue, const char *reason)
{
    strncpy(dialogue->reason, reason, sizeof dialogue->reason - 1);
}

static void receive(struct bufferevent *stream, void *data)
{
    struct dialogue *dialogue = data;
    struct evbuffer *input = bufferevent_get_input(stream);
    size_t length;
    char *line = evbuffer_readln(input, &length, EVBUFFER_EOL_LF);
    if (line) {
        text_add(dialogue->reply, line, strlen(line));
        free(line);
        dialogue->completed = true;
    } else if (evbuffer_get_length(input) > MAX_REPLY) {
        explain(dialogue, strerror(EMSGSIZE));
    } else {
        return;
    }
    event_base_loopbreak(bufferevent_get_base(stream));
}

static void note(struct bufferevent *stream, short what, void *data)
{
    struct dialogue *dialogue = data;
    dialogue->connected = dialogue->connected || what & BEV_EVENT_CONNECTED;
    if (what & BEV_EVENT_CONNECTED)
        return;
    if (what & BEV_EVENT_TIMEOUT)
        explain(dialogue, strerror(ETIMEDOUT));
    else
        explain(dialogue, what & BEV_EVENT_EOF ? "it has closed the connection" : strerror(errno));
    event_base_loopbreak(bufferevent_get_base(stream));
}

/* Send the line to one address, and read what it replies. */
static void converse(struct event_base *base, const struct addrinfo *address, const struct text *line, int seconds,
                     struct dialogue *dialogue)
{
    struct timeval limit = {seconds, 0};
    struct bufferevent *stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (!stream)
        errx(STATUS_FAILED, "no memory");
    bufferevent_setcb(stream, receive, NULL, note, dialogue);
    bufferevent_set_timeouts(stream, &limit, &limit);
    bufferevent_enable(stream, EV_READ);
    bufferevent_write(stream, line->bytes, line->length);
    if (bufferevent_socket_connect(stream, address->ai_addr, (int)address->ai_addrlen) == 0) {
        fcntl(bufferevent_getfd(stream), F_SETFD, FD_CLOEXEC);
        event_base_dispatch(base);
    } else {
        explain(dialogue, strerror(errno));
    }
    bufferevent_free(stream);
    event_base_loop(base, EVLOOP_NONBLOCK); /* libevent frees and closes there */
}

bool gate_show_grant(const char *gate, const char *lease, const char *grant, int seconds, struct text *reply)
{
    struct dialogue dialogue = {.reply = reply};
    struct text line = {0}, host = {0};
    const char *colon = strrchr(gate, ':');
    bool bracketed = *gate == '[' && colon > gate + 1 && colon[-1] == ']';
    struct event_base *base = event_base_new();
    if (!base)
        errx(STATUS_FAILED, "no memory");
    text_print(&line, "%s %s\n", lease, grant);
    text_add(&host, gate + bracketed, (size_t)(colon - gate) - 2 * bracketed);
    struct addrinfo *found = address_find(host.bytes, colon + 1, dialogue.reason, sizeof dialogue.reason);
    for (const struct addrinfo *at = found; at && !dialogue.connected; at = at->ai_next)
        converse(base, at, &line, seconds, &dialogue);
    if (!dialogue.completed)
        text_print(reply, "%s", dialogue.reason);
    if (found)
        freeaddrinfo(found);
    event_base_free(base);
    text_free(&line);
    text_free(&host);
    return dialogue.completed && strcmp(reply->bytes, "admitted") == 0;
}
