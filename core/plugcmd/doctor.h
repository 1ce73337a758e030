/* What `lathe doctor` finds, each part as JSON that is also printed for people. */
#ifndef LATHE_PLUGCMD_DOCTOR_H
#define LATHE_PLUGCMD_DOCTOR_H

#include <jansson.h>

/** {"model", "cpus", "threads", "features": [..], "os_enabled": [..]}: CPUID, and what the system
 *  saves at a task switch (XGETBV); a feature without it cannot be used. */
json_t *lathe_doctor_cpu(void);

/** {"total_bytes", "available_bytes", "limit_bytes" (control group; null: none)}. */
json_t *lathe_doctor_memory(void);

/** {"driver": "13.0" or null, "devices": [..], "libraries": [{"name", "version", "path"}],
 *  "toolkit": path or null, "why": text}. Libraries: those of cuBLASLt and cuDNN that the loader
 *  finds. */
json_t *lathe_doctor_cuda(void);

/** "2.6.3", or null: the oneDNN that the loader finds. */
json_t *lathe_doctor_onednn(void);

#endif
