/* Run files to begin with, one for each stage. */
#ifndef LATHE_CMD_RUN_TEMPLATES_H
#define LATHE_CMD_RUN_TEMPLATES_H

#include "base/buffer.h"

typedef struct lathe_run_template {
    const char *stage;
    int from_scratch; /* 1: describes a new model, and takes no folder */
    const char *data; /* path where the user gives none */
    const char *text; /* with @NAMES@ that lathe new fills in (cmd_new.c) */
} lathe_run_template;

/** The template of a stage; with a model's folder, the one that loads it. NULL: none. */
const lathe_run_template *lathe_run_template_find(const char *stage, int has_model);
/** Appends the names of all stages: "sft, pretrain, ...". */
void lathe_run_template_names(lathe_buffer *out);

#endif
