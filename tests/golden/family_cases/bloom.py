"""Configurations of Bloom; see family_cases/__init__.py."""
TYPE = "bloom"
TINY = dict(vocab_size=64, hidden_size=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)
GOLDEN = {"bloom": (49, dict(TINY, hidden_size=30, n_head=6))}
SIX = {
    "four heads, tied": dict(TINY),
    "six heads, whose slopes are in two rows, untied": dict(TINY, hidden_size=30, n_head=6, tie_word_embeddings=False),
    "residuals after the norms, eleven heads": dict(TINY, hidden_size=44, n_head=11, apply_residual_connection_post_layernorm=True),
    "one head, large epsilon": dict(TINY, n_head=1, layer_norm_epsilon=0.1),
    "three layers, heads of one channel": dict(TINY, hidden_size=16, n_head=16, n_layer=3),
    "one layer, three heads, the names of the map": dict(vocab_size=64, hidden_size=24, num_hidden_layers=1, num_attention_heads=3),
}
SWEEP = {"bloom": dict(TINY, n_layer=3, pad_token_id=0, initializer_range=0.3, layer_norm_epsilon=1e-5, tie_word_embeddings=False,
                       apply_residual_connection_post_layernorm=False, hidden_dropout=0.0, attention_dropout=0.0, pretraining_tp=1,
                       slow_but_exact=False, seq_length=128)}
OTHER = {"apply_residual_connection_post_layernorm": [True], "slow_but_exact": [True], "seq_length": [64, 2048], "n_embed": [32, 64],
         "num_attention_heads": [2], "n_layer": [4]}
