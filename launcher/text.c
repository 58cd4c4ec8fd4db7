/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <err.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

char *text_reserve(struct text *text, size_t more)
{
    size_t needed = text->length + more + 1;
    if (needed > text->capacity) {
        text->capacity = needed > 2 * text->capacity ? needed : 2 * text->capacity;
        text->bytes = realloc(text->bytes, text->capacity);
        if (!text->bytes)
            errx(STATUS_FAILED, "no memory");
    }
    return text->bytes + text->length;
}

void text_add(struct text *text, const char *bytes, size_t length)
{
    memcpy(text_reserve(text, length), bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void text_print(struct text *text, const char *format, ...)
{
    va_list measured, printed;
    va_start(measured, format);
    va_copy(printed, measured);
    int length = vsnprintf(NULL, 0, format, measured);
    va_end(measured);
    if (length > 0) {
        vsnprintf(text_reserve(text, (size_t)length), (size_t)length + 1, format, printed);
        text->length += (size_t)length;
    }
    va_end(printed);
}

void text_free(struct text *text)
{
    free(text->bytes);
    *text = (struct text){0};
}

char *text_copy(const char *string)
{
    char *copied = strdup(string);
    if (!copied)
        errx(STATUS_FAILED, "no memory");
    return copied;
}
