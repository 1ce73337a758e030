/* Loads a tokenizer from its folder, and saves it. */
#ifndef LATHE_TOKENIZER_TOKENIZER_FILE_H
#define LATHE_TOKENIZER_TOKENIZER_FILE_H

#include "files/gguf/model_files.h"
#include "tokenizer/encode/tokenizer.h"

/** Reads tokenizer.json: `path` is the file, the folder that contains it, or a GGUF file; for
 *  a folder with a vocabulary in another form, the tokenizer.json that is made of it (files/vocab).
 *
 *  Files beside it are read, too, as in transformers: tokenizer_config.json,
 *  special_tokens_map.json and added_tokens.json add tokens and say which are special
 *  (files/vocab/token_names.h), and config.json has the ids of bos, eos and pad that are still
 *  missing. Without an eos, an added token "<|endoftext|>" is eos.
 *
 *  Supported: models BPE (merges as pairs or "a b"; unk_token, fuse_unk, byte_fallback,
 *  ignore_merges), Unigram, WordPiece and WordLevel; normalizers NFC, NFD, NFKC, NFKD, Lowercase,
 *  Strip, StripAccents, Nmt, Replace, Prepend, ByteLevel, Precompiled, BertNormalizer;
 *  pre-tokenizers ByteLevel, Metaspace, Split with every behaviour, Digits, Punctuation,
 *  Whitespace, WhitespaceSplit, BertPreTokenizer; decoders ByteLevel, ByteFallback, Metaspace,
 *  Replace, Strip, Fuse, WordPiece; sequences of each; added tokens with all flags; post-processors
 *  ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing (only for `add_special`). The
 *  ids are those of Hugging Face's tokenizers 0.23, except for characters that one side's version
 *  of Unicode does not know (docs/design/006-tokenizers.md). Truncation and padding in the file are
 *  ignored, since they are not for training.
 *
 *  Errors  LATHE_E_UNSUPPORTED: something else; the message names file and key.
 *          LATHE_E_PARSE: malformed. LATHE_E_IO. */
lathe_status lathe_tokenizer_load(const char *path, lathe_tokenizer **out);
/** Like lathe_tokenizer_load, with a config.json that the texts may have already. */
lathe_status lathe_tokenizer_load_with(lathe_model_texts *texts, const char *path,
                                       lathe_tokenizer **out);

/** Refuses a folder of a model that has no tokenizer.json and no files of which one can be made
 *  (LATHE_E_NOT_FOUND), and says which files of a tokenizer it has, and how to convert them. */
lathe_status lathe_tokenizer_missing(const char *folder);

/** Writes tokenizer.json atomically, in the form that Hugging Face's libraries read. If `path` is a
 *  folder or ends in '/', also writes tokenizer_config.json with the special tokens; a new or empty
 *  folder is made whole (base/new_folder.h). LATHE_E_UNSUPPORTED: the raw-byte tokenizer. */
lathe_status lathe_tokenizer_save(const lathe_tokenizer *tok, const char *path);

#endif
