/* Finds the class of a folder's tokenizer as AutoTokenizer of transformers 5.24 does. */
#include "files/vocab/vocab_class.h"

#include <string.h>

/* The classes registered for model types (models/auto/tokenization_auto.py; without
 * mistral-common, whose types then have the generic class). A test compares the lists. */
static const struct {
    int32_t which;
    const char *types;
} registered[] = {
    {LATHE_CLASS_GENERIC,
     " EvollaModel arctic aria beam bigbird_pegasus camembertv2-base canary chatlm"
     " cohere_asr ernie4_5 ernie4_5_moe flex_olmo fuyu glm glm4 glm4_moe"
     " glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2 gpt_bigcode"
     " gradium_phonon_tts granite granitemoe granitemoehybrid granitemoeshared"
     " h2ovl_chat hyperclovax hyperclovax_vlm internlm2 internlm3 iquestcoder jamba"
     " kimi_k25 kimi_linear kosmos-2 llava llava_next mimo_v2_flash minicpm3"
     " minicpm_ocr minicpmv minicpmv4_6 minicpmv4_7 minimax_m2 ministral ministral3"
     " mistral mistral3 mistral_large4 mixtral modernbert modernbert-decoder molmo"
     " molmo2 nemo_speechlm nemotron nvfp4 nystromformer olmo2 olmo3 olmo_hybrid"
     " omniasr opencua openvla paddleocr_vl pegasus_x persimmon phi3 phi3_v phimoe"
     " pix2struct pixtral pocket_tts smolvlm stablelm step3_vl umt5 vipllava voxtral"
     " voxtral_realtime xlm-roberta-xl "},
    {LATHE_CLASS_LLAMA, " idefics idefics2 "},
    {LATHE_CLASS_GEMMA, " diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text"
                        " recurrent_gemma shieldgemma2 t5gemma zaya "},
    {LATHE_CLASS_T5, " mt5 musicgen musicgen_melody switch_transformers t5 "},
    {LATHE_CLASS_XLM_ROBERTA, " gte jina_embeddings_v3 metaclip_2 trocr xlm-roberta xmod "},
    {LATHE_CLASS_GPT2,
     " blip-2 codegen dbrx emu3 gpt2 gpt_neo gptj hyperclovax_vision_v2 instructblip"
     " instructblipvideo jais2 opt phi starcoder2 "},
    {LATHE_CLASS_QWEN2, " audioflamingo3 colqwen2 cosmos3_omni dots3_note fun_asr_nano hunyuan_vl"
                        " internvl lighton_ocr moss_transcribe_diarize ovis2 qianfan_ocr qwen2"
                        " qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_asr"
                        " qwen3_moe qwen3_next qwen3_omni_moe qwen3_vl qwen3_vl_moe vibevoice "},
    {LATHE_CLASS_GPT_NEOX, " falcon_mamba gpt_neox mamba mamba2 mpt olmo olmoe rwkv xlstm "},
    {LATHE_CLASS_ROBERTA,
     " bart bridgetower clap data2vec-text ibert lilt longformer mega mra roberta"
     " roberta-prelayernorm "},
    {LATHE_CLASS_BERT,
     " align bark bert blip bros chinese_clip convbert distilbert electra ernie flava"
     " git grounding-dino layoutlm megatron-bert mm-grounding-dino nezha nomic_bert"
     " qdqbert realm retribert squeezebert tvp vilt visual_bert "},
    {LATHE_CLASS_OTHER,
     " aimv2 albert aya_vision barthez bartpho bert-generation bert-japanese bertweet"
     " big_bird biogpt blenderbot blenderbot-small byt5 camembert canine clip clipseg"
     " clvp code_llama cohere cohere2 cpm cpmant ctrl data2vec-audio deberta"
     " deberta-v2 dia dpr esm esmc esmfold2 fastspeech2_conformer flaubert florence2"
     " fnet fsmt funnel gpt-sw3 gpt_neox_japanese granite_speech5_ctc groupvit"
     " herbert hubert lasr_ctc lasr_encoder layoutlmv2 layoutlmv3 layoutxlm led luke"
     " lxmert m2m_100 marian markuplm mbart mbart50 mgp-str mluke mobilebert mpnet"
     " mvp myt5 nemotron3_5_asr nemotron_asr_streaming nllb nllb-moe nougat"
     " omdet-turbo omniasr_ctc oneformer openai-gpt owlv2 owlvit parakeet_ctc"
     " parakeet_rnnt parakeet_tdt pegasus perceiver phobert plbart pp_formulanet"
     " prophetnet qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen4_exp rag"
     " reformer rembert roc_bert roformer sam3 sam3_video seamless_m4t"
     " seamless_m4t_v2 siglip siglip2 speech_to_text speecht5 splinter tapas tipsv2"
     " udop unispeech unispeech-sat videoprism vits wav2vec2 wav2vec2-bert"
     " wav2vec2-conformer wav2vec2_phoneme whisper xclip xglm xlm xlnet yoso "},
};

