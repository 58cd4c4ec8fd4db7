/* SPDX-License-Identifier: Apache-2.0 */
/* A libnvidia-ml.so.1 for tests: it says what the file named by FAKE_NVML says, read anew at every call.
 *
 * Lines of that file, in any order; what is left out has a default, and "-" means that it is not supported:
 *
 *   driver error=9                          every call fails with this NVML error
 *   driver count=9                          so many GPUs are said to be there
 *   gpu 0 uuid=GPU-a name=A100 memory=40960 reserved=600 used=1024 util=50 temp=40 power=250000 cc=8.0 error=15 mig=1 sampled=-
 *   mig 0 2 uuid=MIG-a name=... memory=4864 used=0 instance=9
 *   process 0 pid=17 used=512 sm=30 name=python mps=1
 *   xid 0 number=79 instance=9              the driver reports this error, if it is new since the library was started
 *
 * A gpu or mig may have fails=power:999,name:26, the calls that fail and with which error. The text of error 777 is no
 * UTF-8. Names may be any bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define LINES 256
#define LENGTH 512
#define GPUS 64
#define INSTANCES 8

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };

struct device { int index, instance; };
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct rates { unsigned gpu, memory; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
struct event { struct device *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

static struct device devices[GPUS][INSTANCES + 1];
static int users;
static int delivered;
static char lines[LINES][LENGTH];
static __thread char answer[LENGTH];

/* Read the file; return the number of lines. */
static int load(char (*into)[LENGTH])
{
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    int count = 0;

    if (!file)
        return 0;
    while (count < LINES && fgets(into[count], LENGTH, file)) {
        into[count][strcspn(into[count], "\n")] = 0;
        count++;
    }
    fclose(file);
    return count;
}

/* The value of KEY in LINE, or NULL. A value ends at the next "  " or at the end; single spaces belong to it. */
static const char *value(const char *line, const char *key)
{
    char wanted[64];
    const char *at = line, *end;
    size_t length;

    snprintf(wanted, sizeof wanted, " %s=", key);
    at = strstr(line, wanted);
    if (!at)
        return NULL;
    at += strlen(wanted);
    for (end = at; *end; end++)
        if (*end == ' ' && strchr(end + 1, '=') && strcspn(end + 1, " =") == (size_t)(strchr(end + 1, '=') - end - 1))
            break;
    length = end - at;
    memcpy(answer, at, length);
    answer[length] = 0;
    return answer;
}

static long number(const char *line, const char *key, long otherwise)
{
    const char *text = value(line, key);
    return text ? atol(text) : otherwise;
}

static int driver(char (*said)[LENGTH], int count)
{
    for (int i = 0; i < count; i++)
        if (!strncmp(said[i], "driver ", 7))
            return number(said[i], "error", OK);
    return OK;
}

/* The line of a GPU or MIG instance, with the error that asking about it gives. */
static int find(struct device *device, char *line)
{
    static __thread char said[LINES][LENGTH];
    char whole[32], part[32];
    int count = load(said), error = driver(said, count);

    *line = 0;
    if (!users)
        return UNINITIALIZED;
    if (error)
        return error;
    snprintf(whole, sizeof whole, "gpu %d ", device->index);
    snprintf(part, sizeof part, "mig %d %d ", device->index, device->instance);
    for (int i = 0; i < count; i++)
        if (!strncmp(said[i], whole, strlen(whole)))
            error = number(said[i], "error", OK);
    for (int i = 0; i < count; i++) {
        const char *beginning = device->instance < 0 ? whole : part;
        if (!strncmp(said[i], beginning, strlen(beginning)))
            strcpy(line, said[i]);
    }
    return error ? error : *line ? OK : NOT_FOUND;
}

/* As find, and the error that CALL alone gives. */
static int ask(struct device *device, const char *call, char *line)
{
    int error = find(device, line);
    char wanted[64], said[LENGTH + 2];
    const char *found;

    if (error || !value(line, "fails"))
        return error;
    snprintf(said, sizeof said, ",%s", answer);
    snprintf(wanted, sizeof wanted, ",%s:", call);
    found = strstr(said, wanted);
    return found ? atoi(found + strlen(wanted)) : OK;
}

