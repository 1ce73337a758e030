/* Reads the protocol buffer of a SentencePiece model: the dozen fields that matter, by their
 * numbers. Source: sentencepiece_model.proto (github.com/google/sentencepiece). */
#include "files/vocab/sentencepiece.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

/* Bytes of the longest piece (SentencePiece trains pieces of 16 characters by default, Gemma has
 * some of 31); bounds the time that finding the merges of a piece takes. */
enum { MAX_PIECE = 1024, MAX_PIECES = 1 << 24 };

typedef struct reader {
    const char *place;
    const uint8_t *begin, *at, *end; /* begin: of the file, for positions in messages */
} reader;

/* A field: its number, and its value by its wire type. */
typedef struct field {
    int32_t number, wire;
    uint64_t value; /* varint, 64 or 32 bits */
    reader inside;  /* length-delimited */
} field;

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static lathe_status wrong(const reader *r, const char *what)
{
    return lathe_error(LATHE_E_PARSE, "%s: byte %lld: %s: the file is no SentencePiece model",
                       r->place, (long long)(r->at - r->begin), what);
}

static lathe_status read_varint(reader *r, uint64_t *out)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (r->at == r->end)
            return wrong(r, "a number is cut off");
        const uint8_t byte = *r->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return LATHE_OK;
        }
    }
    return wrong(r, "a number of more than 64 bits");
}

/* Reads the next field; the caller checks that there is one. */
static lathe_status next_field(reader *r, field *out)
{
    uint64_t key = 0, n = 0;
    LATHE_TRY(read_varint(r, &key));
    if (key >> 3 == 0 || key >> 3 > 1 << 29)
        return wrong(r, "no number of a field");
    *out = (field){.number = (int32_t)(key >> 3), .wire = (int32_t)(key & 7)};
    switch (out->wire) {
    case WIRE_VARINT:
        return read_varint(r, &out->value);
    case WIRE_64:
    case WIRE_32:
        n = out->wire == WIRE_64 ? 8 : 4;
        break;
    case WIRE_BYTES:
        LATHE_TRY(read_varint(r, &n));
        break;
    default:
        return wrong(r, "an unknown kind of field");
    }
    if (n > (uint64_t)(r->end - r->at))
        return wrong(r, "a field reaches beyond its end");
    out->inside = (reader){r->place, r->begin, r->at, r->at + n};
    for (uint64_t i = 0; out->wire != WIRE_BYTES && i < n; i++) /* little-endian */
        out->value |= (uint64_t)r->at[i] << 8 * i;
    r->at += n;
    return LATHE_OK;
}

static lathe_spm_text text_of(const field *f)
{
    return (lathe_spm_text){(const char *)f->inside.at, f->inside.end - f->inside.at};
}

static lathe_status read_piece(reader *r, lathe_spm *spm)
{
    if (spm->n == MAX_PIECES)
        return wrong(r, "more than 2^24 pieces");
    if (spm->n == spm->capacity) {
        const int64_t capacity = spm->capacity * 2 + 1024;
        lathe_spm_piece *grown = realloc(spm->pieces, (size_t)capacity * sizeof *grown);
        if (grown == NULL)
            return lathe_error(LATHE_E_NOMEM, "%s: the pieces of a tokenizer", r->place);
        spm->pieces = grown;
        spm->capacity = capacity;
    }
    lathe_spm_piece *piece = &spm->pieces[spm->n];
    *piece = (lathe_spm_piece){.text = {"", 0}, .type = LATHE_PIECE_NORMAL};
    while (r->at < r->end) {
        field f;
        LATHE_TRY(next_field(r, &f));
        if (f.number == 1 && f.wire == WIRE_BYTES) {
            piece->text = text_of(&f);
        } else if (f.number == 2 && f.wire == WIRE_32) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&piece->score, &bits, sizeof bits);
        } else if (f.number == 3 && f.wire == WIRE_VARINT) {
            piece->type = (int32_t)f.value;
        }
    }
    const lathe_spm_text *t = &piece->text;
    if (t->n > MAX_PIECE || lathe_utf8_prefix((const uint8_t *)t->text, t->n) != t->n)
        return lathe_error(LATHE_E_PARSE, "%s: piece %lld is not UTF-8 of at most %d bytes",
                           r->place, (long long)spm->n, MAX_PIECE);
    if (!(piece->score - piece->score == 0.0f))
        return lathe_error(LATHE_E_PARSE, "%s: piece %lld has a score that is no number", r->place,
                           (long long)spm->n);
    spm->n++;
    return LATHE_OK;
}

