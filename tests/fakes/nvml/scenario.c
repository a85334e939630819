/* Reads the scenario file named by FAKE_NVML_SCENARIO: one `key values...` line each, `gpu` opens the next card. */
#include "fake_nvml.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

Scenario scenario;
static struct timespec start;

double elapsed_s(void) {
    if (scenario.frozen_s >= 0) return scenario.frozen_s;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) / 1e9;
}

double wave_at(const Wave *wave) {
    if (wave->period_s <= 0) return wave->base;
    double value = wave->base + wave->amplitude * sin(2 * M_PI * elapsed_s() / wave->period_s + wave->phase);
    return value < 0 ? 0 : value;
}

void wait_s(double seconds) {
    if (seconds <= 0) return;
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&left, NULL);
}

static Wave wave_of(const char *text) {
    Wave wave = {0, 0, 0, 0};
    sscanf(text, "%lf %lf %lf %lf", &wave.base, &wave.amplitude, &wave.period_s, &wave.phase);
    return wave;
}

static Card *new_card(void) {
    if (scenario.card_count == MAX_CARDS) return &scenario.cards[MAX_CARDS - 1];
    Card *card = &scenario.cards[scenario.card_count];
    memset(card, 0, sizeof *card);
    card->index = scenario.card_count++;
    card->lost_at_s = -1;
    card->lost_after_calls = -1;
    return card;
}

static void add_rule(Rule *rules, int *count, const char *text) {
    if (*count < MAX_RULES && sscanf(text, "%63s %lf", rules[*count].function, &rules[*count].value) == 2) ++*count;
}

static void add_process(Card *card, const char *text) {
    char pid[32] = "", kind[32] = "";
    int end = 0;
    Process *process = &card->processes[card->process_count];
    if (card->process_count == MAX_PROCESSES) return;
    if (sscanf(text, "%31s %llu %31s %n", pid, &process->memory, kind, &end) < 2) return;
    process->sm = wave_of(end ? text + end : "-1");
    process->pid = strcmp(pid, "self") == 0 ? (unsigned)getpid() : (unsigned)strtoul(pid, NULL, 10);
    process->graphics = strcmp(kind, "graphics") == 0;
    card->process_count++;
}

static void add_xid(Card *card, const char *text) {
    Xid *xid = &card->xids[card->xid_count];
    if (card->xid_count < MAX_XIDS && sscanf(text, "%u %lf", &xid->number, &xid->at_s) == 2) card->xid_count++;
}

/* `total used uuid name`: a slice has the figures of its card, but name and memory of its own. */
static void add_slice(Card *card, const char *text) {
    Card *slice = malloc(sizeof *slice);
    int end = 0;
    if (!slice || card->slice_count == MAX_SLICES) return;
    *slice = *card;
    slice->mig = 0, slice->memory_reserved = 0, slice->process_count = 0, slice->slice_count = -1;
    slice->memory_used = (Wave){0};
    if (sscanf(text, "%llu %lf %95s %n", &slice->memory_total, &slice->memory_used.base, slice->uuid, &end) < 3) return;
    snprintf(slice->name, sizeof slice->name, "%s", text + end);
    card->slices[card->slice_count++] = slice;
}

static void copy_text(char *target, size_t size, const char *text) { snprintf(target, size, "%s", text); }

static void card_line(Card *card, const char *key, const char *text) {
    if (!strcmp(key, "name")) copy_text(card->name, sizeof card->name, text);
    else if (!strcmp(key, "uuid")) copy_text(card->uuid, sizeof card->uuid, text);
    else if (!strcmp(key, "architecture")) card->architecture = (unsigned)atoi(text);
    else if (!strcmp(key, "capability")) sscanf(text, "%u %u", &card->major, &card->minor);
    else if (!strcmp(key, "mig")) card->mig = (unsigned)atoi(text);
    else if (!strcmp(key, "memory_total")) card->memory_total = strtoull(text, NULL, 10);
    else if (!strcmp(key, "memory_reserved")) card->memory_reserved = strtoull(text, NULL, 10);
    else if (!strcmp(key, "memory_used")) card->memory_used = wave_of(text);
    else if (!strcmp(key, "utilisation")) card->utilisation = wave_of(text);
    else if (!strcmp(key, "power_mw")) card->power_mw = wave_of(text);
    else if (!strcmp(key, "temperature")) card->temperature = wave_of(text);
    else if (!strcmp(key, "sm_clock")) card->sm_clock = wave_of(text);
    else if (!strcmp(key, "memory_clock")) card->memory_clock = wave_of(text);
    else if (!strcmp(key, "fan")) card->fan = wave_of(text);
    else if (!strcmp(key, "power_limit_mw")) card->power_limit_mw = (unsigned)atoi(text);
    else if (!strcmp(key, "sm_clock_max")) card->sm_clock_max = (unsigned)atoi(text);
    else if (!strcmp(key, "memory_clock_max")) card->memory_clock_max = (unsigned)atoi(text);
    else if (!strcmp(key, "reasons")) card->reasons = strtoull(text, NULL, 0);
    else if (!strcmp(key, "latency_s")) card->latency_s = atof(text);
    else if (!strcmp(key, "lost_at_s")) card->lost_at_s = atof(text);
    else if (!strcmp(key, "lost_after_calls")) card->lost_after_calls = atol(text);
    else if (!strcmp(key, "delay")) add_rule(card->delays, &card->delay_count, text);
    else if (!strcmp(key, "error")) add_rule(card->errors, &card->error_count, text);
    else if (!strcmp(key, "process")) add_process(card, text);
    else if (!strcmp(key, "xid")) add_xid(card, text);
    else if (!strcmp(key, "slice")) add_slice(card, text);
    else fprintf(stderr, "fake nvml: unknown key '%s'\n", key);
}

static Card *scenario_line(Card *card, const char *key, const char *text) {
    if (!strcmp(key, "gpu")) return new_card();
    if (!strcmp(key, "driver")) copy_text(scenario.driver, sizeof scenario.driver, text);
    else if (!strcmp(key, "cuda")) scenario.cuda = atoi(text);
    else if (!strcmp(key, "init_error")) scenario.init_error = atoi(text);
    else if (!strcmp(key, "init_latency_s")) scenario.init_latency_s = atof(text);
    else if (!strcmp(key, "frozen_s")) scenario.frozen_s = atof(text);
    else if (card) card_line(card, key, text);
    else fprintf(stderr, "fake nvml: '%s' before the first gpu\n", key);
    return card;
}

void load_scenario(void) {
    memset(&scenario, 0, sizeof scenario);
    scenario.frozen_s = -1;
    clock_gettime(CLOCK_MONOTONIC, &start);
    const char *path = getenv("FAKE_NVML_SCENARIO");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file) return;
    char line[512];
    Card *card = NULL;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *space = strchr(line, ' ');
        if (space) *space = 0;
        if (line[0] && line[0] != '#') card = scenario_line(card, line, space ? space + 1 : "");
    }
    fclose(file);
}
