/* The folders of several adapters over one base. */
#ifndef LATHE_SESSION_NAMED_FOLDERS_H
#define LATHE_SESSION_NAMED_FOLDERS_H

#include "run/folder/folder_settings.h"
#include "run/parts/named_adapters.h"
#include "session/model_request.h"

/** Reads ask->adapters, and adds to `settings` what the folders say about the whole model:
 *  quantization, precision and renderer, in which all must agree unless the caller sets it.
 *  base: the model. *out_tokenizer: tokenizer.path for all of them; NULL: that of a GGUF
 *  file. *out is for lathe_run_open_named.
 *
 *  Errors  LATHE_E_ARG: a name that is given twice or unknown.
 *          LATHE_E_CONFIG: a folder holds no adapter; two folders disagree. */
lathe_status lathe_named_folders_read(const lathe_model_request *ask, const char *base,
                                      lathe_arena *arena, lathe_setting_list *settings,
                                      const char **out_tokenizer, lathe_named_adapters **out);

#endif
