/* The file of a SentencePiece model (tokenizer.model): its pieces and the settings that decide how
 * a text becomes pieces. */
#ifndef LATHE_FILES_SENTENCEPIECE_H
#define LATHE_FILES_SENTENCEPIECE_H

#include "lathe/status.h"

enum {
    LATHE_PIECE_NORMAL = 1,
    LATHE_PIECE_UNKNOWN = 2,
    LATHE_PIECE_CONTROL = 3,
    LATHE_PIECE_USER_DEFINED = 4,
    LATHE_PIECE_UNUSED = 5,
    LATHE_PIECE_BYTE = 6
};

enum { LATHE_SPM_UNIGRAM = 1, LATHE_SPM_BPE = 2 };

/** Text that the file holds; not followed by a NUL. */
typedef struct lathe_spm_text {
    const char *text;
    int64_t n;
} lathe_spm_text;

typedef struct lathe_spm_piece {
    lathe_spm_text text; /* UTF-8 */
    float score;
    int32_t type; /* LATHE_PIECE_* */
} lathe_spm_piece;

typedef struct lathe_spm {
    lathe_spm_piece *pieces; /* [n] by id */
    int64_t n, capacity;
    int32_t model_type; /* LATHE_SPM_* */
    int32_t unk_id, bos_id, eos_id;
    lathe_spm_text unk, bos, eos;
    int32_t byte_fallback, space_is_suffix;
    int32_t adds_prefix, trims_spaces, escapes_spaces; /* settings of the normalizer */
    lathe_spm_text charsmap;                           /* bytes of precompiled_charsmap */
} lathe_spm;

/** Reads the fields above of a ModelProto (sentencepiece_model.proto) and passes over all others.
 *  The result borrows `bytes`. Call lathe_spm_fini in either case.
 *
 *  Errors  LATHE_E_PARSE: `place` and the position of the byte.
 *          LATHE_E_UNSUPPORTED: a model of words or characters, or one that puts spaces after
 *          words.
 *
 *  Memory  48 bytes per piece, of which each takes 2 bytes of the file at least. */
lathe_status lathe_spm_read(const char *place, const uint8_t *bytes, int64_t n, lathe_spm *out);
void lathe_spm_fini(lathe_spm *spm);

#endif
