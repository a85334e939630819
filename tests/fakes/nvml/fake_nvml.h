/* What the scenario file describes, and the few NVML types the fake answers with. See scenario.py for the format. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#define MAX_CARDS 16
#define MAX_PROCESSES 16
#define MAX_RULES 32
#define MAX_XIDS 16
#define MAX_SLICES 7

enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15,
    UNKNOWN_ERROR = 999
};

/* base + amplitude * sin(2 pi t / period_s + phase); a period of 0 is a constant. */
typedef struct { double base, amplitude, period_s, phase; } Wave;

/* sm: its share of the card in percent; a negative base gives no figure. */
typedef struct { unsigned pid; unsigned long long memory; int graphics; Wave sm; } Process;

/* A rule for one function of one card: a delay in seconds or an error code. */
typedef struct { char function[64]; double value; } Rule;

/* A critical error: its number, and when it happens, in seconds since the library's load. */
typedef struct { unsigned number; double at_s; } Xid;

typedef struct Card {
    int index;
    char name[96], uuid[96];
    unsigned architecture, major, minor, mig;
    unsigned long long memory_total, memory_reserved;
    Wave memory_used, utilisation, power_mw, temperature, sm_clock, memory_clock, fan;
    unsigned power_limit_mw, sm_clock_max, memory_clock_max;
    unsigned long long reasons;
    double latency_s, lost_at_s;
    long lost_after_calls, calls;
    Process processes[MAX_PROCESSES];
    int process_count;
    Xid xids[MAX_XIDS];
    int xid_count;
    Rule delays[MAX_RULES], errors[MAX_RULES];
    int delay_count, error_count;
    struct Card *slices[MAX_SLICES]; /* of MIG: cards of their own, which share the figures of this one */
    int slice_count;
} Card;

typedef struct {
    char driver[80];
    int cuda, init_error, card_count;
    double init_latency_s, frozen_s;
    Card cards[MAX_CARDS];
} Scenario;

extern Scenario scenario;

void load_scenario(void);
double elapsed_s(void);
double wave_at(const Wave *wave);
void wait_s(double seconds);

#endif
