"""Configurations of OLMoE; see family_cases/__init__.py."""
from family_cases import LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "olmoe"
MOE = dict(TINY, hidden_size=32, num_experts=6, num_experts_per_tok=2)
GOLDEN = {"olmoe": (83, dict(MOE, output_router_logits=True))}
SIX = {
    "normed weights, tied": dict(MOE, norm_topk_prob=True, tie_word_embeddings=True),
    "all of two, one key head, linear": dict(MOE, num_experts=2, num_key_value_heads=1, rope_parameters=LINEAR),
    "64 experts, 8 of them": dict(MOE, num_experts=64, num_experts_per_tok=8, intermediate_size=5),
    "biases, auxiliary loss, as many key heads": dict(MOE, attention_bias=True, num_key_value_heads=4, output_router_logits=True,
                                                      router_aux_loss_coef=1.5),
    "five layers, llama3, large epsilon": dict(MOE, num_hidden_layers=5, rms_norm_eps=0.1, rope_parameters=LLAMA3),
    "one of three, wide, yarn": dict(MOE, num_experts=3, num_experts_per_tok=1, intermediate_size=99, rope_parameters=YARN),
}
SWEEP = {"olmoe": dict(SWEPT, attention_bias=False, attention_dropout=0.0, rms_norm_eps=1e-5, clip_qkv=None, num_experts=6,
                       num_experts_per_tok=2, norm_topk_prob=False, output_router_logits=False, router_aux_loss_coef=0.01)}
OTHER = {"num_experts": [4], "num_experts_per_tok": [1, 6], "clip_qkv": [None, 2.0]}
