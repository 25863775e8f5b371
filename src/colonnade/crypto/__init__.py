"""Keys, ciphertexts, arrays of them, and masks; no torch here.

See ``docs/explanation-cryptography.md`` for the scheme, its parameters and its assumptions.
"""

from colonnade.crypto.cipher_array import (
    DEFAULT_FORMAT,
    CipherArray,
    concatenate,
    decrypt,
    decrypt_fixed,
    encrypt,
    open_masked,
)
from colonnade.crypto.ciphertext import Ciphertext
from colonnade.crypto.fixed_point import FixedPoint, Format
from colonnade.crypto.layout import Layout, slot_bits_for
from colonnade.crypto.masks import Mask, RingElements, ring_elements, ring_integers
from colonnade.crypto.paillier import DEFAULT_KEY, INSECURE_TEST, KEY_SIZES, PrivateKey, PublicKey, key_bits

__all__ = [
    "DEFAULT_FORMAT",
    "DEFAULT_KEY",
    "INSECURE_TEST",
    "KEY_SIZES",
    "CipherArray",
    "Ciphertext",
    "FixedPoint",
    "Format",
    "Layout",
    "Mask",
    "PrivateKey",
    "PublicKey",
    "RingElements",
    "concatenate",
    "decrypt",
    "decrypt_fixed",
    "encrypt",
    "key_bits",
    "open_masked",
    "ring_elements",
    "ring_integers",
    "slot_bits_for",
]
