/* SPDX-License-Identifier: Apache-2.0 */
/* A CUDA driver without a GPU, for tests: memory is the host's, and the kernels of gsaas.prove.program run on the CPU.
 *
 * FAKE_CUDA_GPUS            UUIDs, with commas between them; CUDA_VISIBLE_DEVICES chooses among them
 * FAKE_CUDA_MIB             MiB of each GPU (8192)
 * FAKE_CUDA_STATE           folder in which the processes on a GPU record what they have: so it is shared, and free again
 *                           when a process ends
 * FAKE_CUDA_NO_LIMIT        the variables that limit memory have no effect
 * FAKE_CUDA_EQUAL_POINTERS  every process hands out the same device pointers
 * FAKE_CUDA_WRONG           kernels compute something wrong
 *
 * It obeys CUDA_MPS_PINNED_DEVICE_MEM_LIMIT (0=512M) and CUDA_DEVICE_MEMORY_LIMIT (512m).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int result;
typedef uint64_t device_pointer;
enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE = 100, INVALID_DEVICE, INVALID_CONTEXT = 201, NOT_FOUND = 500 };
enum { MOST = 16, BLOCKS = 4096 };

struct uuid { unsigned char bytes[16]; };
static struct uuid devices[MOST];
static int count, initialized;
static char contexts[MOST];
static __thread char *current;
static struct { device_pointer at; size_t size; int device; } blocks[BLOCKS];
static uint64_t used[MOST];
static pid_t recorder;

static int parse_uuid(const char *text, struct uuid *uuid)
{
    char digits[33] = "";
    size_t length = 0;
    if (strncmp(text, "GPU-", 4) == 0)
        text += 4;
    for (; *text && *text != ',' && length < 32; text++)
        if (*text != '-')
            digits[length++] = *text;
    for (int i = 0; i < 16; i++)
        if (length != 32 || sscanf(digits + 2 * i, "%2hhx", &uuid->bytes[i]) != 1)
            return 0;
    return 1;
}

static int parse_list(const char *list, struct uuid *found)
{
    int number = 0;
    for (; list && *list && number < MOST; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
        number += parse_uuid(list, &found[number]);
    return number;
}

static void record(int device)
{
    const char *state = getenv("FAKE_CUDA_STATE");
    char path[512];
    if (!state)
        return;
    int at = snprintf(path, sizeof path, "%s/", state);
    for (int i = 0; i < 16; i++)
        at += snprintf(path + at, sizeof path - at, "%02x", devices[device].bytes[i]);
    mkdir(path, 0777);
    snprintf(path + at, sizeof path - at, "/%d", getpid());
    FILE *file = fopen(path, "w");
    if (file) {
        fprintf(file, "%llu\n", (unsigned long long)used[device]);
        fclose(file);
    }
}

/* Return the bytes that all processes on a GPU have. */
static uint64_t used_by_all(int device)
{
    const char *state = getenv("FAKE_CUDA_STATE");
    char path[512];
    uint64_t total = 0;
    if (!state)
        return used[device];
    int at = snprintf(path, sizeof path, "%s/", state);
    for (int i = 0; i < 16; i++)
        at += snprintf(path + at, sizeof path - at, "%02x", devices[device].bytes[i]);
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        pid_t pid = atoi(entry->d_name);
        unsigned long long bytes;
        snprintf(path + at, sizeof path - at, "/%s", entry->d_name);
        FILE *file = pid > 0 && (kill(pid, 0) == 0 || errno == EPERM) ? fopen(path, "r") : NULL;
        if (file) {
            if (fscanf(file, "%llu", &bytes) == 1)
                total += bytes;
            fclose(file);
        }
    }
    if (folder)
        closedir(folder);
    return total;
}

static uint64_t size_of_gpu(void)
{
    const char *mib = getenv("FAKE_CUDA_MIB");
    return (mib ? strtoull(mib, NULL, 10) : 8192) << 20;
}

