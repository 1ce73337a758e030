/* Writes adapter_config.json, with the keys of PEFT, into a caller's buffer. */
#ifndef LATHE_ADAPTERS_PEFT_TEXT_H
#define LATHE_ADAPTERS_PEFT_TEXT_H

#include "shared/targets.h"

/* n counts the whole text, also beyond the capacity. */
typedef struct peft_text {
    char *out;
    int64_t capacity, n;
} peft_text;

void peft_put(peft_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** Begins the object: peft_type, task_type, the model, target_modules. */
void peft_begin(peft_text *t, const char *type, const char *base, const targets *modules);
/** Ends it: the settings that are alike for every adapter. */
void peft_end(peft_text *t, const targets *modules);

#endif
