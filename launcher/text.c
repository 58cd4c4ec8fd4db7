#include "text.h"

#include <err.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

char *text_room(struct text *text, size_t more)
{
    size_t needed = text->length + more + 1;
    if (needed > text->room) {
        text->room = needed > 2 * text->room ? needed : 2 * text->room;
        text->bytes = realloc(text->bytes, text->room);
        if (!text->bytes)
            errx(STATUS_FAILED, "no memory");
    }
    return text->bytes + text->length;
}

void text_add(struct text *text, const char *bytes, size_t length)
{
    memcpy(text_room(text, length), bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void text_print(struct text *text, const char *format, ...)
{
    va_list once, again;
    va_start(once, format);
    va_copy(again, once);
    int length = vsnprintf(NULL, 0, format, once);
    va_end(once);
    if (length > 0) {
        vsnprintf(text_room(text, (size_t)length), (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void text_json(struct text *text, const char *content)
{
    text_add(text, "\"", 1);
    for (const char *at = content; *at; at++) {
        if ((unsigned char)*at < 0x20)
            text_print(text, "\\u%04x", (unsigned)*at);
        else if (*at == '"' || *at == '\\')
            text_print(text, "\\%c", *at);
        else
            text_add(text, at, 1);
    }
    text_add(text, "\"", 1);
}

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}
