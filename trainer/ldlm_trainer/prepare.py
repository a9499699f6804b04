"""Real data without a download: English of Python's own documentation, and its latents.

Sentences are the docstrings of the standard library and the topics of `pydoc`. Latents
are their latent semantic analysis: TF-IDF, a truncated SVD of the training split,
centred, scaled to norm sqrt(D). Any sentence-transformers model may give them instead.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ldlm_trainer.errors import TrainerError
from ldlm_trainer.shards import MASK, UNKNOWN, write_shards

if TYPE_CHECKING:
    from numpy.typing import NDArray

VOCABULARY = 2048
LENGTH = 32
LATENT_DIM = 32
VALIDATION_PARTS = 20
"""One document of so many is held out."""
LEAST_WORDS = 4
SPECIAL = ("[PAD]", "[UNK]", "[MASK]", "[SEP]")
_WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_ENGLISH = re.compile(r"^[A-Z][A-Za-z0-9 ,;:'\"()./_*`-]+[.!?]$")

Document = tuple[str, list[str]]
"""A name, and sentences."""


def python_documentation() -> Iterator[Document]:
    """Topics of `pydoc`, then the docstrings of each module of the standard library."""
    from pydoc_data.topics import topics

    for name, text in sorted(topics.items()):
        yield f"topic {name}", _sentences(text)
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root)
        if {"test", "tests", "idlelib", "site-packages", "lib2to3"} & set(inner.parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
        texts = [ast.get_docstring(node) or "" for node in nodes]
        yield f"module {inner}", [s for text in texts for s in _sentences(text)]


def text_file(path: Path) -> Iterator[Document]:
    """A text of your own: every line is a document. Raises `TrainerError`."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise TrainerError(error.strerror or str(error), where=str(path)) from error
    for number, line in enumerate(lines):
        yield f"line {number}", [part.strip() for part in _SENTENCE_END.split(line) if part.strip()]


def _sentences(text: str) -> list[str]:
    flat = (" ".join(part.split()) for part in _SENTENCE_END.split(text))
    return [part for part in flat if _ENGLISH.match(part)]


def split_documents(documents: Iterator[Document]) -> dict[str, list[str]]:
    """Unique sentences of each split; what a document holds is in one split only."""
    splits: dict[str, list[str]] = {"train": [], "validation": []}
    seen: set[str] = set()
    for name, sentences in documents:
        held_out = int(hashlib.sha256(name.encode()).hexdigest(), 16) % VALIDATION_PARTS == 0
        split = splits["validation" if held_out else "train"]
        for sentence in sentences:
            words = " ".join(_WORD.findall(sentence.lower()))
            if words not in seen and words.count(" ") >= LEAST_WORDS - 1:
                seen.add(words)
                split.append(sentence)
    return splits


class Words:
    """A vocabulary of words, the most frequent ones of the training split."""

    def __init__(self, sentences: Sequence[str], size: int = VOCABULARY) -> None:
        counts = Counter(word for text in sentences for word in _WORD.findall(text.lower()))
        common = [word for word, _ in counts.most_common(size - len(SPECIAL))]
        self.names = [*SPECIAL, *common]
        self._ids = {word: i for i, word in enumerate(self.names)}

    def encode(
        self, sentences: Sequence[str], length: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Token ids (N, length), padded with 0, and how many of each are none."""
        tokens = np.zeros((len(sentences), length), np.int64)
        lengths = np.zeros(len(sentences), np.int64)
        for row, text in enumerate(sentences):
            ids = [self._ids.get(word, UNKNOWN) for word in _WORD.findall(text.lower())][:length]
            tokens[row, : len(ids)] = ids
            lengths[row] = len(ids)
        return tokens, lengths


class Lsa:
    """Latent semantic analysis of token ids, learned from one split, applied to any."""

    def __init__(self, tokens: NDArray[np.int64], vocabulary: int, dim: int) -> None:
        self.vocabulary = vocabulary
        counts = self._counts(tokens)
        self._rarity = torch.log(len(tokens) / (1 + (counts > 0).sum(0)))
        weighted = self._weighted(counts)
        generator = torch.get_rng_state()
        torch.manual_seed(0)  # svd_lowrank starts from a random matrix
        _, _, self._axes = torch.svd_lowrank(weighted, q=dim, niter=4)
        torch.set_rng_state(generator)
        self._mean = (weighted @ self._axes).mean(0)

    def _counts(self, tokens: NDArray[np.int64]) -> torch.Tensor:
        ids = torch.from_numpy(tokens)
        counts = torch.zeros(len(ids), self.vocabulary)
        counts.scatter_add_(1, ids, torch.ones(ids.shape))
        counts[:, : len(SPECIAL)] = 0
        return counts

    def _weighted(self, counts: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.log1p(counts) * self._rarity, dim=1)

    def __call__(self, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        """Latents (N, 1, dim) of norm sqrt(dim)."""
        parts = [
            self._weighted(self._counts(tokens[i : i + 4096])) @ self._axes - self._mean
            for i in range(0, len(tokens), 4096)
        ]
        unit = torch.nn.functional.normalize(torch.cat(parts), dim=1)
        latents: NDArray[np.float32] = (unit * self._axes.shape[1] ** 0.5)[:, None].numpy()
        return latents


def _model_latents(model: str, sentences: Sequence[str]) -> NDArray[np.float32]:
    """Embeddings by a sentence-transformers model, a name or a folder; raises `TrainerError`."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise TrainerError(
            "--embed needs sentence-transformers", remedy="pip install sentence-transformers"
        ) from error
    try:
        encoded = SentenceTransformer(model).encode(list(sentences), normalize_embeddings=True)
    except (OSError, ValueError) as error:
        raise TrainerError(
            f"the model cannot be loaded: {error}", where=f"--embed {model}"
        ) from error
    latents: NDArray[np.float32] = np.asarray(encoded, np.float32)[:, None]
    return latents * np.float32(latents.shape[-1] ** 0.5)


def prepare(
    folder: Path, *, text: Path | None = None, embed: str | None = None, length: int = LENGTH
) -> dict[str, int]:
    """Write both splits and `index.json` into `folder`; samples of each split."""
    splits = split_documents(python_documentation() if text is None else text_file(text))
    if not all(splits.values()):
        raise TrainerError("too few documents to hold some of them out", where=str(text))
    words = Words(splits["train"])
    encoded = {split: words.encode(sentences, length) for split, sentences in splits.items()}
    lsa = Lsa(encoded["train"][0], len(words.names), LATENT_DIM) if embed is None else None
    sums: dict[str, str] = {}
    for split, (tokens, lengths) in encoded.items():
        latents = _model_latents(embed or "", splits[split]) if lsa is None else lsa(tokens)
        sums |= write_shards(folder, split, tokens, lengths, latents, vocabulary=len(words.names))
    index = {
        "vocabulary": len(words.names),
        "mask_id": MASK,
        "words": words.names,
        "latents": embed or "LSA",
        "source": str(text) if text else f"documentation of Python {platform.python_version()}",
        "samples": {split: len(tokens) for split, (tokens, _) in encoded.items()},
        "sha256": sums,
    }
    (folder / "index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
    return {split: len(tokens) for split, (tokens, _) in encoded.items()}
