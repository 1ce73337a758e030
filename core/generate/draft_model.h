/* A draft model: a language model of the same vocabulary, whose weights come from a folder of its
 * own, beside a run and on its machine.
 *
 *   create   reads config.json, builds the parameters; no device memory, no weights
 *   place    allocates the weights; load reads them
 */
#ifndef LATHE_GENERATE_DRAFT_MODEL_H
#define LATHE_GENERATE_DRAFT_MODEL_H

#include "generate/generator_parts.h"

typedef struct lathe_draft lathe_draft;

/** Input to lathe_draft_create; machine and path are borrowed for the draft model's life. */
typedef struct lathe_draft_config {
    lathe_machine *machine;
    lathe_model_source source; /* where to find the plugin of the model's family */
    const char *path;
    int64_t seq_len;       /* tokens of a sequence, at most */
    int32_t compute_dtype; /* LATHE_F32, LATHE_BF16, LATHE_F16 */
} lathe_draft_config;

/** LATHE_E_CONFIG: the folder has no language model, or its model has fewer positions than seq_len.
 */
lathe_status lathe_draft_create(const lathe_draft_config *config, lathe_draft **out);
void lathe_draft_destroy(lathe_draft *draft); /* NULL is fine */

/** The draft model's configuration. */
const lathe_model_config *lathe_draft_model(const lathe_draft *draft);
/** Bytes of its weights on the device. */
int64_t lathe_draft_bytes(const lathe_draft *draft);

/** Allocates the weights and reads them; does nothing when that was done before. */
lathe_status lathe_draft_load(lathe_draft *draft);

/** Fills in the parts and the configuration of the draft model's generator, beside a generator of
 *  these. */
void lathe_draft_parts(const lathe_draft *draft, const lathe_generator_parts *parts,
                       const lathe_generator_config *config, lathe_generator_parts *out_parts,
                       lathe_generator_config *out_config);

#endif
