/* lathe convert of an adapter's folder. */
#ifndef LATHE_SAVEDCMD_CONVERT_ADAPTER_H
#define LATHE_SAVEDCMD_CONVERT_ADAPTER_H

#include "checkpoint/model_folder.h"

/** Writes the chosen weights of an adapter, which were checked, as a GGUF file of the type F32, F16
 *  or BF16. base: the model's folder; NULL: the one that the adapter names, which must be the one
 *  that it was trained over. */
lathe_status lathe_convert_adapter(const lathe_model_folder *found, const char *base,
                                   const char *to, int32_t type, lathe_arena *arena);

#endif