static int text(struct device *device, const char *key, const char *otherwise, char *into, unsigned length)
{
    char line[LENGTH];
    int error = ask(device, key, line);
    const char *found;

    if (error)
        return error;
    found = value(line, key);
    snprintf(into, length, "%s", found ? found : otherwise);
    return OK;
}

static int quantity(struct device *device, const char *key, unsigned *into)
{
    char line[LENGTH];
    int error = ask(device, key, line);
    const char *found;

    if (error)
        return error;
    found = value(line, key);
    if (!found || !strcmp(found, "-"))
        return NOT_SUPPORTED;
    *into = atol(found);
    return OK;
}

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    int count = load(lines), error = driver(lines, count);

    (void)flags;
    if (error || users++)
        return error;
    delivered = 0;
    for (int i = 0; i < count; i++)
        delivered += !strncmp(lines[i], "xid ", 4);
    return OK;
}

EXPORT int nvmlShutdown(void)
{
    if (!users)
        return UNINITIALIZED;
    users--;
    return OK;
}

EXPORT const char *nvmlErrorString(int error)
{
    static char said[32];

    if (error == 777)
        return "\xf8\xf0\x88";
    snprintf(said, sizeof said, "fake error %d", error);
    return said;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    static __thread char said[LINES][LENGTH];
    int read = load(said), error = driver(said, read);

    if (!users)
        return UNINITIALIZED;
    *count = 0;
    for (int i = 0; i < read; i++)
        *count += !strncmp(said[i], "gpu ", 4);
    for (int i = 0; i < read; i++)
        if (!strncmp(said[i], "driver ", 7))
            *count = number(said[i], "count", *count);
    return error;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device)
{
    char line[LENGTH];

    if (index >= GPUS)
        return INVALID;
    *device = &devices[index][INSTANCES];
    (*device)->index = index;
    (*device)->instance = -1;
    return ask(*device, "handle", line);
}

EXPORT int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned length)
{
    return text(device, "uuid", "GPU-unnamed", uuid, length);
}

EXPORT int nvmlDeviceGetName(struct device *device, char *name, unsigned length)
{
    return text(device, "name", "Fake GPU", name, length);
}

EXPORT int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory)
{
    char line[LENGTH];
    int error = ask(device, "memory", line);

    if (error)
        return error;
    if (value(line, "memory") && !strcmp(answer, "-"))
        return NOT_SUPPORTED;
    memory->total = number(line, "memory", 8192) << 20;
    memory->used = (number(line, "used", 0) + number(line, "reserved", 0)) << 20;
    memory->free = memory->total - memory->used;
    return OK;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory)
{
    char line[LENGTH];
    int error = ask(device, "memory", line);

    if (error)
        return error;
    if (value(line, "memory") && !strcmp(answer, "-"))
        return NOT_SUPPORTED;
    memory->total = number(line, "memory", 8192) << 20;
    memory->reserved = number(line, "reserved", 0) << 20;
    memory->used = number(line, "used", 0) << 20;
    memory->free = memory->total - memory->used - memory->reserved;
    return OK;
}

EXPORT int nvmlDeviceGetUtilizationRates(struct device *device, struct rates *rates)
{
    rates->memory = 0;
    return quantity(device, "util", &rates->gpu);
}

EXPORT int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *degrees)
{
    (void)sensor;
    return quantity(device, "temp", degrees);
}

EXPORT int nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts)
{
    return quantity(device, "power", milliwatts);
}

