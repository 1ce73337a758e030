"""Configurations of Qwen2-MoE; see family_cases/__init__.py."""
from family_cases import FULL, LINEAR, LLAMA3, SLIDING, SWEPT, TINY, YARN

TYPE = "qwen2_moe"
MOE = dict(TINY, hidden_size=32, moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=5, num_experts_per_tok=2)
GOLDEN = {
    "qwen2_moe": (92, dict(MOE, output_router_logits=True, router_aux_loss_coef=0.2)),
    "qwen2_moe_window": (93, dict(MOE, num_hidden_layers=3, norm_topk_prob=True, use_sliding_window=True, sliding_window=6,
                                  max_window_layers=3, mlp_only_layers=[1], qkv_bias=False, tie_word_embeddings=True)),
}
SIX = {
    "one expert of three, tied, a narrow shared one": dict(MOE, num_experts=3, num_experts_per_tok=1, tie_word_embeddings=True,
                                                           shared_expert_intermediate_size=3),
    "all of four experts, normed weights, linear": dict(MOE, num_experts=4, num_experts_per_tok=4, norm_topk_prob=True,
                                                        rope_parameters=LINEAR),
    "layers with MLP, one key head, heads of 6": dict(MOE, num_hidden_layers=4, mlp_only_layers=[0, 2], num_key_value_heads=1,
                                                      head_dim=6),
    "every third layer, auxiliary loss, llama3, gelu": dict(MOE, num_hidden_layers=3, decoder_sparse_step=3, output_router_logits=True,
                                                            router_aux_loss_coef=0.7, rope_parameters=LLAMA3, hidden_act="gelu"),
    "64 narrow experts, no biases, windows by layer": dict(MOE, num_experts=64, num_experts_per_tok=8, moe_intermediate_size=4,
                                                           qkv_bias=False, use_sliding_window=True, sliding_window=5,
                                                           layer_types=[FULL, SLIDING]),
    "experts wider than the MLP, large epsilon, yarn": dict(MOE, moe_intermediate_size=56, mlp_only_layers=[0], rms_norm_eps=0.1,
                                                            output_router_logits=True, rope_parameters=YARN),
}
SWEEP = {"qwen2_moe": dict(SWEPT, attention_dropout=0.0, rms_norm_eps=1e-6, use_sliding_window=True, sliding_window=16,
                           max_window_layers=2, qkv_bias=True, moe_intermediate_size=12, shared_expert_intermediate_size=20,
                           num_experts=5, num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1],
                           output_router_logits=False, router_aux_loss_coef=0.001)}
OTHER = {"qkv_bias": [False], "shared_expert_intermediate_size": [8]}
