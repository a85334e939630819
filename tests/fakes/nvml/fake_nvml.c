/* A libnvidia-ml.so.1 that answers from a scenario file, for tests and benchmarks on machines without a GPU.
   Every call first pays the delay the scenario gives it, and is written to FAKE_NVML_CALLS when that is set. */
#include "fake_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>

typedef unsigned long long u64;

static int initialised;
static FILE *calls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void on_load(void) {
    load_scenario();
    const char *path = getenv("FAKE_NVML_CALLS");
    if (path) calls = fopen(path, "a");
}

static void note(const char *function, int index) {
    if (!calls) return;
    pthread_mutex_lock(&lock);
    fprintf(calls, "%s %d\n", function, index);
    fflush(calls);
    pthread_mutex_unlock(&lock);
}

static double rule_of(const Rule *rules, int count, const char *function, double otherwise) {
    for (int i = 0; i < count; i++)
        if (!strcmp(rules[i].function, function)) return rules[i].value;
    return otherwise;
}

/* The toll every call on a card pays: its delay, then whether the card is still there and can answer. */
static int enter(Card *card, const char *function) {
    if (!initialised) return UNINITIALIZED;
    int slice = card && !card->mig && card->slice_count < 0;
    if (!slice && (card < scenario.cards || card >= scenario.cards + scenario.card_count)) return INVALID_ARGUMENT;
    note(function, card->index);
    wait_s(rule_of(card->delays, card->delay_count, function, card->latency_s));
    long call = __atomic_add_fetch(&card->calls, 1, __ATOMIC_RELAXED);
    if (card->lost_at_s >= 0 && elapsed_s() >= card->lost_at_s) return GPU_IS_LOST;
    if (card->lost_after_calls >= 0 && call > card->lost_after_calls) return GPU_IS_LOST;
    return (int)rule_of(card->errors, card->error_count, function, OK);
}

#define ENTER() do { int error_ = enter(card, __func__); if (error_) return error_; } while (0)
#define NEED(condition) do { if (!(condition)) return NOT_SUPPORTED; } while (0)

static int copy_text(char *target, unsigned size, const char *text) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return OK;
}

/* ---- the library and the system ---- */

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    note(__func__, -1);
    wait_s(scenario.init_latency_s);
    if (scenario.init_error) return scenario.init_error;
    initialised = 1;
    return OK;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return initialised ? OK : UNINITIALIZED; }

