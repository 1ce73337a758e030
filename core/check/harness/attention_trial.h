/* A problem for an attention backend: its memory as the backend reads it,
 * and in double precision. */
#ifndef LATHE_CHECK_ATTENTION_TRIAL_H
#define LATHE_CHECK_ATTENTION_TRIAL_H

#include "check/harness/device_side.h"
#include "lathe/attention.h"

/* The sizes B, Tq, Tk, H, Hkv, D of a problem, and its options. */
typedef struct lathe__attention_shape {
    const char *name;
    int64_t b, tq, tk;
    int32_t h, hkv, d, causal, window, packed, cached;
    float softcap;
    int32_t bounded; /* LATHE__TWO_WAY or LATHE__PREFIX; 0: no key_end */
    int32_t alibi;   /* 1: with slopes */
    int32_t sinks;   /* 1: with sinks */
    int32_t dv;      /* Dv; 0: D */
} lathe__attention_shape;

enum { LATHE__TWO_WAY = 1, LATHE__PREFIX };

enum {
    LATHE__Q,
    LATHE__K,
    LATHE__V,
    LATHE__DO,
    LATHE__O,
    LATHE__DQ,
    LATHE__DK,
    LATHE__DV,
    LATHE__N_ATTENTION_TENSORS
};

/* The memory of a problem: as the backend reads it, and the same in double. */
typedef struct lathe__attention_trial {
    lathe_attention_problem p;
    lathe_device_info device;
    int64_t count[LATHE__N_ATTENTION_TENSORS];
    void *data[LATHE__N_ATTENTION_TENSORS];
    double *exact[LATHE__N_ATTENTION_TENSORS], *exact_lse;
    float *lse;
    int32_t *doc_start, *key_end, *kv_len;
    float *slopes;
    double *exact_slopes;
    float *sinks;
    double *exact_sinks;
    void *scratch[2];
    uint32_t accumulate; /* for the backward */
    int64_t taken;       /* heap blocks that the last run took */
} lathe__attention_trial;

/** Fills the inputs of a problem with noise; memory is the subject's. */
void lathe__attention_trial_init(lathe__subject *s, const lathe__attention_shape *x, int32_t dtype,
                                 lathe__attention_trial *t);
/** The backend's score of the problem. */
int32_t lathe__attention_trial_score(lathe__subject *s, void *self, lathe__attention_trial *t,
                                     char *why, int64_t why_bytes);
/** Runs the backend: forward, and backward unless the problem has none. */
lathe_status lathe__attention_trial_run(lathe__subject *s, void *self, lathe__attention_trial *t);
/** Computes the exact results from the inputs. */
void lathe__attention_trial_exact(lathe__subject *s, lathe__attention_trial *t);
/** Compares results with exact ones. *worst: the largest error so far, relative to its bound. */
lathe_status lathe__attention_trial_compare(const lathe__attention_trial *t, double *worst);

/** Element i of a tensor. */
void lathe__attention_store(void *data, int32_t dtype, int64_t i, float x);
double lathe__attention_load(const void *data, int32_t dtype, int64_t i);

#endif
