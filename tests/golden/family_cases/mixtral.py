"""Configurations of Mixtral; see family_cases/__init__.py."""
from family_cases import LINEAR, LLAMA3, SWEPT, TINY, YARN

TYPE = "mixtral"
MOE = dict(TINY, hidden_size=32, num_local_experts=4, num_experts_per_tok=2)
GOLDEN = {"mixtral": (82, dict(MOE, sliding_window=7, output_router_logits=True, router_aux_loss_coef=0.02))}
SIX = {
    "two of eight, heads of 12, tied": dict(MOE, num_local_experts=8, head_dim=12, tie_word_embeddings=True),
    "one expert, linear": dict(MOE, num_local_experts=1, num_experts_per_tok=1, rope_parameters=LINEAR),
    "all of three, a window of 1": dict(MOE, num_local_experts=3, num_experts_per_tok=3, sliding_window=1),
    "narrow experts, auxiliary loss, one key head": dict(MOE, intermediate_size=3, output_router_logits=True,
                                                         router_aux_loss_coef=0.5, num_key_value_heads=1),
    "five layers, llama3, large epsilon": dict(MOE, num_hidden_layers=5, rms_norm_eps=0.1, rope_parameters=LLAMA3),
    "wide experts, as many key heads, yarn": dict(MOE, intermediate_size=130, head_dim=8, num_key_value_heads=4, rope_parameters=YARN),
}
SWEEP = {"mixtral": dict(SWEPT, attention_dropout=0.0, rms_norm_eps=1e-5, sliding_window=16, num_local_experts=4,
                         num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.001,
                         router_jitter_noise=0.0)}
OTHER = {"num_local_experts": [3], "num_experts_per_tok": [1, 4], "router_jitter_noise": [0, 0.1]}