const char *nvmlErrorString(int error) {
    switch (error) {
    case OK: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    return initialised ? copy_text(version, size, scenario.driver) : UNINITIALIZED;
}
int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    return initialised ? copy_text(version, size, scenario.driver) : UNINITIALIZED;
}
int nvmlSystemGetCudaDriverVersion(int *version) {
    *version = scenario.cuda;
    return initialised ? OK : UNINITIALIZED;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)scenario.card_count;
    return initialised ? OK : UNINITIALIZED;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Card **device) {
    if (index >= (unsigned)scenario.card_count) return INVALID_ARGUMENT;
    *device = &scenario.cards[index];
    return enter(*device, __func__);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Card **device) {
    for (int i = 0; i < scenario.card_count; i++)
        if (!strcmp(scenario.cards[i].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2((unsigned)i, device);
    return 6;
}

/* ---- what a card is ---- */

int nvmlDeviceGetName(Card *card, char *name, unsigned size) { ENTER(); return copy_text(name, size, card->name); }
int nvmlDeviceGetUUID(Card *card, char *uuid, unsigned size) {
    ENTER();
    NEED(card->uuid[0]);
    return copy_text(uuid, size, card->uuid);
}
int nvmlDeviceGetIndex(Card *card, unsigned *index) { ENTER(); *index = (unsigned)card->index; return OK; }
int nvmlDeviceGetArchitecture(Card *card, unsigned *architecture) {
    ENTER();
    NEED(card->architecture);
    *architecture = card->architecture;
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(Card *card, int *major, int *minor) {
    ENTER();
    NEED(card->major);
    *major = (int)card->major;
    *minor = (int)card->minor;
    return OK;
}
int nvmlDeviceGetMaxClockInfo(Card *card, int kind, unsigned *mhz) {
    ENTER();
    *mhz = kind == 2 ? card->memory_clock_max : card->sm_clock_max;
    return *mhz ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetPowerManagementLimit(Card *card, unsigned *mw) {
    ENTER();
    NEED(card->power_limit_mw);
    *mw = card->power_limit_mw;
    return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(Card *card, unsigned *mw) {
    ENTER();
    NEED(card->power_limit_mw);
    *mw = card->power_limit_mw;
    return OK;
}
int nvmlDeviceGetMigMode(Card *card, unsigned *current, unsigned *pending) {
    ENTER();
    NEED(card->major >= 8);
    *current = *pending = card->mig;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Card *card, unsigned *count) { ENTER(); *count = MAX_SLICES; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Card *card, unsigned index, Card **slice) {
    ENTER();
    if (!card->mig || (int)index >= card->slice_count) return NOT_FOUND;
    *slice = card->slices[index];
    return OK;
}
int nvmlDeviceIsMigDeviceHandle(Card *card, unsigned *is_mig) { ENTER(); *is_mig = 0; return OK; }
int nvmlDeviceGetPersistenceMode(Card *card, unsigned *mode) { ENTER(); *mode = 1; return OK; }
int nvmlDeviceGetComputeMode(Card *card, unsigned *mode) { ENTER(); *mode = 0; return OK; }
int nvmlDeviceGetDisplayActive(Card *card, unsigned *active) { ENTER(); *active = 0; return OK; }
int nvmlDeviceGetDisplayMode(Card *card, unsigned *mode) { ENTER(); *mode = 0; return OK; }
int nvmlDeviceGetDriverModel(Card *card, unsigned *current, unsigned *pending) {
    (void)current, (void)pending;
    ENTER();
    return NOT_SUPPORTED;
}
int nvmlDeviceGetDriverModel_v2(Card *card, unsigned *current, unsigned *pending) {
    return nvmlDeviceGetDriverModel(card, current, pending);
}
int nvmlDeviceGetFieldValues(Card *card, int count, void *info) {
    struct { unsigned field, scope; long long time_us, latency_us; unsigned kind; int error; u64 value; } *fields = info;
    ENTER();
    for (int i = 0; i < count; i++) fields[i].error = NOT_SUPPORTED;
    return OK;
}
int nvmlDeviceGetPciInfo_v3(Card *card, void *info) {
    struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } *pci = info;
    ENTER();
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)card->index + 1;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", pci->bus);
    return OK;
}

/* ---- what a card does ---- */

int nvmlDeviceGetUtilizationRates(Card *card, unsigned *rates) {
    ENTER();
    NEED(!card->mig);
    double busy = wave_at(&card->utilisation);
    rates[0] = (unsigned)(busy > 100 ? 100 : busy);
    rates[1] = rates[0] / 2;
    return OK;
}
int nvmlDeviceGetMemoryInfo(Card *card, u64 *memory) {
    ENTER();
    NEED(card->memory_total);
    u64 used = (u64)wave_at(&card->memory_used) + card->memory_reserved;
    memory[0] = card->memory_total;
    memory[1] = card->memory_total - used;
    memory[2] = used;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(Card *card, void *info) {
    struct { unsigned version; u64 total, reserved, free, used; } *memory = info;
    ENTER();
    NEED(card->memory_total);
    memory->total = card->memory_total;
    memory->reserved = card->memory_reserved;
    memory->used = (u64)wave_at(&card->memory_used);
    memory->free = memory->total - memory->reserved - memory->used;
    return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(Card *card, u64 *memory) {
    ENTER();
    memory[0] = 1ULL << 36;
    memory[1] = memory[0] - (1ULL << 20);
    memory[2] = 1ULL << 20;
    return OK;
}
int nvmlDeviceGetPowerUsage(Card *card, unsigned *mw) {
    ENTER();
    NEED(card->power_mw.base > 0);
    *mw = (unsigned)wave_at(&card->power_mw);
    return OK;
}
int nvmlDeviceGetClockInfo(Card *card, int kind, unsigned *mhz) {
    ENTER();
    *mhz = (unsigned)wave_at(kind == 2 ? &card->memory_clock : &card->sm_clock);
    return *mhz ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetTemperatureV(Card *card, void *info) {
    struct { unsigned version; int sensor; int celsius; } *reading = info;
    ENTER();
    NEED(card->temperature.base > 0);
    reading->celsius = (int)wave_at(&card->temperature);
    return OK;
}
int nvmlDeviceGetTemperature(Card *card, int sensor, unsigned *celsius) {
    (void)sensor;
    ENTER();
    NEED(card->temperature.base > 0);
    *celsius = (unsigned)wave_at(&card->temperature);
    return OK;
}
int nvmlDeviceGetFanSpeed(Card *card, unsigned *percent) {
    ENTER();
    NEED(card->fan.base > 0);
    *percent = (unsigned)wave_at(&card->fan);
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(Card *card, u64 *reasons) { ENTER(); *reasons = card->reasons; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Card *card, u64 *reasons) {
    ENTER();
    *reasons = card->reasons;
    return OK;
}
int nvmlDeviceGetPerformanceState(Card *card, int *state) { ENTER(); *state = 0; return OK; }
int nvmlDeviceGetEncoderUtilization(Card *card, unsigned *percent, unsigned *period_us) {
    ENTER();
    *percent = 0;
    *period_us = 167000;
    return OK;
}
int nvmlDeviceGetDecoderUtilization(Card *card, unsigned *percent, unsigned *period_us) {
    ENTER();
    *percent = 0;
    *period_us = 167000;
    return OK;
}
int nvmlDeviceGetPcieThroughput(Card *card, int counter, unsigned *kb_s) {
    (void)counter;
    ENTER();
    *kb_s = 100000;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(Card *card, int kind, int counter, u64 *count) {
    (void)kind, (void)counter;
    ENTER();
    *count = 0;
    return OK;
}

/* ---- who is on a card ---- */

static int processes_of(Card *card, int graphics, unsigned *count, void *info) {
    struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } *rows = info;
    unsigned found = 0, room = *count;
    for (int i = 0; i < card->process_count; i++) {
        const Process *process = &card->processes[i];
        if (process->graphics != graphics) continue;
        if (rows && found < room) {
            rows[found].pid = process->pid;
            rows[found].memory = process->memory;
            rows[found].gpu_instance = rows[found].compute_instance = 0xFFFFFFFF;
        }
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Card *card, unsigned *count, void *info) {
    ENTER();
    return processes_of(card, 0, count, info);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Card *card, unsigned *count, void *info) {
    ENTER();
    return processes_of(card, 1, count, info);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Card *card, unsigned *count, void *info) {
    ENTER();
    (void)info;
    *count = 0;
    return OK;
}
int nvmlDeviceGetProcessUtilization(Card *card, void *samples, unsigned *count, u64 since) {
    struct { unsigned pid; u64 time_us; unsigned sm, memory, encoder, decoder; } *rows = samples;
    u64 now_us = (u64)(elapsed_s() * 1e6) + 1;
    unsigned found = 0, room = *count;
    ENTER();
    NEED(!card->mig);
    for (int i = 0; i < card->process_count; i++) {
        const Process *process = &card->processes[i];
        if (process->sm.base < 0 || now_us <= since) continue;
        if (rows && found < room) {
            memset(&rows[found], 0, sizeof rows[found]);
            rows[found].pid = process->pid;
            rows[found].time_us = now_us;
            rows[found].sm = (unsigned)wave_at(&process->sm);
        }
        found++;
    }
    *count = found;
    if (!found) return 6;
    return found > room ? INSUFFICIENT_SIZE : OK;
}

/* ---- what happens to a card ---- */

typedef struct { Card *card; int told; } EventSet;

int nvmlEventSetCreate(EventSet **set) {
    *set = calloc(1, sizeof **set);
    return initialised && *set ? OK : UNINITIALIZED;
}
int nvmlEventSetFree(EventSet *set) { free(set); return OK; }
int nvmlDeviceRegisterEvents(Card *card, u64 kinds, EventSet *set) {
    (void)kinds;
    ENTER();
    set->card = card;
    return OK;
}
/* Never waits: the only caller asks for what has happened already. */
int nvmlEventSetWait_v2(EventSet *set, void *data, unsigned timeout_ms) {
    struct { Card *device; u64 kind, number; unsigned gpu_instance, compute_instance; } *event = data;
    (void)timeout_ms;
    note(__func__, set->card ? set->card->index : -1);
    if (!set->card || set->told >= set->card->xid_count) return TIMEOUT;
    const Xid *xid = &set->card->xids[set->told];
    if (elapsed_s() < xid->at_s) return TIMEOUT;
    memset(event, 0, sizeof *event);
    event->device = set->card;
    event->kind = 8;
    event->number = xid->number;
    set->told++;
    return OK;
}
