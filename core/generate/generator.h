/* Continues texts with a model: programs that decode, KV caches and a sampler, which are kept
 * between calls. */
#ifndef LATHE_GENERATE_GENERATOR_H
#define LATHE_GENERATE_GENERATOR_H

#include "exec/program/exec.h"
#include "generate/generator_parts.h"
#include "lathe/lathe.h"

typedef struct lathe_generator lathe_generator;

/** Memory that a generator needs. */
typedef struct lathe_generator_memory {
    int64_t cache_bytes;                   /* of the KV caches */
    int64_t input_bytes;                   /* of its programs' inputs, and of kept logits */
    int64_t staging_bytes;                 /* host buffers for their inputs and outputs */
    int64_t arena_bytes, activation_bytes; /* of the shared arena */
    int64_t window_bytes;                  /* of the window of gathered values */
} lathe_generator_memory;

/** Makes a generator without device memory, so that its needs can be planned. If the device or the
 * attention backend has no KV cache in blocks, it continues one sequence at a time; with a draft
 * model this is LATHE_E_UNSUPPORTED. */
lathe_status lathe_generator_create(const lathe_generator_parts *parts,
                                    const lathe_generator_config *config, lathe_generator **out);
lathe_generator_memory lathe_generator_needs(const lathe_generator *g);
/** Allocates its memory, after the arena of parts->programs was allocated. */
lathe_status lathe_generator_place(lathe_generator *g);
/** NULL is fine. */
void lathe_generator_destroy(lathe_generator *g);

/** Whether it can continue as many sequences at a time as a new one for `batch` could. */
int lathe_generator_is_for(const lathe_generator *g, int32_t batch);

/** Source of prompts, and receiver of results. */
typedef struct lathe_prompt_stream {
    void *arg;
    /** *out_given: LATHE_PROMPT_*. The prompt is borrowed until the next call. */
    lathe_status (*next)(void *arg, lathe_prompt *out, int32_t *out_given);
    /** *made is borrowed during the call; `index` counts the prompts from 0. */
    lathe_status (*done)(void *arg, int64_t index, const lathe_generation *made);
    int32_t shares; /* 1: equal prompts are computed once */
} lathe_prompt_stream;

enum {
    LATHE_PROMPT_NONE = 0, /* there are no more */
    LATHE_PROMPT_GIVEN = 1,
    LATHE_PROMPT_LATER = 2 /* after the next result */
};

/** Continues every prompt of a stream, after lathe_generator_place. *out_failed: the prompt that an
 * error is about; -1: none. */
lathe_status lathe_generator_stream(lathe_generator *g, const lathe_sampling *how,
                                    const lathe_prompt_stream *stream, int64_t *out_failed);

/** Sees each token when it is drawn; a result other than 0 ends the sequence. */
typedef struct lathe_token_watch {
    int (*fn)(void *arg, int32_t token);
    void *arg;
} lathe_token_watch;

/** Sets what sees the tokens of the next generations, to stream and to stop them; fn NULL: nothing.
 */
void lathe_generator_watch(lathe_generator *g, lathe_token_watch watch);

/** Returns LATHE_E_ARG if the prompt leaves no room in the context for a new token. */
lathe_status lathe_generator_check(lathe_generator *g, const lathe_prompt *prompt);

/** Memory for results that its caller keeps until the next call. */
lathe_arena *lathe_generator_results(lathe_generator *g);

/** The largest number of blocks of the KV cache that were in use at a time since the last call of
 * lathe_generator_stream began; 0: the cache is not in blocks, or g is NULL. */
int32_t lathe_generator_max_blocks(const lathe_generator *g);

/** Tokens that the draft model proposed, and of these the accepted ones, since the generator was
 * made; 0 if g is NULL. */
void lathe_generator_drafts(const lathe_generator *g, int64_t *out_proposed, int64_t *out_accepted);

/** The program that decodes one token per call, for benchmarks; NULL if g is NULL. */
lathe_exec *lathe_generator_exec(const lathe_generator *g);

/** Whether the folder's own end tokens have this one. If generation_config.json lists end tokens,
 *  only those end a text, as in transformers. Otherwise the tokenizer's end-of-text token, which
 *  training puts between documents, and the end tokens of config.json do. tokenizer may be NULL. */
int lathe_is_end_token(const lathe_generation_config *c, const lathe_model_config *model,
                       const lathe_tokenizer *tokenizer, int32_t token);

#endif
