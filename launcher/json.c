/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 };

static const char *skip_value(const char *at, int depth);

static const char *skip_space(const char *at)
{
    return at ? at + strspn(at, " \t\r\n") : NULL;
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static int hex(const char *at)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        char byte = at[i];
        int digit = is_digit(byte)               ? byte - '0'
                    : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                    : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static const char *skip_string(const char *at)
{
    if (*at++ != '"')
        return NULL;
    while (*at != '"') {
        if ((unsigned char)*at < 0x20)
            return NULL;
        if (*at == '\\') {
            at++;
            if (*at == 'u') {
                if (hex(at + 1) < 0)
                    return NULL;
                at += 4;
            } else if (!*at || !strchr("\"\\/bfnrt", *at)) {
                return NULL;
            }
        }
        at++;
    }
    return at + 1;
}

static const char *skip_digits(const char *at)
{
    if (!is_digit(*at))
        return NULL;
    while (is_digit(*at))
        at++;
    return at;
}

static const char *skip_number(const char *at)
{
    if (*at == '-')
        at++;
    at = *at == '0' ? at + 1 : skip_digits(at);
    if (at && *at == '.')
        at = skip_digits(at + 1);
    if (at && (*at == 'e' || *at == 'E')) {
        at++;
        at = skip_digits(at + (*at == '+' || *at == '-'));
    }
    return at;
}

/* Skip an array or object of at most *depth* levels, its closing bracket included. */
static const char *skip_container(const char *at, int depth)
{
    bool object = *at == '{';
    char end = object ? '}' : ']';
    if (depth == 0)
        return NULL;
    at = skip_space(at + 1);
    if (*at == end)
        return at + 1;
    for (;;) {
        if (object) {
            at = skip_space(skip_string(at));
            if (!at || *at != ':')
                return NULL;
            at = skip_space(at + 1);
        }
        at = skip_space(skip_value(at, depth - 1));
        if (!at)
            return NULL;
        if (*at == end)
            return at + 1;
        if (*at != ',')
            return NULL;
        at = skip_space(at + 1);
    }
}

static const char *skip_value(const char *at, int depth)
{
    static const char *const words[] = {"true", "false", "null"};
    switch (*at) {
    case '{':
    case '[':
        return skip_container(at, depth);
    case '"':
        return skip_string(at);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(at, words[i], strlen(words[i])) == 0)
            return at + strlen(words[i]);
    return skip_number(at);
}

const char *json_document(const char *text)
{
    const char *begin = skip_space(text);
    const char *end = begin ? skip_space(skip_value(begin, MAX_DEPTH)) : NULL;
    return end && *end == '\0' ? begin : NULL;
}

const char *json_first(const char *array)
{
    if (!array || *array != '[')
        return NULL;
    array = skip_space(array + 1);
    return *array == ']' ? NULL : array;
}

const char *json_after(const char *element)
{
    const char *at = element ? skip_space(skip_value(element, MAX_DEPTH)) : NULL;
    return at && *at == ',' ? skip_space(at + 1) : NULL;
}

const char *json_each(const char **cursor, char **name)
{
    const char *at = *cursor;
    if (!at || (*at != '{' && *at != ','))
        return NULL;
    at = skip_space(at + 1);
    if (*at != '"' || !(*name = json_text(at)))
        return NULL;
    at = skip_space(skip_space(skip_string(at)) + 1);
    *cursor = skip_space(skip_value(at, MAX_DEPTH));
    return at;
}

const char *json_member(const char *object, const char *name)
{
    const char *cursor = object, *value;
    char *known;
    if (!object || *object != '{')
        return NULL;
    while ((value = json_each(&cursor, &known))) {
        bool found = strcmp(known, name) == 0;
        free(known);
        if (found)
            return value;
    }
    return NULL;
}

static char *put_utf8(char *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (char)code;
    } else if (code < 0x800) {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        *out++ = (char)(0xE0 | code >> 12);
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    } else {
        *out++ = (char)(0xF0 | code >> 18);
        *out++ = (char)(0x80 | (code >> 12 & 0x3F));
        *out++ = (char)(0x80 | (code >> 6 & 0x3F));
        *out++ = (char)(0x80 | (code & 0x3F));
    }
    return out;
}

char *json_text(const char *string)
{
    const char *end = string ? skip_string(string) : NULL;
    char *content = end ? malloc((size_t)(end - string)) : NULL;
    char *out = content;
    if (!content)
        return NULL;
    for (const char *at = string + 1; at < end - 1;) {
        if (*at != '\\') {
            *out++ = *at++;
            continue;
        }
        static const char escapes[] = "bfnrt", characters[] = "\b\f\n\r\t";
        const char *escape = strchr(escapes, at[1]);
        if (at[1] != 'u') {
            *out++ = escape ? characters[escape - escapes] : at[1];
            at += 2;
            continue;
        }
        uint32_t code = (uint32_t)hex(at + 2);
        at += 6;
        if (code >= 0xD800 && code < 0xDC00 && at[0] == '\\' && at[1] == 'u') {
            uint32_t low = (uint32_t)hex(at + 2);
            if (low >= 0xDC00 && low < 0xE000) {
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                at += 6;
            }
        }
        if (code == 0 || (code >= 0xD800 && code < 0xE000)) { /* NUL, or half of a surrogate pair */
            free(content);
            return NULL;
        }
        out = put_utf8(out, code);
    }
    *out = '\0';
    return content;
}

bool json_equals(const char *string, const char *content)
{
    char *text = json_text(string);
    bool same = text && strcmp(text, content) == 0;
    free(text);
    return same;
}
