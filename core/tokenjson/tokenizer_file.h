/* Loads a tokenizer from its folder, and saves it. */
#ifndef LATHE_TOKENJSON_TOKENIZER_FILE_H
#define LATHE_TOKENJSON_TOKENIZER_FILE_H

#include "text/tokenizer.h"

/** Reads tokenizer.json: `path` is the file, or a folder that holds it. Beside it, where they are,
 *  tokenizer_config.json gives bos/eos/pad; config.json gives the eos that is still missing, and an
 *  added token "<|endoftext|>" is the last resort.
 *
 *  Read: models BPE (merges as pairs or "a b"; unk_token, fuse_unk, byte_fallback, ignore_merges)
 *  and Unigram; normalizers NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, Replace,
 *  Prepend, ByteLevel, Precompiled; pre-tokenizers ByteLevel, Metaspace, Split with every
 *  behaviour, Digits, Punctuation, Whitespace, WhitespaceSplit; decoders ByteLevel, ByteFallback,
 *  Metaspace, Replace, Strip, Fuse; sequences of each; added tokens with all flags; post-processors
 *  ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing (for `add_special` alone). The
 *  ids are those of Hugging Face's tokenizers 0.23: docs/design/006-tokenizers.md tells where a
 *  character newer than the Unicode of one side makes a difference.
 *  Truncation and padding in the file are not for training and are ignored.
 *  Errors  LATHE_E_UNSUPPORTED names file and key of anything else; LATHE_E_PARSE those of what is
 *  malformed; LATHE_E_IO. */
lathe_status lathe_tokenizer_load(const char *path, lathe_tokenizer **out);

/** Writes tokenizer.json as Hugging Face's libraries read it, atomically. If `path` is a folder (or
 *  ends in '/'; made if missing), also tokenizer_config.json with the special tokens.
 *  LATHE_E_UNSUPPORTED for the raw-byte tokenizer. */
lathe_status lathe_tokenizer_save(const lathe_tokenizer *tok, const char *path);

#endif
