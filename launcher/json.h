/* A strict reader of JSON (RFC 8259) that stands in a text and steps over values.
 *
 * A position is where a value begins, after any space. Every function takes NULL for a position and then returns NULL
 * or false, so that steps can be chained and looked at once, at the end. Texts end with a NUL byte.
 */
#ifndef GSAAS_JSON_H
#define GSAAS_JSON_H

#include <stdbool.h>

/* The value that *text* consists of, or NULL unless it is one JSON value and nothing else. */
const char *json_document(const char *text);

/* The value of a member of an object. */
const char *json_member(const char *object, const char *name);

/* The first element of an array, or the element after *element*; NULL at the end. */
const char *json_first(const char *array);
const char *json_after(const char *element);

/* A string's content as UTF-8, to be freed; NULL if it is no string, or contains NUL. */
char *json_text(const char *string);

/* Whether it is a string with this content. */
bool json_is(const char *string, const char *content);

/* The names and values of an object's members, one after the other: *cursor* begins as the object and is moved on.
 * The name is to be freed. NULL at the end, and for what is no object. */
const char *json_each(const char **cursor, char **name);

#endif
