/* SPDX-License-Identifier: Apache-2.0 */
/* A strict JSON reader (RFC 8259) without a tree: a value is the position in the text where it begins.
 *
 * Every function accepts NULL as a position and then returns NULL or false, so that calls can be nested and checked
 * once, at the end. Texts end with a NUL byte.
 */
#ifndef GSAAS_JSON_H
#define GSAAS_JSON_H

#include <stdbool.h>

/* Return the value in *text*, or NULL unless the text is exactly one JSON value. */
const char *json_document(const char *text);

/* Return the value of a member of an object, or NULL if there is none. */
const char *json_member(const char *object, const char *name);

/* Return the first element of an array, or the element after *element*; NULL at the end. */
const char *json_first(const char *array);
const char *json_after(const char *element);

/* Return the content of a string as UTF-8, for the caller to free; NULL if it is not a string, or contains NUL. */
char *json_text(const char *string);

/* Whether the value is a string with this content. */
bool json_equals(const char *string, const char *content);

/* Iterate over an object's members: *cursor* is the object before the first call, and is advanced by each call. Return
 * the value and set *name*, which the caller frees. Return NULL at the end, and for a value that is not an object. */
const char *json_each(const char **cursor, char **name);

#endif
