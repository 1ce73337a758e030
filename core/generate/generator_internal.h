/* Shared by the files of this room: the programs of a generator, the KV cache in
 * blocks, how tokens are drawn, and the sequences that are generated at the same time.
 *
 * The KV cache is cut into blocks, and a program decodes one token of each of up to `batch`
 * sequences. With an attention backend that cannot read keys in blocks there is one sequence at a
 * time, with a cache of its own. */
#ifndef LATHE_GENERATE_GENERATOR_INTERNAL_H
#define LATHE_GENERATE_GENERATOR_INTERNAL_H

#include "base/arena.h"
#include "generate/generator.h"
#include "model/family/sample.h"

enum {
    LATHE__BLOCK_TOKENS = 32, /* of the KV cache */
    LATHE__MAX_PROGRAMS = 16, /* of a generator */
    LATHE__CACHED_PROMPTS = 8 /* prompts whose keys are kept for equal prompts that follow */
};

/** A program that continues sequences: `tokens` of one sequence, or one token in each of `rows`. */
typedef struct lathe__pass {
    lathe_program program;
    int64_t rows, tokens;
} lathe__pass;

/** A sequence that is being generated, in a slot of the generator. */
typedef struct lathe__sequence {
    int32_t is_active, is_done, finish; /* finish: LATHE_FINISH_* */
    int64_t index;                      /* of its prompt in the stream */
    lathe_sampling how;
    int32_t *ids;               /* [capacity] prompt and generated tokens */
    float *logprobs;            /* [capacity] of the generated tokens */
    int32_t *blocks;            /* [row_blocks] its part of the KV cache */
    int64_t n, n_prompt, limit; /* tokens: so far, of the prompt, at most */
    int64_t computed;           /* tokens whose keys are in the cache */
    int64_t offset;             /* lathe_model_position_offset of these keys */
    int64_t n_blocks, reserved; /* blocks that it has, and that it may still take */
    int32_t n_drafted;          /* tokens of the draft model, in ids after the n tokens */
    int32_t verified;           /* of these, the one that is being verified */
    int32_t is_cached;          /* of the draft model: its prompt was given to the kept ones */
} lathe__sequence;

/** Logits of a program that has run, in host memory or on the device; borrowed until the next
 *  program runs. */
typedef struct lathe__logits {
    const float *rows;     /* [rows, V]; NULL: on the device */
    const double *sums;    /* [rows]; NULL: on the device, or it does not compute them */
    int64_t first;         /* on the device: the row of the first ones */
    const int32_t *tokens; /* [rows] drawn on the device; -1: not finite. NULL: nothing was drawn */
    const float *logprobs; /* [rows] of tokens */
} lathe__logits;

/** A prompt whose keys and logits are kept, so that equal prompts are computed once. */
typedef struct lathe__cached_prompt {
    int32_t *ids, *blocks; /* [capacity], [row_blocks] */
    float *logits;         /* [V] after the last token; NULL: on the device */
    double log_sum;
    int64_t n, used; /* used: when it was last used; n 0: empty */
} lathe__cached_prompt;

typedef struct lathe__device_sampling lathe__device_sampling; /* generate_sample.c */

