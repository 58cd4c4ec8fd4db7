/* SPDX-License-Identifier: Apache-2.0
 *
 * A disk that can lose its power, and one that fails; to be loaded before the C library (LD_PRELOAD).
 *
 * After each sync, a file is copied to the folder $DISK_KEPT: that is what would be left of it after a power cut. A file
 * that was deleted before a sync is gone, as on file systems with a journal. While the file $DISK_FAILS exists, each
 * sync fails, as of a disk with bad sectors.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void keep(int descriptor, const char *folder)
{
    char link[64], path[4096], kept[8192], fresh[8200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    struct stat about;
    if (length < 0 || stat(link, &about) || !S_ISREG(about.st_mode))
        return;
    path[length] = '\0';
    snprintf(kept, sizeof kept, "%s/%s", folder, strrchr(path, '/') + 1);
    snprintf(fresh, sizeof fresh, "%s.new", kept);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int to = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (from < 0 || to < 0)
        abort();
    off_t left = about.st_size;
    while (left > 0) {
        ssize_t copied = sendfile(to, from, NULL, (size_t)left);
        if (copied <= 0)
            abort();
        left -= copied;
    }
    close(to);
    if (rename(fresh, kept))
        abort();
    close(from);

    DIR *all = opendir(folder);
    *strrchr(path, '/') = '\0';
    for (struct dirent *one; all && (one = readdir(all));) {
        snprintf(fresh, sizeof fresh, "%s/%s", path, one->d_name);
        if (one->d_name[0] != '.' && access(fresh, F_OK)) {
            snprintf(kept, sizeof kept, "%s/%s", folder, one->d_name);
            unlink(kept);
        }
    }
    closedir(all);
}

static int sync_by(long call, int descriptor)
{
    const char *fails = getenv("DISK_FAILS"), *folder = getenv("DISK_KEPT");
    if (fails && access(fails, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    if (syscall(call, descriptor))
        return -1;
    if (folder)
        keep(descriptor, folder);
    return 0;
}

int fdatasync(int descriptor)
{
    return sync_by(SYS_fdatasync, descriptor);
}

int fsync(int descriptor)
{
    return sync_by(SYS_fsync, descriptor);
}
