"""Configurations of MPT; see family_cases/__init__.py."""
TYPE = "mpt"
TINY = dict(vocab_size=64, d_model=32, n_layers=2, n_heads=4, max_seq_len=64, bos_token_id=1, eos_token_id=2)
GOLDEN = {"mpt": (50, dict(TINY, attn_config=dict(clip_qkv=1.5)))}
SIX = {
    "four heads, tied": dict(TINY),
    "six heads, a smaller scale, untied": dict(TINY, d_model=30, n_heads=6, tie_word_embeddings=False,
                                               attn_config=dict(alibi_bias_max=8, softmax_scale=0.2)),
    "clipped, eleven heads": dict(TINY, d_model=44, n_heads=11, attn_config=dict(clip_qkv=0.7)),
    "one head, a scale of its own, large epsilon": dict(TINY, n_heads=1, layer_norm_epsilon=0.1, attn_config=dict(softmax_scale=0.3)),
    "three layers, heads of one channel, clipped": dict(TINY, d_model=16, n_heads=16, n_layers=3,
                                                        attn_config=dict(clip_qkv=2.0, attn_pdrop=0)),
    "one layer, three heads, the names of the map": dict(vocab_size=64, hidden_size=24, num_hidden_layers=1, num_attention_heads=3,
                                                         max_seq_len=64),
}
SWEEP = {"mpt": dict(TINY, n_layers=3, max_seq_len=128, pad_token_id=0, initializer_range=0.3, layer_norm_epsilon=1e-5,
                     tie_word_embeddings=False, expansion_ratio=4, resid_pdrop=0.0, emb_pdrop=0.0, learned_pos_emb=True, no_bias=True,
                     logit_scale=None, embedding_fraction=1.0, norm_type="low_precision_layernorm", init_device="cpu",
                     attn_config=dict(clip_qkv=2.0, alibi=True, alibi_bias_max=8, attn_pdrop=0, attn_type="multihead_attention"))}
OTHER = {"attn_config": [{}, dict(clip_qkv=0), dict(clip_qkv=0.5), dict(alibi_bias_max=4), dict(softmax_scale=0.5), dict(alibi=False),
                         dict(attn_type="multiquery_attention"), dict(prefix_lm=True), dict(qk_ln=True), dict(attn_uses_sequence_id=True),
                         dict(clip_qkv=None, softmax_scale=None)],
         "expansion_ratio": [2], "no_bias": [False], "learned_pos_emb": [False], "norm_type": ["layernorm"], "n_heads": [2],
         "max_seq_len": [96, 256], "n_layers": [4]}
