/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's first process: load the virtio drivers, mount the disk, hand over to systemd.
 *
 * A real initramfs would take longer to start under an emulated processor than the rest of the boot.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PASSES 5             /* drivers need each other; what fails is tried again after the rest */
#define DISK_TRIES 500       /* of 20 ms */

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void load_drivers(void)
{
    struct dirent **drivers;
    char path[300];
    int count = scandir("/drivers", &drivers, is_file, alphasort);

    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < count; i++) {
            snprintf(path, sizeof path, "/drivers/%s", drivers[i]->d_name);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            syscall(SYS_finit_module, fd, "", 0);      /* loading it twice does no harm */
            close(fd);
        }
}

int main(void)
{
    mount("devtmpfs", "/dev", "devtmpfs", 0, "");
    load_drivers();
    for (int i = 0; i < DISK_TRIES && mount("/dev/vda", "/disk", "ext4", MS_NOATIME, ""); i++)
        usleep(20000);
    mount("/dev", "/disk/dev", NULL, MS_MOVE, NULL);
    if (chdir("/disk") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
        perror("cannot make the disk the root");
    execl("/sbin/init", "/sbin/init", (char *)NULL);
    perror("cannot start /sbin/init");
    for (;;)
        pause();
}
