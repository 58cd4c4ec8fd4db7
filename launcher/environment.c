/* SPDX-License-Identifier: Apache-2.0 */
#include "environment.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

static const char SEARCH_PATH[] = "LD_LIBRARY_PATH=";

/* Whether the entries of a search path *ours* follow one another in *theirs*, too. */
static bool is_part_of(const char *ours, const char *theirs)
{
    size_t length = strlen(ours);
    for (const char *at = theirs; (at = strstr(at, ours)); at++)
        if ((at == theirs || at[-1] == ':') && (at[length] == ':' || at[length] == '\0'))
            return true;
    return false;
}

/* Add to *added* a search path of the lease's directories and the user's, if both have some. The variable that is added
 * last is the one that counts. */
static void extend_search_path(struct text *added)
{
    const char *theirs = getenv("LD_LIBRARY_PATH"), *ours = NULL;
    size_t name_length = sizeof SEARCH_PATH - 1;
    for (size_t at = 0; at < added->length; at += strlen(added->bytes + at) + 1)
        if (strncmp(added->bytes + at, SEARCH_PATH, name_length) == 0)
            ours = added->bytes + at + name_length;
    if (!theirs || !*theirs || !ours || !*ours)
        return;
    char *first = text_copy(ours); /* the buffer may move when it grows */
    bool complete = is_part_of(first, theirs);
    text_print(added, "%s%s%s%s", SEARCH_PATH, complete ? "" : first, complete ? "" : ":", theirs);
    text_add(added, "", 1);
    free(first);
}

/* Return the place of the variable in *entry* among *count* entries; *count* if it is not there. */
static size_t find(char *const *entries, size_t count, const char *entry)
{
    size_t name_length = strcspn(entry, "=") + 1, at = 0;
    while (at < count && strncmp(entry, entries[at], name_length) != 0)
        at++;
    return at;
}

char **environment_merge(struct text *added)
{
    size_t own_count = 0, added_count = 0, count = 0;
    extend_search_path(added);
    const char *end = added->bytes + added->length;
    while (environ[own_count])
        own_count++;
    for (const char *at = added->bytes; at < end; at += strlen(at) + 1)
        added_count++;
    char **merged = calloc(own_count + added_count + 1, sizeof *merged);
    if (!merged)
        return NULL;
    for (char *at = added->bytes; at < end; at += strlen(at) + 1) {
        size_t place = find(merged, count, at);
        merged[place] = at;
        count += place == count;
    }
    added_count = count;
    for (size_t i = 0; i < own_count; i++)
        if (find(merged, added_count, environ[i]) == added_count)
            merged[count++] = environ[i];
    return merged;
}
