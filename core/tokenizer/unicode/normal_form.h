/* Converts text to Unicode's normal forms. */
#ifndef LATHE_TOKENIZER_NORMAL_FORM_H
#define LATHE_TOKENIZER_NORMAL_FORM_H

#include <stdint.h>

#include "lathe/status.h"

typedef enum lathe_form { LATHE_NFC, LATHE_NFD, LATHE_NFKC, LATHE_NFKD } lathe_form;

/** Converts a text to a normal form; bytes that are not UTF-8 stay. *out is NULL if nothing can
 *  change, else malloc'ed. Takes linear time. */
lathe_status lathe__normal_form(const uint8_t *text, int64_t n, lathe_form form, uint8_t **out,
                                int64_t *out_n);
lathe_status lathe__nfc(const uint8_t *text, int64_t n, uint8_t **out, int64_t *out_n);

#endif