static lathe_status read_trainer(reader *r, lathe_spm *spm)
{
    while (r->at < r->end) {
        field f;
        LATHE_TRY(next_field(r, &f));
        if (f.number == 3 && f.wire == WIRE_VARINT)
            spm->model_type = (int32_t)f.value;
        else if (f.number == 24 && f.wire == WIRE_VARINT)
            spm->space_is_suffix = f.value != 0;
        else if (f.number == 35 && f.wire == WIRE_VARINT)
            spm->byte_fallback = f.value != 0;
        else if (f.number == 40 && f.wire == WIRE_VARINT)
            spm->unk_id = (int32_t)f.value;
        else if (f.number == 41 && f.wire == WIRE_VARINT)
            spm->bos_id = (int32_t)f.value;
        else if (f.number == 42 && f.wire == WIRE_VARINT)
            spm->eos_id = (int32_t)f.value;
        else if (f.number == 45 && f.wire == WIRE_BYTES)
            spm->unk = text_of(&f);
        else if (f.number == 46 && f.wire == WIRE_BYTES)
            spm->bos = text_of(&f);
        else if (f.number == 47 && f.wire == WIRE_BYTES)
            spm->eos = text_of(&f);
    }
    return LATHE_OK;
}

static lathe_status read_normalizer(reader *r, lathe_spm *spm)
{
    while (r->at < r->end) {
        field f;
        LATHE_TRY(next_field(r, &f));
        if (f.number == 2 && f.wire == WIRE_BYTES)
            spm->charsmap = text_of(&f);
        else if (f.number == 3 && f.wire == WIRE_VARINT)
            spm->adds_prefix = f.value != 0;
        else if (f.number == 4 && f.wire == WIRE_VARINT)
            spm->trims_spaces = f.value != 0;
        else if (f.number == 5 && f.wire == WIRE_VARINT)
            spm->escapes_spaces = f.value != 0;
    }
    return LATHE_OK;
}

static lathe_status check(const char *place, const lathe_spm *spm)
{
    const lathe_spm_text *const names[] = {&spm->unk, &spm->bos, &spm->eos};
    if (spm->n == 0)
        return lathe_error(LATHE_E_PARSE, "%s: a SentencePiece model without pieces", place);
    for (int i = 0; i < 3; i++)
        if (names[i]->n > MAX_PIECE ||
            lathe_utf8_prefix((const uint8_t *)names[i]->text, names[i]->n) != names[i]->n)
            return lathe_error(LATHE_E_PARSE, "%s: the name of a special piece is not UTF-8",
                               place);
    if (spm->model_type != LATHE_SPM_UNIGRAM && spm->model_type != LATHE_SPM_BPE)
        return lathe_error(
            LATHE_E_UNSUPPORTED,
            "%s: trainer_spec.model_type is %d (%s); supported: 1 (unigram), 2 (bpe)", place,
            spm->model_type,
            spm->model_type == 3   ? "word"
            : spm->model_type == 4 ? "char"
                                   : "unknown");
    if (spm->space_is_suffix)
        return lathe_error(LATHE_E_UNSUPPORTED,
                           "%s: trainer_spec.treat_whitespace_as_suffix is true, which no "
                           "tokenizer.json expresses",
                           place);
    return LATHE_OK;
}

lathe_status lathe_spm_read(const char *place, const uint8_t *bytes, int64_t n, lathe_spm *out)
{
    reader r = {place, bytes, bytes, bytes + n};
    *out = (lathe_spm){.model_type = LATHE_SPM_UNIGRAM, /* the defaults of the .proto */
                       .unk_id = 0,
                       .bos_id = 1,
                       .eos_id = 2,
                       .unk = {"<unk>", 5},
                       .bos = {"<s>", 3},
                       .eos = {"</s>", 4},
                       .adds_prefix = 1,
                       .trims_spaces = 1,
                       .escapes_spaces = 1};
    while (r.at < r.end) {
        field f;
        LATHE_TRY(next_field(&r, &f));
        if (f.wire != WIRE_BYTES)
            continue;
        if (f.number == 1)
            LATHE_TRY(read_piece(&f.inside, out));
        else if (f.number == 2)
            LATHE_TRY(read_trainer(&f.inside, out));
        else if (f.number == 3)
            LATHE_TRY(read_normalizer(&f.inside, out));
    }
    return check(place, out);
}

void lathe_spm_fini(lathe_spm *spm)
{
    free(spm->pieces);
    *spm = (lathe_spm){.pieces = NULL};
}