static uint64_t limit(void)
{
    const char *text = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    if (getenv("FAKE_CUDA_NO_LIMIT"))
        return UINT64_MAX;
    if (text)
        text = strchr(text, '=') ? strchr(text, '=') + 1 : text;
    else
        text = getenv("CUDA_DEVICE_MEMORY_LIMIT");
    return text ? strtoull(text, NULL, 10) << 20 : UINT64_MAX;
}

/* A child of a process that had memory has none of it. */
static void know_process(void)
{
    if (recorder != getpid()) {
        memset(blocks, 0, sizeof blocks);
        memset(used, 0, sizeof used);
        recorder = getpid();
    }
}

result cuInit(unsigned flags)
{
    struct uuid all[MOST], wanted[MOST];
    const char *list = getenv("FAKE_CUDA_GPUS"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    (void)flags;
    if (initialized)
        return SUCCESS;
    int there = parse_list(list ? list : "GPU-00000000-0000-4000-8000-000000000000", all);
    int chosen = visible ? parse_list(visible, wanted) : 0;
    for (int i = 0; i < there; i++)
        for (int j = 0; j < (visible ? chosen : 1); j++)
            if (!visible || memcmp(&all[i], &wanted[j], sizeof all[i]) == 0)
                devices[count++] = all[i];
    initialized = 1;
    return count ? SUCCESS : NO_DEVICE;
}

result cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
result cuDeviceGetCount(int *found) { *found = count; return initialized ? SUCCESS : NOT_INITIALIZED; }
result cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal >= 0 && ordinal < count ? SUCCESS : INVALID_DEVICE; }
result cuDeviceGetName(char *name, int length, int device) { snprintf(name, length, "Fake GPU %d", device); return SUCCESS; }
result cuDeviceGetUuid(void *uuid, int device)
{
    if (device < 0 || device >= count)
        return INVALID_DEVICE;
    memcpy(uuid, &devices[device], sizeof devices[device]);
    return SUCCESS;
}
result cuDeviceGetUuid_v2(void *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
result cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = size_of_gpu(); return SUCCESS; }
result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    switch (attribute) {
    case 1: *value = 1024; break;      /* threads of a block */
    case 10: *value = 32; break;       /* threads of a warp */
    case 16: *value = 1; break;        /* multiprocessors */
    case 33: case 41: *value = 1; break;
    case 75: *value = 9; break;        /* compute capability */
    default: *value = 0;
    }
    return SUCCESS;
}
result cuDeviceGetPCIBusId(char *id, int length, int device) { snprintf(id, length, "0000:%02x:00.0", device + 1); return SUCCESS; }

result cuDevicePrimaryCtxRetain(void **context, int device) { *context = &contexts[device]; return SUCCESS; }
result cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return SUCCESS; }
result cuDevicePrimaryCtxReset_v2(int device) { (void)device; return SUCCESS; }
result cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) { (void)device; *flags = 0; *active = 1; return SUCCESS; }
result cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { (void)device; (void)flags; return SUCCESS; }
result cuCtxCreate_v2(void **context, unsigned flags, int device) { (void)flags; *context = current = &contexts[device]; return SUCCESS; }
result cuCtxDestroy_v2(void *context) { if (current == context) current = NULL; return SUCCESS; }
result cuCtxSetCurrent(void *context) { current = context; return SUCCESS; }
result cuCtxGetCurrent(void **context) { *context = current; return SUCCESS; }
result cuCtxPushCurrent_v2(void *context) { current = context; return SUCCESS; }
result cuCtxPopCurrent_v2(void **context) { if (context) *context = current; current = NULL; return SUCCESS; }
result cuCtxGetDevice(int *device) { *device = current ? (int)(current - contexts) : 0; return current ? SUCCESS : INVALID_CONTEXT; }
result cuCtxGetApiVersion(void *context, unsigned *version) { (void)context; *version = 3020; return SUCCESS; }
result cuCtxGetFlags(unsigned *flags) { *flags = 0; return SUCCESS; }
/* A GPU computes for a while, in which the processor has nothing to do. */
result cuCtxSynchronize(void) { usleep(50000); return SUCCESS; }

