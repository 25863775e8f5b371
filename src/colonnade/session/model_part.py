"""What one party keeps of a model: tensors in safetensors, everything else in JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import CheckpointBroken
from colonnade.session.files import read_json, sha256_of, write_json, write_whole

if TYPE_CHECKING:
    import torch

__all__ = ["ModelPart"]

_FORMAT = 1


def _digest_of(document: dict[str, Any]) -> str:
    return sha256_of(json.dumps(document, ensure_ascii=False).encode())


@dataclass(frozen=True)
class ModelPart:
    """One party's part of a trained model, or of a checkpoint: named tensors and a JSON document."""

    tensors: dict[str, torch.Tensor]
    document: dict[str, Any] = field(default_factory=dict)

    def save(self, folder: Path, name: str = "part") -> None:
        """Write ``name.safetensors`` and ``name.json``; the latter, written last, holds the digest of the former."""
        from safetensors.torch import save

        content = save({key: value.detach().cpu().contiguous() for key, value in self.tensors.items()})
        write_whole(folder / f"{name}.safetensors", content)
        digests = {"sha256": sha256_of(content), "document_sha256": _digest_of(self.document)}
        write_json(folder / f"{name}.json", {"format": _FORMAT, **digests, **self.document})

    @classmethod
    def load(cls, folder: Path, name: str = "part") -> ModelPart:
        """Read what `save` wrote; raise CheckpointBroken if the two files do not belong together."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        document = read_json(folder / f"{name}.json")
        if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
            raise CheckpointBroken(
                f"{folder / name}.json has an unknown format. It was written by another version; train again."
            )
        path = folder / f"{name}.safetensors"
        tensors_digest = document.pop("sha256", None)
        if document.pop("document_sha256", None) != _digest_of(document):
            raise CheckpointBroken(f"{folder / name}.json does not match its own digest. Restore it or run again.")
        try:
            content = path.read_bytes()
        except OSError:
            raise CheckpointBroken(f"{path} is missing. Restore it or run again.") from None
        if sha256_of(content) != tensors_digest:
            raise CheckpointBroken(f"{path} does not match the digest written beside it. Restore it or run again.")
        try:
            return cls(load(content), document)
        except SafetensorError:
            raise CheckpointBroken(f"{path} is not a safetensors file. Restore it or run again.") from None
