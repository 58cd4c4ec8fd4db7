/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files with secrets: regular files of moderate size that no other user can read. */
#ifndef GSAAS_PRIVATE_FILE_H
#define GSAAS_PRIVATE_FILE_H

#include <stdbool.h>

#include "text.h"

enum { PRIVATE_FILE_MAX = 64 * 1024 }; /* bytes; a larger file is not read */

/* Append the content of the file *path*, which may be relative to the descriptor *folder* (AT_FDCWD: to the current
 * one). With *own*, refuse symbolic links and files of other users as well. Return false if it is not such a file, is
 * empty or contains NUL. */
bool private_file_read(int folder, const char *path, bool own, struct text *content);

/* Append the content of any regular file of at most *most* bytes. Return false, with errno 0 if it is another kind of
 * file or larger. */
bool plain_file_read(const char *path, size_t most, struct text *content);

#endif
