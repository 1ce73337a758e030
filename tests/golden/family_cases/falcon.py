"""Configurations of Falcon; see family_cases/__init__.py."""
from family_cases import LINEAR, LLAMA3, YARN

TYPE = "falcon"
ATTENTION = "sdpa"  # the default; the eager attention of transformers 5.24 adds the ALiBi bias twice
TINY = dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_hidden_size=40, max_position_embeddings=64,
            bos_token_id=1, eos_token_id=2)
GOLDEN = {"falcon": (46, dict(TINY)),
          "falcon_new": (47, dict(TINY, new_decoder_architecture=True, num_kv_heads=2)),
          "falcon_alibi": (48, dict(TINY, alibi=True, multi_query=False, parallel_attn=False, bias=True))}
SIX = {
    "multi-query, parallel, rotary": dict(TINY, hidden_size=40, num_attention_heads=5),
    "the new architecture, grouped, two norms, biases, untied, linear": dict(
        TINY, new_decoder_architecture=True, num_attention_heads=8, num_kv_heads=2, bias=True, tie_word_embeddings=False,
        rope_parameters=LINEAR),
    "the new architecture, one norm, as many key heads, llama3": dict(
        TINY, new_decoder_architecture=True, num_ln_in_parallel_attn=1, num_hidden_layers=3, rope_parameters=LLAMA3),
    "ALiBi, serial, a key head for each, biases": dict(TINY, alibi=True, multi_query=False, parallel_attn=False, bias=True,
                                                       num_attention_heads=8, layer_norm_epsilon=0.1),
    "ALiBi, multi-query, parallel, head size 6, relu": dict(TINY, hidden_size=24, num_attention_heads=4, alibi=True, activation="relu",
                                                            ffn_hidden_size=None),
    "serial, multi-query, yarn beside, gelu_new": dict(TINY, parallel_attn=False, rope_scaling=YARN, rope_theta=500.0,
                                                       activation="gelu_new"),
}
SWEEP = {"falcon": dict(TINY, num_hidden_layers=3, ffn_hidden_size=48, max_position_embeddings=128, pad_token_id=0, initializer_range=0.3,
                        tie_word_embeddings=False, rope_theta=10000.0, rope_scaling=None, new_decoder_architecture=True, num_kv_heads=2,
                        multi_query=True, parallel_attn=True, bias=False, alibi=False, activation="gelu", layer_norm_epsilon=1e-5,
                        num_ln_in_parallel_attn=2, attention_dropout=0.0, hidden_dropout=0.0)}
OTHER = {"alibi": [True], "multi_query": [False], "parallel_attn": [False], "new_decoder_architecture": [False], "bias": [True],
         "num_ln_in_parallel_attn": [1, 3], "num_kv_heads": [1, 4], "ffn_hidden_size": [32, 128], "activation": ["relu", "silu", "mish"],
         "n_embed": [32, 64]}
UNEDITED = ["output_attentions"]  # with it, sdpa's mask of booleans is added to the scores: no key is hidden
