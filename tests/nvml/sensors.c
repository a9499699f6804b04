/* A driver with eight GPUs, for nvidia-ml-py: what their sensors tell, and how they fail.
 *
 * The file that SENSORS names is read at each call, so a test may change it meanwhile. Its
 * first word: "well"; "lost" (the GPUs fell off the bus); "stuck" (the driver does not return).
 * Signatures and error codes: NVML API reference, nvml.h of CUDA 13.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK() do { int failed = condition(); if (failed) return failed; } while (0)

typedef struct { unsigned gpu, memory; } Rates;
typedef struct { unsigned long long total, free, used; } Bytes;

enum { GPUS = 8, NAMED = 6 };
static const char uuid[] = "GPU-8f2b"; /* of NAMED */
static int gpus[GPUS];

static int condition(void) {
    char word[16] = "";
    FILE *told = fopen(getenv("SENSORS"), "r");
    if (told) {
        if (fscanf(told, "%15s", word) != 1) word[0] = 0;
        fclose(told);
    }
    while (!strcmp(word, "stuck")) sleep(60);
    return strcmp(word, "lost") ? 0 : 15; /* NVML_ERROR_GPU_IS_LOST */
}

int nvmlInitWithFlags(unsigned flags) { return (int)(flags & 0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "Not Supported"; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    CHECK();
    if (index >= GPUS) return 2; /* NVML_ERROR_INVALID_ARGUMENT */
    *handle = &gpus[index];
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *wanted, void **handle) {
    CHECK();
    *handle = &gpus[NAMED];
    return strcmp(wanted, uuid) ? 6 : 0; /* NVML_ERROR_NOT_FOUND */
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
    CHECK();
    snprintf(name, length, "NVIDIA H100 %d", (int)((int *)handle - gpus));
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *handle, Rates *rates) {
    CHECK();
    *rates = (Rates){.gpu = 87, .memory = 40};
    return (void)handle, 0;
}

int nvmlDeviceGetMemoryInfo(void *handle, Bytes *memory) {
    CHECK();
    *memory = (Bytes){.total = 80ULL << 30, .free = 20ULL << 30, .used = 60ULL << 30};
    return (void)handle, 0;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius) {
    CHECK();
    *celsius = 71;
    return (void)handle, sensor != 0;
}

int nvmlDeviceGetClockInfo(void *handle, int clock, unsigned *megahertz) {
    CHECK();
    *megahertz = clock == 1 ? 1980 : 2619; /* NVML_CLOCK_SM, NVML_CLOCK_MEM */
    return (void)handle, 0;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts) {
    (void)handle, (void)milliwatts;
    return 3; /* NVML_ERROR_NOT_SUPPORTED */
}
