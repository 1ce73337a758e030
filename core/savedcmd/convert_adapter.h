/* lathe convert of an adapter's folder. */
#ifndef LATHE_SAVEDCMD_CONVERT_ADAPTER_H
#define LATHE_SAVEDCMD_CONVERT_ADAPTER_H

#include "base/arena.h"
#include "lathe/status.h"

/** Finds the folder of an adapter without a model: `path`, or the latest checkpoint in it. *out
 * NULL: there is none. */
lathe_status lathe_convert_adapter_find(const char *path, lathe_arena *arena, const char **out);

/** Writes the adapter as a GGUF file of the type F32, F16 or BF16. base: the model's folder; NULL:
 *  the one that the adapter names. The average is taken if there is one. */
lathe_status lathe_convert_adapter(const char *dir, const char *base, const char *to, int32_t type,
                                   lathe_arena *arena);

#endif