result cuMemGetInfo_v2(size_t *available, size_t *total)
{
    int device = current ? (int)(current - contexts) : 0;
    uint64_t all = size_of_gpu(), taken = used_by_all(device);
    *total = all;
    *available = taken < all ? all - taken : 0;
    return SUCCESS;
}

result cuMemAlloc_v2(device_pointer *pointer, size_t size)
{
    static uint64_t next = 0x7000000000;
    int device = current ? (int)(current - contexts) : 0, equal = getenv("FAKE_CUDA_EQUAL_POINTERS") != NULL;
    know_process();
    if (!size || used[device] + size > limit() || used_by_all(device) + size > size_of_gpu())
        return size ? OUT_OF_MEMORY : INVALID_VALUE;
    size_t whole = (size + 0x1fffff) & ~(size_t)0x1fffff;
    void *wish = equal ? (void *)(uintptr_t)next : NULL;
    void *found = mmap(wish, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED)
        return OUT_OF_MEMORY;
    next += whole;
    for (int i = 0; i < BLOCKS; i++)
        if (!blocks[i].at) {
            blocks[i].at = (device_pointer)(uintptr_t)found;
            blocks[i].size = size;
            blocks[i].device = device;
            break;
        }
    used[device] += size;
    record(device);
    *pointer = (device_pointer)(uintptr_t)found;
    return SUCCESS;
}

result cuMemFree_v2(device_pointer pointer)
{
    for (int i = 0; i < BLOCKS; i++)
        if (pointer && blocks[i].at == pointer) {
            munmap((void *)(uintptr_t)pointer, (blocks[i].size + 0x1fffff) & ~(size_t)0x1fffff);
            used[blocks[i].device] -= blocks[i].size;
            record(blocks[i].device);
            blocks[i].at = 0;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

static result copy(void *to, const void *from, size_t size) { memmove(to, from, size); return SUCCESS; }
#define AT(pointer) ((void *)(uintptr_t)(pointer))
result cuMemcpyHtoD_v2(device_pointer to, const void *from, size_t size) { return copy(AT(to), from, size); }
result cuMemcpyDtoH_v2(void *to, device_pointer from, size_t size) { return copy(to, AT(from), size); }
result cuMemcpyDtoD_v2(device_pointer to, device_pointer from, size_t size) { return copy(AT(to), AT(from), size); }
result cuMemcpyHtoDAsync_v2(device_pointer to, const void *from, size_t size, void *stream) { (void)stream; return copy(AT(to), from, size); }
result cuMemcpyDtoHAsync_v2(void *to, device_pointer from, size_t size, void *stream) { (void)stream; return copy(to, AT(from), size); }
result cuMemsetD8_v2(device_pointer at, unsigned char value, size_t size) { memset(AT(at), value, size); return SUCCESS; }
result cuMemAllocHost_v2(void **at, size_t size) { return posix_memalign(at, 4096, size) ? OUT_OF_MEMORY : SUCCESS; }
result cuMemHostAlloc(void **at, size_t size, unsigned flags) { (void)flags; return cuMemAllocHost_v2(at, size); }
result cuMemFreeHost(void *at) { free(at); return SUCCESS; }
result cuMemHostGetFlags(unsigned *flags, void *at) { (void)at; *flags = 0; return SUCCESS; }

static void *some(void) { return malloc(8); }
result cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = some(); return SUCCESS; }
result cuStreamCreateWithPriority(void **stream, unsigned flags, int priority) { (void)priority; return cuStreamCreate(stream, flags); }
result cuStreamDestroy_v2(void *stream) { free(stream); return SUCCESS; }
result cuStreamSynchronize(void *stream) { (void)stream; return SUCCESS; }
result cuStreamQuery(void *stream) { (void)stream; return SUCCESS; }
result cuStreamIsCapturing(void *stream, int *status) { (void)stream; *status = 0; return SUCCESS; }
result cuStreamWaitEvent(void *stream, void *event, unsigned flags) { (void)stream; (void)event; (void)flags; return SUCCESS; }
result cuEventCreate(void **event, unsigned flags) { (void)flags; *event = some(); return SUCCESS; }
result cuEventDestroy_v2(void *event) { free(event); return SUCCESS; }
result cuEventRecord(void *event, void *stream) { (void)event; (void)stream; return SUCCESS; }
result cuEventQuery(void *event) { (void)event; return SUCCESS; }
result cuEventSynchronize(void *event) { (void)event; return SUCCESS; }

static char module[1], affine[1], matrix[1];
result cuModuleLoadData(void **loaded, const void *image) { (void)image; *loaded = module; return SUCCESS; }
result cuModuleLoadDataEx(void **loaded, const void *image, unsigned n, void *options, void *values) { (void)n; (void)options; (void)values; return cuModuleLoadData(loaded, image); }
result cuModuleUnload(void *loaded) { (void)loaded; return SUCCESS; }
result cuModuleGetFunction(void **function, void *loaded, const char *name)
{
    (void)loaded;
    *function = strcmp(name, "gsaas_affine") == 0 ? affine : strcmp(name, "gsaas_matrix") == 0 ? matrix : NULL;
    return *function ? SUCCESS : NOT_FOUND;
}
result cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size)
{
    size_t last = function == matrix ? 3 : 1;
    if (index > last)
        return INVALID_VALUE;
    *offset = 8 * index;
    if (size)
        *size = index == last ? 4 : 8;
    return SUCCESS;
}
result cuFuncGetAttribute(int *value, int attribute, void *function) { (void)attribute; (void)function; *value = 0; return SUCCESS; }

