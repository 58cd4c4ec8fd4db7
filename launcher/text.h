/* Text that grows. What it needs and cannot have ends the program: there is nothing to give back yet, or the engine
 * gives it back. */
#ifndef GSAAS_TEXT_H
#define GSAAS_TEXT_H

#include <stddef.h>

struct text {
    char *bytes; /* with a NUL at the end, once anything was added */
    size_t length, room;
};

void text_add(struct text *text, const char *bytes, size_t length);
void text_print(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_free(struct text *text);

/* Room for so many bytes more, to be filled by the caller, who then counts them in `length`. */
char *text_room(struct text *text, size_t more);

/* A JSON string of *content*. */
void text_json(struct text *text, const char *content);

#endif