struct lathe_generator {
    lathe_generator_parts parts;
    lathe_generator_config config;
    /* Programs of chunks, the longest first, then programs of rows, the largest first. */
    lathe__pass passes[LATHE__MAX_PROGRAMS];
    int32_t n_chunks, n_passes;
    int32_t batch;       /* sequences at a time */
    int32_t in_blocks;   /* 1: the KV cache is in blocks */
    int64_t tokens_each; /* of a sequence in a step: the last one and drafted ones */
    int32_t uses_team;   /* programs of rows run on a team of threads */
    int64_t capacity;    /* tokens of a sequence */
    int64_t row_blocks;  /* blocks of a sequence of `capacity` tokens; 0: not in blocks */
    int64_t n_blocks, n_free, least_free; /* least_free: since the last reset */
    int64_t n_padding; /* the first blocks, for the keys of padding rows: a place for each row */
    int32_t *free_blocks, *refs; /* [n_blocks] a stack, and the number of users of each block */
    lathe_sampler *sampler;      /* draws on the host; NULL: the device draws */
    lathe__device_sampling *sampling;  /* NULL: the host draws */
    int32_t drafts;                    /* 1: it generates for the draft model of another one */
    int64_t n_tokens;                  /* that are drawn from; a draft: those of its model */
    char *caches;                      /* all layers' k and v */
    char *arena;                       /* NULL: the run's shared arena is large enough */
    int64_t caches_bytes, arena_bytes; /* allocated for caches and arena */
    int64_t keys_bytes, values_bytes;  /* of one layer */
    /* States that ops of plugins keep of sequences, after the caches: for each such op n_slots
     * states of one size. Slot i is that of slots[i]; then come those of kept prompts, and last one
     * of zeros, with which sequences begin. */
    int64_t n_slots, *state_bytes; /* [n_states] of one sequence */
    int64_t states_bytes;          /* of all slots of all ops */
    int32_t n_states;
    lathe__sequence *slots; /* [batch] */
    lathe__cached_prompt cached[LATHE__CACHED_PROMPTS];
    int64_t clock;           /* counts uses of kept prompts */
    int32_t *row_slots;      /* [rows of the largest program] the sequence of each row */
    lathe_ids ids;           /* the prompt that waits for a slot */
    char *text;              /* of the last finished sequence */
    lathe_arena many;        /* the results of lathe_generate_many */
    lathe_token_watch watch; /* fn NULL: nobody watches */
    int32_t has_told_loss;   /* the warning about bytes of the prompt without a token was given */
    /* Generates with the draft model; slot i drafts for slot i of this one. NULL: none. */
    lathe_generator *draft;
    float *draft_logits; /* [batch, draft_tokens, V] the drafted tokens were drawn from; NULL: on
                            the device */
    int64_t n_drafted, n_accepted; /* tokens, since the generator was made */
};

/* ---- generate_pass.c ---- */

/** Computes a chunk of a sequence; `out` has the logits of its last token. */
lathe_status lathe__chunk_run(lathe_generator *g, lathe__sequence *s, const lathe__pass *p,
                              lathe__logits *out);
/** Computes one step: the next tokens of the sequences that are active and not done, in *out_n
 * rows. g->row_slots has the sequence of each row. */
lathe_status lathe__rows_run(lathe_generator *g, int64_t *out_n, lathe__logits *out);

/* ---- generate_sample.c: draws on the device ---- */

/** Sets g->sampling. LATHE_E_UNSUPPORTED: the device has no op for it. */
lathe_status lathe__sampling_create(lathe_generator *g);
void lathe__sampling_destroy(lathe_generator *g);
void lathe__sampling_needs(const lathe_generator *g, lathe_generator_memory *io_needs);
/** Allocates its memory, after the programs of the generator were placed. */
lathe_status lathe__sampling_place(lathe_generator *g, void *arena);
/** Draws a token from each of the n rows of a step after which no token is known, and decides on
 *  the drafted tokens. */
lathe_status lathe__sample_rows(lathe_generator *g, int64_t n, lathe__logits *io);
/** Draws the next token of a sequence from row io->first. */
lathe_status lathe__sample_one(lathe_generator *g, const lathe__sequence *s, lathe__logits *io);
/** The row of a kept prompt's logits. */
int64_t lathe__cached_row(const lathe_generator *g, const lathe__cached_prompt *k);
/** Queues copies of row `row` of the logits: to those of a kept prompt. */
lathe_status lathe__keep_logits(const lathe_generator *g, const lathe__cached_prompt *k,
                                int64_t row);
/** Like lathe__keep_logits, for row `row` of the draft model's logits: to those from which drafted
 *  tokens were drawn. */
