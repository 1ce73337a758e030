"""Configurations of DeepSeek-V2-Lite; see family_cases/__init__.py."""
from family_cases import DEFAULT, LINEAR, SWEPT, TINY, YARN

TYPE = "deepseek_v2"
MLA = dict(TINY, hidden_size=32, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4,
           v_head_dim=8, moe_intermediate_size=12, n_routed_experts=6, num_experts_per_tok=2, first_k_dense_replace=1)
LITE = dict(YARN, factor=40.0, mscale=0.707, mscale_all_dim=0.707, beta_fast=32, beta_slow=1)
GOLDEN = {
    "deepseek_v2": (125, dict(MLA, q_lora_rank=12, attention_bias=True, routed_scaling_factor=1.5, rope_parameters=LITE)),
}
SIX = {
    "DeepSeek-V2-Lite's yarn, scores scaled": dict(MLA, num_hidden_layers=3, rope_parameters=LITE),
    "latent queries, biases, values larger than keys": dict(MLA, q_lora_rank=12, attention_bias=True, mlp_bias=True, v_head_dim=22),
    "one head, linear, one expert of five": dict(MLA, num_attention_heads=1, num_key_value_heads=1, qk_nope_head_dim=2, v_head_dim=3,
                                                 qk_rope_head_dim=10, n_routed_experts=5, num_experts_per_tok=1, rope_parameters=LINEAR),
    "no MLP layer, all of four experts, tied": dict(MLA, first_k_dense_replace=0, n_routed_experts=4, num_experts_per_tok=4,
                                                    tie_word_embeddings=True, routed_scaling_factor=16.0),
    "64 narrow experts, three shared ones, large epsilon": dict(MLA, n_routed_experts=64, num_experts_per_tok=6, n_shared_experts=3,
                                                                moe_intermediate_size=3, rms_norm_eps=0.1),
    "no experts at all, wide latents, gelu": dict(MLA, first_k_dense_replace=2, q_lora_rank=48, kv_lora_rank=40, hidden_act="gelu",
                                                  rope_parameters=DEFAULT),
}
SWEEP = {"deepseek_v2": dict(SWEPT, num_key_value_heads=4, rms_norm_eps=1e-5, attention_bias=True, mlp_bias=False, attention_dropout=0.0,
                             q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=10,
                             moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=1,
                             first_k_dense_replace=1, n_group=1, topk_group=1, topk_method="greedy", norm_topk_prob=False,
                             routed_scaling_factor=1.5, output_router_logits=False)}
OTHER = {"topk_method": ["group_limited_greedy"], "norm_topk_prob": [True]}
