/* Describes CPU, memory and oneDNN, without running kernels. */
#include <dlfcn.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parallel.h"
#include "cmd/plugins/doctor.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Bits of XCR0: registers that the system saves and restores. */
enum { OS_YMM = 0x6, OS_ZMM = 0xe6, OS_AMX = 0x60000 };

static uint64_t xcr0(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* One row of CPUID: leaf, subleaf, register (a b c d), bit. */
typedef struct feature {
    const char *name;
    unsigned leaf, subleaf;
    int reg, bit;
    uint64_t needs; /* bits of XCR0 */
} feature;

static const feature features[] = {
    {"avx", 1, 0, 2, 28, OS_YMM},        {"f16c", 1, 0, 2, 29, OS_YMM},
    {"fma", 1, 0, 2, 12, OS_YMM},        {"avx2", 7, 0, 1, 5, OS_YMM},
    {"avx_vnni", 7, 1, 0, 4, OS_YMM},    {"avx512f", 7, 0, 1, 16, OS_ZMM},
    {"avx512dq", 7, 0, 1, 17, OS_ZMM},   {"avx512bw", 7, 0, 1, 30, OS_ZMM},
    {"avx512vl", 7, 0, 1, 31, OS_ZMM},   {"avx512_vnni", 7, 0, 2, 11, OS_ZMM},
    {"avx512_bf16", 7, 1, 0, 5, OS_ZMM}, {"avx512_fp16", 7, 0, 3, 23, OS_ZMM},
    {"amx_tile", 7, 0, 3, 24, OS_AMX},   {"amx_bf16", 7, 0, 3, 22, OS_AMX},
    {"amx_int8", 7, 0, 3, 25, OS_AMX},
};

static void add_features(json_t *out)
{
    const uint64_t enabled = xcr0();
    json_t *usable = json_array(), *unusable = json_array(), *state = json_array();
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        const feature *f = &features[i];
        unsigned r[4];
        if (!__get_cpuid_count(f->leaf, f->subleaf, &r[0], &r[1], &r[2], &r[3]) ||
            !(r[f->reg] >> f->bit & 1))
            continue;
        json_array_append_new((enabled & f->needs) == f->needs ? usable : unusable,
                              json_string(f->name));
    }
    if ((enabled & OS_YMM) == OS_YMM)
        json_array_append_new(state, json_string("ymm"));
    if ((enabled & OS_ZMM) == OS_ZMM)
        json_array_append_new(state, json_string("zmm"));
    if ((enabled & OS_AMX) == OS_AMX)
        json_array_append_new(state, json_string("amx tiles"));
    json_object_set_new(out, "features", usable);
    json_object_set_new(out, "features_off_in_the_system", unusable);
    json_object_set_new(out, "os_enabled", state);
}
#else
static void add_features(json_t *out)
{
    json_object_set_new(out, "features", json_array());
}
#endif

/* Reads the text after "key:" in a file of such lines; returns 0 if there is none. */
static int find_line(const char *path, const char *key, char *out, size_t bytes)
{
    char line[512];
    FILE *file = fopen(path, "re");
    int found = 0;
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        (void)snprintf(out, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = 1;
    }
    if (file != NULL)
        (void)fclose(file);
    return found;
}

json_t *lathe_doctor_cpu(void)
{
    json_t *out = json_object();
    char model[256] = "unknown";
    cpu_set_t set;
    (void)find_line("/proc/cpuinfo", "model name", model, sizeof model);
    CPU_ZERO(&set);
    const int allowed = sched_getaffinity(0, sizeof set, &set) == 0
                            ? CPU_COUNT(&set)
                            : (int)sysconf(_SC_NPROCESSORS_ONLN);
    json_object_set_new(out, "model", json_string(model));
    json_object_set_new(out, "cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(out, "allowed", json_integer(allowed));
    json_object_set_new(out, "threads", json_integer(lathe_parallel_threads()));
    add_features(out);
    return out;
}

static json_t *meminfo(const char *key)
{
    char text[64];
    if (!find_line("/proc/meminfo", key, text, sizeof text))
        return json_null();
    return json_integer((json_int_t)strtoll(text, NULL, 10) * 1024); /* the file has kB */
}

json_t *lathe_doctor_memory(void)
{
    json_t *out = json_object();
    char text[64] = "";
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
    if (file != NULL) {
        if (fgets(text, sizeof text, file) == NULL)
            text[0] = '\0';
        (void)fclose(file);
    }
    json_object_set_new(out, "total_bytes", meminfo("MemTotal"));
    json_object_set_new(out, "available_bytes", meminfo("MemAvailable"));
    json_object_set_new(out, "limit_bytes",
                        text[0] >= '0' && text[0] <= '9'
                            ? json_integer((json_int_t)strtoll(text, NULL, 10))
                            : json_null());
    return out;
}

json_t *lathe_doctor_onednn(void)
{
    static const char *const names[] = {"libdnnl.so.3", "libdnnl.so.2"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *so = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL);
        const int *(*version)(void) = NULL; /* dnnl_version_t begins with major, minor, patch */
        void *symbol = so ? dlsym(so, "dnnl_version") : NULL;
        memcpy(&version, &symbol, sizeof version);
        if (version != NULL)
            return json_sprintf("%d.%d.%d", version()[0], version()[1], version()[2]);
    }
    return json_null();
}
