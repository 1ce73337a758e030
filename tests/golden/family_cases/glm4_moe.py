"""Configurations of GLM-4.5; see family_cases/__init__.py."""
from family_cases import DEFAULT, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "glm4_moe"
MOE = dict(TINY, hidden_size=32, head_dim=8, moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, num_hidden_layers=3)
GOLDEN = {
    "glm4_moe": (90, dict(MOE, use_qk_norm=True, attention_bias=True, routed_scaling_factor=2.5)),
    "glm4_moe_groups": (91, dict(MOE, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, first_k_dense_replace=0,
                                 n_shared_experts=2, num_hidden_layers=2, tie_word_embeddings=True)),
}
SIX = {
    "one expert of five, weights not normed, linear": dict(MOE, n_routed_experts=5, num_experts_per_tok=1, norm_topk_prob=False,
                                                           rope_parameters=dict(LINEAR, partial_rotary_factor=0.5)),
    "three groups of four, one chosen, tied": dict(MOE, n_routed_experts=12, n_group=3, topk_group=1, num_experts_per_tok=4,
                                                   tie_word_embeddings=True, routed_scaling_factor=0.3),
    "all of four experts, one key head, norms of q and k": dict(MOE, n_routed_experts=4, num_experts_per_tok=4, num_key_value_heads=1,
                                                                use_qk_norm=True, partial_rotary_factor=1.0, hidden_act="gelu"),
    "no MLP layer, biases, llama3, three shared experts": dict(MOE, first_k_dense_replace=0, attention_bias=True, n_shared_experts=3,
                                                               rope_parameters=dict(LLAMA3, partial_rotary_factor=0.5)),
    "64 narrow experts in eight groups, scale 2.5": dict(MOE, n_routed_experts=64, n_group=8, topk_group=4, num_experts_per_tok=8,
                                                         moe_intermediate_size=3, routed_scaling_factor=2.5, head_dim=16,
                                                         rope_parameters=dict(DEFAULT, partial_rotary_factor=0.25)),
    "two MLP layers, wide experts, large epsilon, yarn": dict(MOE, first_k_dense_replace=2, moe_intermediate_size=56, rms_norm_eps=0.1,
                                                              rope_parameters=dict(YARN, partial_rotary_factor=0.5)),
}
SWEEP = {"glm4_moe": dict(SWEPT, head_dim=8, attention_bias=True, attention_dropout=0.0, rms_norm_eps=1e-5, partial_rotary_factor=0.5,
                          use_qk_norm=True, moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
                          first_k_dense_replace=1, n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
                          output_router_logits=False, num_nextn_predict_layers=1)}
OTHER = {"n_routed_experts": [4], "n_shared_experts": [2], "first_k_dense_replace": [0, 2, 3], "n_group": [1, 4], "topk_group": [2],
         "norm_topk_prob": [False], "routed_scaling_factor": [1, 2.5], "num_nextn_predict_layers": [0, 3]}
