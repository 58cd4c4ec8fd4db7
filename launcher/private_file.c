/* SPDX-License-Identifier: Apache-2.0 */
#include "private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Append what is in *file*, at most *most* bytes; return false if there is more, or an error. */
static bool read_all(int file, size_t most, struct text *content)
{
    size_t begin = content->length;
    ssize_t count;
    do {
        size_t room = most + 1 - (content->length - begin);
        count = read(file, text_reserve(content, room), room);
        if (count > 0)
            content->length += (size_t)count;
    } while (count > 0 && content->length - begin <= most);
    content->bytes[content->length] = '\0';
    return count == 0;
}

bool private_file_read(int folder, const char *path, bool own, struct text *content)
{
    struct stat metadata;
    bool complete = false;
    int file = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (own ? O_NOFOLLOW : 0));
    if (file < 0)
        return false;
    if (fstat(file, &metadata) == 0 && S_ISREG(metadata.st_mode) && (metadata.st_mode & 077) == 0
        && (!own || metadata.st_uid == geteuid()) && metadata.st_size <= PRIVATE_FILE_MAX)
        complete = read_all(file, PRIVATE_FILE_MAX, content);
    close(file);
    return complete && content->length > 0 && strlen(content->bytes) == content->length;
}

bool plain_file_read(const char *path, size_t most, struct text *content)
{
    struct stat metadata;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    errno = 0;
    bool complete = fstat(file, &metadata) == 0 && S_ISREG(metadata.st_mode) && read_all(file, most, content);
    close(file);
    if (!complete)
        errno = 0;
    return complete;
}