/* Model types whose tokenizer_class on the Hub transformers knows to be wrong. */
static const char wrong_on_hub[] =
    " arctic camembertv2-base chatlm cohere_asr ernie4_5 ernie4_5_moe fuyu h2ovl_chat"
    " hyperclovax hyperclovax_vision_v2 hyperclovax_vlm internlm2 internlm3"
    " iquestcoder jamba llava llava_next minicpm3 minicpmv minimax_m2 modernbert"
    " modernbert-decoder molmo molmo2 nemotron nvfp4 opencua openvla paddleocr_vl"
    " phi3 phi3_v phimoe qwen2 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen4_exp siglip2"
    " smolvlm step3_vl vipllava ";

/* The names are those of tokenizer_class without "Fast". */
static const struct {
    const char *name;
    int32_t which;
} classes[] = {{"PreTrainedTokenizer", LATHE_CLASS_GENERIC},
               {"PreTrainedTokenizerFast", LATHE_CLASS_GENERIC},
               {"TokenizersBackend", LATHE_CLASS_GENERIC},
               {"LlamaTokenizer", LATHE_CLASS_LLAMA},
               {"GemmaTokenizer", LATHE_CLASS_GEMMA},
               {"T5Tokenizer", LATHE_CLASS_T5},
               {"XLMRobertaTokenizer", LATHE_CLASS_XLM_ROBERTA},
               {"GPT2Tokenizer", LATHE_CLASS_GPT2},
               {"Qwen2Tokenizer", LATHE_CLASS_QWEN2},
               {"GPTNeoXTokenizer", LATHE_CLASS_GPT_NEOX},
               {"RobertaTokenizer", LATHE_CLASS_ROBERTA},
               {"BertTokenizer", LATHE_CLASS_BERT},
               {"DistilBertTokenizer", LATHE_CLASS_BERT},
               {"MobileBertTokenizer", LATHE_CLASS_BERT}};

static int holds(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; n > 0 && (at = strstr(at, name)) != NULL; at++)
        if (at > list && at[-1] == ' ' && at[n] == ' ')
            return 1;
    return 0;
}

int32_t lathe_vocab_class_of_type(const char *model_type)
{
    for (size_t i = 0; i < sizeof registered / sizeof registered[0]; i++)
        if (holds(registered[i].types, model_type))
            return registered[i].which;
    return -1;
}

static int32_t class_named(const char *name)
{
    const size_t n = strlen(name), fast = n > 4 && strcmp(name + n - 4, "Fast") == 0 ? n - 4 : n;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (strcmp(classes[i].name, name) == 0 ||
            (strlen(classes[i].name) == fast && strncmp(classes[i].name, name, fast) == 0))
            return classes[i].which;
    return LATHE_CLASS_OTHER;
}

