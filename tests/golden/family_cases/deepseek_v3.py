"""Configurations of DeepSeek-V3; see family_cases/__init__.py."""
from family_cases import DEFAULT, LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "deepseek_v3"
MLA = dict(TINY, hidden_size=32, num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4,
           v_head_dim=8, moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=2, n_group=2, topk_group=1,
           first_k_dense_replace=1)
DEEPSEEK = dict(YARN, factor=40.0, mscale=1.0, mscale_all_dim=1.0, beta_fast=32, beta_slow=1)
GOLDEN = {
    "deepseek_v3": (120, dict(MLA, attention_bias=True, rope_parameters=dict(DEEPSEEK, mscale=0.7))),
    "deepseek_v3_plain": (121, dict(MLA, q_lora_rank=None, v_head_dim=14, rope_interleave=False, n_group=1, topk_group=1,
                                    first_k_dense_replace=0, num_hidden_layers=1, tie_word_embeddings=True)),
}
SIX = {
    "DeepSeek's yarn, scores scaled, biases": dict(MLA, num_hidden_layers=3, attention_bias=True, rope_parameters=DEEPSEEK),
    "one projection of q, halves rotated, values larger than keys": dict(MLA, q_lora_rank=None, rope_interleave=False, v_head_dim=22,
                                                                        num_experts_per_tok=3, norm_topk_prob=False),
    "nothing but rotated channels beside one, one head, linear": dict(MLA, num_attention_heads=1, num_key_value_heads=1,
                                                                     qk_nope_head_dim=1, qk_rope_head_dim=10, v_head_dim=3,
                                                                     rope_parameters=dict(LINEAR, mscale_all_dim=0.5)),
    "narrow latents, three groups of four, tied": dict(MLA, q_lora_rank=3, kv_lora_rank=2, n_routed_experts=12, n_group=3,
                                                               topk_group=2, num_experts_per_tok=4, tie_word_embeddings=True,
                                                               routed_scaling_factor=0.3),
    "Kimi K2: one group, 64 narrow experts, yarn of 32": dict(MLA, n_group=1, topk_group=1, n_routed_experts=64, num_experts_per_tok=8,
                                                              moe_intermediate_size=3, routed_scaling_factor=2.827,
                                                              rms_norm_eps=0.1, rope_parameters=dict(DEEPSEEK, factor=32.0)),
    "no MLP layer, wide latents, keys as large as values, llama3": dict(MLA, first_k_dense_replace=0, q_lora_rank=48, kv_lora_rank=40,
                                                                       qk_nope_head_dim=4, v_head_dim=8, n_shared_experts=3,
                                                                       hidden_act="gelu", rope_parameters=LLAMA3),
}
SWEEP = {"deepseek_v3": dict(SWEPT, num_key_value_heads=4, rms_norm_eps=1e-5, attention_bias=True, attention_dropout=0.0, q_lora_rank=12,
                             kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=10, rope_interleave=True,
                             moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
                             first_k_dense_replace=1, n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5,
                             output_router_logits=False, num_nextn_predict_layers=1)}
OTHER = {"rope_interleave": [False], "q_lora_rank": [24], "kv_lora_rank": [20], "qk_nope_head_dim": [8, 0], "qk_rope_head_dim": [4],
         "v_head_dim": [8, 6], "head_dim": [8], "scoring_func": ["softmax", "sigmoid"], "topk_method": ["greedy", "noaux_tc"],
         "moe_layer_freq": [1, 2]}
