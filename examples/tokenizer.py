"""The tokenizer and the chat prompt of a SmolLM2 model, from the GGUF file's own metadata."""

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

CONTROL = 3  # in tokenizer.ggml.token_type: a token that marks structure and never is text


def load(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the byte-level BPE tokenizer that the metadata of a GGUF file describes.

    Raises ValueError where the file asks for another kind of tokenizer, KeyError where it has none.
    """
    kind = metadata["tokenizer.ggml.model"], metadata.get("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"the tokenizer is {kind[0]}/{kind[1]}, this example knows gpt2/smollm")

    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges: list[str] = metadata["tokenizer.ggml.merges"]
    tokenizer = Tokenizer(
        BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[(left, right) for left, right in (merge.split(" ") for merge in merges)],
        )
    )
    # "smollm" means: every digit by itself, then GPT-2's split into words over bytes.
    tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, type_ in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True)
            if type_ == CONTROL
        ]
    )
    return tokenizer


def chat_prompt(question: str) -> str:
    """Wrap a question in the turns that the model was trained on (its chat template, by hand)."""
    return (
        "<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{question}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