int32_t lathe_vocab_class(const json_t *tokenizer_config, const json_t *config,
                          const char **out_name)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *own = json_string_value(json_object_get(tokenizer_config, "tokenizer_class"));
    const int32_t is_remote = json_object_get(tokenizer_config, "auto_map") != NULL;
    const int32_t of_type = type != NULL ? lathe_vocab_class_of_type(type) : -1;
    const int32_t is_wrong = type != NULL && holds(wrong_on_hub, type);
    if (own == NULL)
        own = json_string_value(json_object_get(config, "tokenizer_class"));
    *out_name = own != NULL ? own : type != NULL ? type : "no class";
    if (own == NULL)
        return of_type >= 0 ? of_type : LATHE_CLASS_GENERIC;
    const int32_t named = class_named(own);
    if ((is_remote && !is_wrong) || of_type < 0)
        return named;
    if (of_type == LATHE_CLASS_GENERIC)
        return LATHE_CLASS_GENERIC;
    if (is_wrong && of_type != named) {
        *out_name = type;
        return of_type;
    }
    return named;
}

const char *lathe_vocab_class_token(int32_t which, const char *key)
{
    static const struct {
        int32_t which;
        const char *key, *text;
    } tokens[] = {{LATHE_CLASS_LLAMA, "bos_token", "<s>"},
                  {LATHE_CLASS_LLAMA, "eos_token", "</s>"},
                  {LATHE_CLASS_LLAMA, "unk_token", "<unk>"},
                  {LATHE_CLASS_GEMMA, "bos_token", "<bos>"},
                  {LATHE_CLASS_GEMMA, "eos_token", "<eos>"},
                  {LATHE_CLASS_GEMMA, "unk_token", "<unk>"},
                  {LATHE_CLASS_GEMMA, "pad_token", "<pad>"},
                  {LATHE_CLASS_GEMMA, "mask_token", "<mask>"},
                  {LATHE_CLASS_T5, "eos_token", "</s>"},
                  {LATHE_CLASS_T5, "unk_token", "<unk>"},
                  {LATHE_CLASS_T5, "pad_token", "<pad>"},
                  {LATHE_CLASS_GPT2, "bos_token", "<|endoftext|>"},
                  {LATHE_CLASS_GPT2, "eos_token", "<|endoftext|>"},
                  {LATHE_CLASS_GPT2, "unk_token", "<|endoftext|>"},
                  {LATHE_CLASS_QWEN2, "eos_token", "<|endoftext|>"},
                  {LATHE_CLASS_QWEN2, "unk_token", "<|endoftext|>"},
                  {LATHE_CLASS_QWEN2, "pad_token", "<|endoftext|>"},
                  {LATHE_CLASS_GPT_NEOX, "bos_token", "<|endoftext|>"},
                  {LATHE_CLASS_GPT_NEOX, "eos_token", "<|endoftext|>"},
                  {LATHE_CLASS_GPT_NEOX, "unk_token", "<|endoftext|>"},
                  {LATHE_CLASS_GPT_NEOX, "pad_token", "<|padding|>"},
                  {LATHE_CLASS_XLM_ROBERTA, "bos_token", "<s>"},
                  {LATHE_CLASS_XLM_ROBERTA, "eos_token", "</s>"},
                  {LATHE_CLASS_XLM_ROBERTA, "unk_token", "<unk>"},
                  {LATHE_CLASS_XLM_ROBERTA, "sep_token", "</s>"},
                  {LATHE_CLASS_XLM_ROBERTA, "pad_token", "<pad>"},
                  {LATHE_CLASS_XLM_ROBERTA, "cls_token", "<s>"},
                  {LATHE_CLASS_XLM_ROBERTA, "mask_token", "<mask>"},
                  {LATHE_CLASS_BERT, "unk_token", "[UNK]"},
                  {LATHE_CLASS_BERT, "sep_token", "[SEP]"},
                  {LATHE_CLASS_BERT, "pad_token", "[PAD]"},
                  {LATHE_CLASS_BERT, "cls_token", "[CLS]"},
                  {LATHE_CLASS_BERT, "mask_token", "[MASK]"}};
    if (which == LATHE_CLASS_ROBERTA) /* both have these names */
        which = LATHE_CLASS_XLM_ROBERTA;
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++)
        if (tokens[i].which == which && strcmp(tokens[i].key, key) == 0)
            return tokens[i].text;
    return NULL;
}
