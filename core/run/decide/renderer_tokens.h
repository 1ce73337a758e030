/* Compares the special tokens that a renderer writes with those of the tokenizer. */
#ifndef LATHE_RUN_RENDERER_TOKENS_H
#define LATHE_RUN_RENDERER_TOKENS_H

#include "run/state/run_state.h"

/** Warns if the tokenizer has no token for the end of an answer as the renderer of run->data.chat
 *  writes it, and names all special tokens that the tokenizer lacks. Names that only begin turns
 *  may be plain text: in some families (Zephyr) most tokenizers have no tokens for them. */
lathe_status lathe__renderer_tokens_warn(const lathe_run *run);

#endif
