/* Describes the NVIDIA driver and toolkit, which are opened by name, because neither is needed to
 * build or to run. */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/plugins/doctor.h"

/* The functions of the driver API that are called; each returns 0 for success. */
typedef struct driver {
    int (*init)(unsigned flags);
    int (*version)(int *out);
    int (*count)(int *out);
    int (*name)(char *out, int bytes, int device);
    int (*attribute)(int *out, int attribute, int device);
    int (*memory)(size_t *out, int device);
    int (*error_name)(int code, const char **out);
} driver;

enum { ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 }; /* compute capability */

static int load(void *so, const char *name, void *out)
{
    void *symbol = dlsym(so, name);
    memcpy(out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void add_devices(const driver *d, json_t *devices)
{
    int n = 0;
    (void)d->count(&n);
    for (int i = 0; i < n; i++) {
        char name[128] = "";
        int major = 0, minor = 0;
        size_t bytes = 0;
        (void)d->name(name, (int)sizeof name, i);
        (void)d->attribute(&major, ATTRIBUTE_MAJOR, i);
        (void)d->attribute(&minor, ATTRIBUTE_MINOR, i);
        (void)d->memory(&bytes, i);
        json_array_append_new(devices,
                              json_pack("{s:s, s:i, s:I}", "name", name, "sm", major * 10 + minor,
                                        "memory_bytes", (json_int_t)bytes));
    }
}

static void add_driver(json_t *out)
{
    driver d = {0};
    int version = 0;
    json_t *devices = json_array();
    json_object_set_new(out, "driver", json_null());
    json_object_set_new(out, "devices", devices);
    void *so = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (so == NULL) {
        json_object_set_new(out, "why", json_string("no driver: libcuda.so.1 is not found"));
        return;
    }
    if (!load(so, "cuInit", &d.init) || !load(so, "cuDriverGetVersion", &d.version) ||
        !load(so, "cuDeviceGetCount", &d.count) || !load(so, "cuDeviceGetName", &d.name) ||
        !load(so, "cuDeviceGetAttribute", &d.attribute) ||
        !load(so, "cuDeviceTotalMem_v2", &d.memory) || !load(so, "cuGetErrorName", &d.error_name)) {
        json_object_set_new(out, "why", json_string("libcuda.so.1 lacks functions: is it a stub?"));
        return;
    }
    if (d.version(&version) == 0)
        json_object_set_new(out, "driver",
                            json_sprintf("%d.%d", version / 1000, version % 1000 / 10));
    const int code = d.init(0);
    const char *text = "?";
    if (code != 0) {
        (void)d.error_name(code, &text);
        json_object_set_new(out, "why", json_sprintf("cuInit: %s", text));
        return;
    }
    add_devices(&d, devices);
}

/* The path of nvcc: in PATH, else in /usr/local/cuda. */
static json_t *toolkit(void)
{
    const char *path = getenv("PATH");
    char file[4096];
    while (path != NULL && *path != '\0') {
        const size_t n = strcspn(path, ":");
        (void)snprintf(file, sizeof file, "%.*s/nvcc", (int)n, path);
        if (n > 0 && access(file, X_OK) == 0)
            return json_string(file);
        path += n + (path[n] == ':');
    }
    (void)snprintf(file, sizeof file, "/usr/local/cuda/bin/nvcc");
    return access(file, X_OK) == 0 ? json_string(file) : json_null();
}

/* Describes a library that plugins open by this name, as the loader finds it now. */
static void add_library(json_t *out, const char *name, const char *file, const char *version_of)
{
    void *so = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *map = NULL;
    size_t (*version)(void) = NULL;
    if (so == NULL)
        return;
    (void)dlinfo(so, RTLD_DI_LINKMAP, &map);
    const size_t v = load(so, version_of, &version) ? version() : 0;
    json_array_append_new(out,
                          json_pack("{s:s, s:o, s:s}", "name", name, "version",
                                    json_sprintf("%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100),
                                    "path", map != NULL ? map->l_name : file));
}

static json_t *libraries(void)
{
    json_t *out = json_array();
    for (int major = 13; major >= 12; major--) {
        char file[32];
        (void)snprintf(file, sizeof file, "libcublasLt.so.%d", major);
        add_library(out, "cuBLASLt", file, "cublasLtGetVersion");
    }
    add_library(out, "cuDNN", "libcudnn.so.9", "cudnnGetVersion");
    return out;
}

json_t *lathe_doctor_cuda(void)
{
    json_t *out = json_object();
    add_driver(out);
    json_object_set_new(out, "libraries", libraries());
    json_object_set_new(out, "toolkit", toolkit());
    return out;
}