static void run_affine(uint32_t *data, uint32_t size)
{
    const uint32_t more = getenv("FAKE_CUDA_WRONG") ? 8 : 7;
    for (uint32_t i = 0; i < size; i++)
        data[i] = 3 * data[i] + more;
}

/* The loop over the inner index skips zeros: the right matrix of the tests has few other numbers. */
static void run_matrix(const float *a, const float *b, float *c, uint32_t side)
{
    memset(c, 0, sizeof *c * side * side);
    for (uint32_t k = 0; k < side; k++)
        for (uint32_t column = 0; column < side; column++)
            if (b[k * side + column] != 0)
                for (uint32_t row = 0; row < side; row++)
                    c[row * side + column] += a[row * side + k] * b[k * side + column];
}

result cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                      void *stream, void **parameters, void **extra)
{
    (void)gx; (void)gy; (void)gz; (void)bx; (void)by; (void)bz; (void)shared; (void)stream; (void)extra;
    if (!parameters)
        return INVALID_VALUE;
    if (function == affine)
        run_affine(AT(*(device_pointer *)parameters[0]), *(uint32_t *)parameters[1]);
    else
        run_matrix(AT(*(device_pointer *)parameters[0]), AT(*(device_pointer *)parameters[1]), AT(*(device_pointer *)parameters[2]),
                   *(uint32_t *)parameters[3]);
    return SUCCESS;
}

result cuGetErrorName(int error, const char **name) { *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : error ? "CUDA_ERROR" : "CUDA_SUCCESS"; return SUCCESS; }
result cuGetErrorString(int error, const char **text) { return cuGetErrorName(error, text); }
result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status)
{
    char newer[128];
    (void)version; (void)flags;
    snprintf(newer, sizeof newer, "%s_v2", name);
    *function = dlsym(RTLD_DEFAULT, newer);
    if (!*function)
        *function = dlsym(RTLD_DEFAULT, name);
    if (status)
        *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
