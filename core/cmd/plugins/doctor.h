/* Collects the parts of the output of `lathe doctor` as JSON, from which the text output is
 * made, too. */
#ifndef LATHE_CMD_DOCTOR_H
#define LATHE_CMD_DOCTOR_H

#include <jansson.h>

/** {"model", "cpus", "threads", "features": [..], "os_enabled": [..]}: from CPUID, and the
 *  registers that the system saves at a task switch (XGETBV). A feature whose registers are not
 *  saved cannot be used. */
json_t *lathe_doctor_cpu(void);

/** {"total_bytes", "available_bytes", "limit_bytes" (of the control group; null: none)}. */
json_t *lathe_doctor_memory(void);

/** {"driver": "13.0" or null, "devices": [..], "libraries": [{"name", "version", "path"}],
 *  "toolkit": path or null, "why": text}. Libraries: those of cuBLASLt and cuDNN that the loader
 *  finds. */
json_t *lathe_doctor_cuda(void);

/** The version of the oneDNN that the loader finds, "2.6.3", or null. */
json_t *lathe_doctor_onednn(void);

#endif