lathe_status lathe__keep_draft_logits(const lathe_generator *g, int64_t draft_row, int64_t row);

/* ---- generate_draft.c: speculative decoding ---- */

/** Lets the draft model propose tokens for each sequence of which only the last token is not
 *  computed: s->n_drafted tokens, after the s->n tokens of s->ids. */
lathe_status lathe__draft_propose(lathe_generator *g);
/** Computes whole chunks of the prompts that the draft model has not yet computed. */
lathe_status lathe__draft_prompts(lathe_generator *g);
/** Sets the logits of the tokens that the draft model lacks, in n_rows rows of the model's size. */
void lathe__draft_clear_logits(const lathe_generator *g, float *rows, int64_t n_rows);
/** The draft model's logits of the drafted token s->verified; NULL: without drawing. */
const float *lathe__draft_logits(const lathe_generator *g, const lathe__sequence *s);
/** Starts drafting for a sequence. *out_fits: 0: the draft model's cache has no room yet. */
lathe_status lathe__draft_begin(lathe_generator *g, const lathe__sequence *s, int32_t shares,
                                int32_t *out_fits);
void lathe__draft_end(lathe_generator *g, const lathe__sequence *s);

/* ---- kv_cache.c ---- */

/** Bytes of the states of all slots of op i. */
int64_t lathe__states_bytes(const lathe_generator *g, int32_t i);
/* Where a layer's keys and values are in the caches, and the bytes of those of all layers. */
char *lathe__layer_keys(const lathe_generator *g, int32_t layer);
char *lathe__layer_values(const lathe_generator *g, int32_t layer);
int64_t lathe__kv_bytes(const lathe_generator *g);

lathe_status lathe__cache_init(lathe_generator *g);
void lathe__cache_fini(lathe_generator *g);
/** Returns all blocks, and forgets kept prompts. */
void lathe__cache_reset(lathe_generator *g);

/* Sharing of equal prompts. */
enum {
    LATHE__SHARE_NO = 0,
    LATHE__SHARE = 1,     /* waits while another sequence computes the same prompt */
    LATHE__SHARE_KEPT = 2 /* does not wait */
};

/** Starts a sequence of n_prompt tokens (s->ids), which becomes active. *out_cached: the kept
 * prompt that is equal, whose blocks it then shares, or NULL. *out_fits: 0: there are too few free
 * blocks. shares: LATHE__SHARE_*. */
lathe_status lathe__cache_admit(lathe_generator *g, lathe__sequence *s, int32_t shares,
                                const lathe__cached_prompt **out_cached, int32_t *out_fits);
/** Keeps the prompt of a sequence, whose keys are all computed, with its logits: row `row`. */
lathe_status lathe__cache_keep(lathe_generator *g, const lathe__sequence *s, const lathe__logits *l,
                               int64_t row);
/** Makes positions [begin, end) of the sequence writable: takes blocks, copies those that others
 *  use too. */
lathe_status lathe__cache_hold(lathe_generator *g, lathe__sequence *s, int64_t begin, int64_t end);
/** Forgets keys and states of an active sequence, to compute them again with other positions. */
lathe_status lathe__cache_restart(lathe_generator *g, lathe__sequence *s, int64_t offset);
/** Returns the sequence's blocks. */
void lathe__cache_release(lathe_generator *g, lathe__sequence *s);

/* ---- generate_prompt.c ---- */

/** Writes the prompt's ids to g->ids. */
lathe_status lathe__prompt_read(lathe_generator *g, const lathe_prompt *prompt);
/** The result of a finished sequence; its text is g->text. */
lathe_status lathe__sequence_result(lathe_generator *g, const lathe__sequence *s,
                                    lathe_generation *out);
/** Whether the sequence ends with its last token; sets s->finish. */
lathe_status lathe__sequence_ends(lathe_generator *g, lathe__sequence *s, int32_t *out_ends);

#endif