EXPORT int nvmlDeviceGetCudaComputeCapability(struct device *device, int *major, int *minor)
{
    char said[LENGTH];
    int error = text(device, "cc", "-", said, sizeof said);

    if (error)
        return error;
    return sscanf(said, "%d.%d", major, minor) == 2 ? OK : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending)
{
    int error = quantity(device, "mig", current);

    *pending = *current;
    return error;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count)
{
    (void)device;
    *count = INSTANCES;
    return OK;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(struct device *device, unsigned index, struct device **part)
{
    char line[LENGTH];

    if (index >= INSTANCES)
        return INVALID;
    *part = &devices[device->index][index];
    (*part)->index = device->index;
    (*part)->instance = index;
    return ask(*part, "handle", line);
}

EXPORT int nvmlDeviceGetGpuInstanceId(struct device *device, unsigned *instance)
{
    return quantity(device, "instance", instance);
}

static int processes(struct device *device, int mps, unsigned *count, struct process *found)
{
    static __thread char said[LINES][LENGTH];
    char line[LENGTH], beginning[32];
    int error = ask(device, "processes", line), read;
    unsigned space = *count, there = 0;

    if (error)
        return error;
    read = load(said);
    snprintf(beginning, sizeof beginning, "process %d ", device->index);
    for (int i = 0; i < read; i++) {
        if (strncmp(said[i], beginning, strlen(beginning)) || number(said[i], "mps", 0) != mps)
            continue;
        if (there < space) {
            found[there].pid = number(said[i], "pid", 1);
            found[there].used = (unsigned long long)number(said[i], "used", 0) << 20;
            if (value(said[i], "used") && !strcmp(answer, "-"))
                found[there].used = ~0ULL;
            found[there].gpu_instance = found[there].compute_instance = ~0U;
        }
        there++;
    }
    *count = there;
    return there > space ? TOO_SMALL : OK;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process *found)
{
    return processes(device, 0, count, found);
}

EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct device *device, unsigned *count, struct process *found)
{
    return processes(device, 1, count, found);
}

struct sample { unsigned pid; unsigned long long when; unsigned sm, memory, encoder, decoder; };

/* Each process with a "sm" has one sample, newer than any that was asked for unless it says "when". */
EXPORT int nvmlDeviceGetProcessUtilization(
    struct device *device, struct sample *found, unsigned *count, unsigned long long since)
{
    static __thread char said[LINES][LENGTH];
    char line[LENGTH], beginning[32];
    int error = ask(device, "sampled", line), read;
    unsigned space = found ? *count : 0, there = 0;

    if (error)
        return error;
    if (value(line, "sampled") && !strcmp(answer, "-"))
        return NOT_SUPPORTED;
    read = load(said);
    snprintf(beginning, sizeof beginning, "process %d ", device->index);
    for (int i = 0; i < read; i++) {
        if (strncmp(said[i], beginning, strlen(beginning)) || !value(said[i], "sm"))
            continue;
        if ((unsigned long long)number(said[i], "when", since + 1) <= since)
            continue;
        if (there < space) {
            memset(&found[there], 0, sizeof *found);
            found[there].pid = number(said[i], "pid", 1);
            found[there].sm = number(said[i], "sm", 0);
            found[there].when = number(said[i], "when", since + 1);
        }
        there++;
    }
    *count = there;
    if (!there)
        return NOT_FOUND;
    return there > space ? TOO_SMALL : OK;
}

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    static __thread char said[LINES][LENGTH];
    int read = load(said);

    for (int i = 0; i < read; i++)
        if (!strncmp(said[i], "process ", 8) && number(said[i], "pid", 1) == (long)pid && value(said[i], "name")) {
            snprintf(name, length, "%s", answer);
            return OK;
        }
    return NOT_FOUND;
}

EXPORT int nvmlEventSetCreate(void **set)
{
    static int any;

    *set = &any;
    return users ? OK : UNINITIALIZED;
}

EXPORT int nvmlDeviceRegisterEvents(struct device *device, unsigned long long types, void *set)
{
    char line[LENGTH];

    (void)types;
    (void)set;
    return ask(device, "events", line);
}

EXPORT int nvmlEventSetFree(void *set)
{
    (void)set;
    return users ? OK : UNINITIALIZED;
}

EXPORT int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds)
{
    static __thread char said[LINES][LENGTH];

    (void)set;
    for (unsigned waited = 0; waited < milliseconds; waited += 10) {
        int read = load(said), seen = 0, error = driver(said, read);

        if (!users)
            return UNINITIALIZED;
        if (error)
            return error;
        for (int i = 0; i < read; i++) {
            if (strncmp(said[i], "xid ", 4) || seen++ < delivered)
                continue;
            delivered++;
            event->device = &devices[atoi(said[i] + 4)][INSTANCES];
            event->type = 8;
            event->data = number(said[i], "number", 0);
            event->gpu_instance = event->compute_instance = number(said[i], "instance", -1);
            return OK;
        }
        usleep(10000);
    }
    return TIMEOUT;
}
