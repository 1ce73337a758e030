"""Configurations of Granite 4; see family_cases/__init__.py."""
from family_cases import DEFAULT, FULL, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "granitemoehybrid"
MAMBA = "linear_attention"
FOUR = dict(embedding_multiplier=12.0, attention_multiplier=0.3, residual_multiplier=0.22, logits_scaling=8.0)
BOTH = dict(TINY, mamba_n_heads=6, mamba_d_head=8, mamba_d_state=5, mamba_n_groups=1, shared_intermediate_size=20, intermediate_size=12,
            num_local_experts=0, layer_types=[MAMBA, FULL])
MOE = dict(BOTH, num_local_experts=6, num_experts_per_tok=2)
GOLDEN = {
    "granitemoehybrid": (122, dict(MOE, **FOUR, output_router_logits=True, router_aux_loss_coef=0.2)),
    "granitemoehybrid_dense": (121, dict(BOTH, num_hidden_layers=3, layer_types=[FULL, MAMBA, MAMBA], mamba_n_groups=3, tie_word_embeddings=True,
                                         mamba_proj_bias=True, attention_bias=True, mamba_d_conv=2, position_embedding_type="rope",
                                         rope_parameters=DEFAULT, residual_multiplier=0.5)),
}
SIX = {
    "state spaces alone, one expert of three, tied": dict(MOE, layer_types=[MAMBA, MAMBA], num_local_experts=3, num_experts_per_tok=1,
                                                          tie_word_embeddings=True),
    "attention alone with positions, all of four experts, linear": dict(MOE, **FOUR, layer_types=[FULL, FULL], num_local_experts=4,
                                                                       num_experts_per_tok=4, position_embedding_type="rope",
                                                                       rope_parameters=LINEAR),
    "no experts, three groups, wide states, limits": dict(BOTH, **FOUR, num_hidden_layers=3, layer_types=[MAMBA, FULL, MAMBA],
                                                          mamba_n_heads=12, mamba_d_head=4, mamba_n_groups=3, mamba_d_state=20,
                                                          time_step_limit=(0.6, 0.8)),
    "biases everywhere, one tap, one wide head, llama3": dict(BOTH, mamba_n_heads=1, mamba_d_head=48, mamba_proj_bias=True,
                                                              attention_bias=True, mamba_d_conv=1, num_key_value_heads=1,
                                                              position_embedding_type="rope", rope_parameters=LLAMA3),
    "no bias of the convolution, gelu, auxiliary loss, large epsilon": dict(MOE, hidden_act="gelu_new", mamba_conv_bias=False,
                                                                           mamba_expand=3, mamba_n_heads=9, mamba_d_head=8,
                                                                           rms_norm_eps=0.1, output_router_logits=True,
                                                                           router_aux_loss_coef=0.7),
    "64 narrow experts, a group for each head, yarn": dict(MOE, mamba_n_groups=6, num_local_experts=64, num_experts_per_tok=8,
                                                           intermediate_size=5, shared_intermediate_size=3, mamba_d_state=1,
                                                           position_embedding_type="rope", rope_parameters=YARN),
}
SWEEP = {"granitemoehybrid": dict(SWEPT, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-6, embedding_multiplier=2.0,
                                  attention_multiplier=0.3, residual_multiplier=0.5, logits_scaling=2.0, num_local_experts=5,
                                  num_experts_per_tok=2, shared_intermediate_size=20, output_router_logits=False,
                                  router_aux_loss_coef=0.001, position_embedding_type="rope", layer_types=[MAMBA, FULL, MAMBA],
                                  mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=8, mamba_d_head=16, mamba_d_conv=4, mamba_expand=2,
                                  mamba_chunk_size=256, mamba_conv_bias=True, mamba_proj_bias=False)}
OTHER = {"position_embedding_type": [None, "nope"], "mamba_n_groups": [1, 4], "mamba_d_conv": [1, 2], "mamba_chunk_size": [16],
         "mamba_conv_bias": [False], "mamba_proj_bias": [True]}
