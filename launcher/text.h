/* SPDX-License-Identifier: Apache-2.0 */
/* A buffer for bytes that grows. Without memory the program exits: a lease that exists then ends by itself, because it
 * is not kept alive any more. */
#ifndef GSAAS_TEXT_H
#define GSAAS_TEXT_H

#include <stddef.h>

struct text {
    char *bytes; /* NULL until something is added; then it ends with NUL */
    size_t length, capacity;
};

void text_add(struct text *text, const char *bytes, size_t length);
void text_print(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

/* Reserve space for *more* bytes and return where it begins. The caller fills it and adds the bytes to `length`. */
char *text_reserve(struct text *text, size_t more);

/* Return a copy of a string, for the caller to free. */
char *text_copy(const char *string);

#endif
